//! Shop: an order over three pages (product, recipient, delivery) with validation.

use crate::apps::labelled_field;
use crate::desktop::Desktop;
use crate::view::{Gesture, Group, Node, Role, Value, View};
use crate::world::{App, Order};
use serde::{Deserialize, Serialize};

/// What the window shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct State {
    /// 0: product, 1: recipient, 2: delivery, 3: done.
    pub(crate) page: usize,
    /// The chosen product.
    pub(crate) product: String,
    /// Quantity minus one.
    pub(crate) more: u32,
    /// The recipient.
    pub(crate) name: String,
    /// Post code.
    pub(crate) code: String,
    /// The delivery method; empty for the first one.
    pub(crate) delivery: String,
    /// The validation error of the page.
    pub(crate) complaint: String,
}

/// Delivery methods.
pub(crate) const DELIVERIES: [&str; 3] = ["Post", "Van", "Bike"];
/// The largest quantity of one product.
pub(crate) const MAX_QUANTITY: u32 = 9;

/// The chosen delivery method.
pub(crate) fn delivery(state: &State) -> &str {
    if state.delivery.is_empty() { DELIVERIES[0] } else { &state.delivery }
}

pub(crate) fn view(desktop: &Desktop) -> View {
    let state = &desktop.session.states.shop;
    let button = |id: &str, label: &str| Node::new(Role::Button, format!("shop:{id}"), label);
    let complaint = Node::new(Role::Label, "shop:complaint", state.complaint.clone());
    let view = View::new(desktop.app_name(App::Shop));
    let back = button("back", "Back").keys("escape");
    match state.page {
        0 => {
            let item = |product: &String| {
                Node::new(Role::Item, format!("shop:product:{product}"), product.clone())
                    .on(*product == state.product)
            };
            view.body(Group::shuffled(desktop.world.products.iter().map(item).collect()))
                .bottom(Group::fixed(vec![
                    button("less", "-"),
                    Node::new(Role::Label, "shop:quantity", (state.more + 1).to_string()).size(1, 2),
                    button("more", "+"),
                ]))
                .bottom(Group::fixed(vec![button("next", "Next").keys("enter"), complaint.size(2, 8)]))
        }
        1 => view
            .body(labelled_field("shop:name", "Name", &state.name))
            .body(labelled_field(
                "shop:code",
                if desktop.look.pocket() { "Code" } else { "Post code" },
                &state.code,
            ))
            .bottom(Group::fixed(vec![complaint]))
            .bottom(Group::shuffled(vec![back, button("next", "Next").keys("enter")])),
        2 => {
            let method = |method: &str| {
                Node::new(Role::Radio, format!("shop:way:{method}"), method)
                    .on(delivery(state) == method)
                    .size(1, 4)
            };
            view.body(Group::fixed(DELIVERIES.map(method).into()))
                .bottom(Group::shuffled(vec![back, button("buy", "Buy").keys("enter")]))
        }
        _ => view
            .body(Group::fixed(vec![Node::new(Role::Label, "shop:thanks", "Thanks")]))
            .bottom(Group::fixed(vec![button("done", "OK").keys("enter")])),
    }
}

pub(crate) fn event(desktop: &mut Desktop, verb: &str, which: &str, gesture: &Gesture) {
    let state = &mut desktop.session.states.shop;
    match (verb, gesture) {
        ("product", _) => which.clone_into(&mut state.product),
        ("less", _) => state.more = state.more.saturating_sub(1),
        ("more", _) => state.more = (state.more + 1).min(MAX_QUANTITY - 1),
        ("name", Gesture::Set(Value::Text(text))) => state.name.clone_from(text),
        ("code", Gesture::Set(Value::Text(text))) => state.code.clone_from(text),
        ("way", _) => which.clone_into(&mut state.delivery),
        ("back", _) => turn(desktop, -1),
        ("next", _) => {
            let complaint = complaint(state);
            complaint.clone_into(&mut state.complaint);
            if complaint.is_empty() {
                turn(desktop, 1);
            }
        }
        ("buy", _) => {
            let order = Order {
                quantity: state.more + 1,
                name: state.name.trim().to_owned(),
                code: state.code.trim().to_owned(),
                delivery: delivery(state).to_owned(),
            };
            desktop.world.orders.insert(state.product.clone(), order);
            turn(desktop, 1);
        }
        ("done", _) => *state = State::default(),
        _ => {}
    }
}

fn turn(desktop: &mut Desktop, by: isize) {
    let state = &mut desktop.session.states.shop;
    state.page = state.page.saturating_add_signed(by);
    state.complaint.clear();
    desktop.scroll_to_start();
}

/// Why the form cannot go to its next page; empty if it can.
fn complaint(state: &State) -> &'static str {
    let digits = state.code.trim();
    match state.page {
        0 if state.product.is_empty() => "Choose one",
        1 if state.name.trim().is_empty() => "Name missing",
        1 if digits.len() != 4 || !digits.bytes().all(|byte| byte.is_ascii_digit()) => "Code: 4 digits",
        _ => "",
    }
}
