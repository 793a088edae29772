//! Shop: the pages of an order, one after the other.

use crate::apps::shop::delivery;
use crate::desktop::Desktop;
use crate::oracle::{Intent, click};
use crate::world::World;

pub(crate) fn plan(desktop: &Desktop, target: &World) -> Option<Intent> {
    let placed = &desktop.world.orders;
    let (product, order) =
        target.orders.iter().find(|(product, order)| placed.get(*product) != Some(*order))?;
    let state = &desktop.session.states.shop;
    let first_page_right = state.product == *product && state.more + 1 == order.quantity;
    let second_page_right = state.name == order.name && state.code == order.code;
    match state.page {
        0 if state.product != *product => click(format!("shop:product:{product}")),
        0 if state.more + 1 < order.quantity => click("shop:more"),
        0 if state.more + 1 > order.quantity => click("shop:less"),
        1 | 2 if !first_page_right => click("shop:back"),
        1 if state.name != order.name => Some(Intent::Type("shop:name".into(), order.name.clone())),
        1 if state.code != order.code => Some(Intent::Type("shop:code".into(), order.code.clone())),
        0 | 1 => click("shop:next"),
        2 if !second_page_right => click("shop:back"),
        2 if delivery(state) != order.delivery => click(format!("shop:way:{}", order.delivery)),
        2 => click("shop:buy"),
        _ => click("shop:done"),
    }
}
