//! What is written where on a screen, from its layout: the texts of the widgets in each square of a grid, as the image tokens of
//! a model are.

use crate::layout::{PlacedWidget, Scene, SceneItem, Surface};
use crate::view::{Role, Value};
use egui::Rect;

/// Texts of a square: in its upper and in its lower half, because rows of widgets may be lower than a square.
pub const HALVES: usize = 2;

/// What is written at a place of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// This text, from its beginning; an empty one where no widget is.
    Text(String),
    /// Something that the layout does not tell: typed text, which scrolls, a slider, or what lies partly under another window or
    /// dimmed under a dialog.
    Unknown,
}

impl Scene {
    /// What is written in the squares of a grid over a screen of this width and height, row by row: in the middle of their halves.
    pub(crate) fn written(
        &self,
        [width, height]: [u32; 2],
        [columns, rows]: [usize; 2],
    ) -> Vec<[Written; HALVES]> {
        let layers = self.layers();
        let side = [width as f32 / columns as f32, height as f32 / rows as f32];
        let square = |at: usize| {
            std::array::from_fn(|half| {
                let x = side[0] * ((at % columns) as f32 + 0.5);
                let y = side[1] * ((at / columns) as f32 + (half as f32 + 0.5) / HALVES as f32);
                written_at(&layers, x, y)
            })
        };
        (0..rows * columns).map(square).collect()
    }

    /// What is written on each rectangle, the topmost first.
    fn layers(&self) -> Vec<(Rect, Written)> {
        let mut covers: Vec<Rect> = vec![];
        let mut layers = vec![];
        for item in self.items.iter().rev() {
            match item {
                SceneItem::Panel { surface: Surface::ScrollBar, .. } => {}
                SceneItem::Panel { surface: Surface::Shade, rect } => layers.push((*rect, Written::Unknown)),
                SceneItem::Panel { rect, .. } => {
                    covers.push(*rect);
                    layers.push((*rect, Written::Text(String::new())));
                }
                SceneItem::Widget(placed) => {
                    let is_whole = !covers.iter().any(|cover| cover.intersect(placed.rect).is_positive());
                    layers.push((placed.rect, if is_whole { written_on(placed) } else { Written::Unknown }));
                }
            }
        }
        layers
    }
}

fn written_on(PlacedWidget { node, .. }: &PlacedWidget) -> Written {
    match (node.role, &node.value) {
        (Role::Slider | Role::Field | Role::Text, _) => Written::Unknown,
        (Role::Menu, Value::Text(chosen)) => Written::Text(chosen.clone()),
        _ => Written::Text(node.label.clone()),
    }
}

fn written_at(layers: &[(Rect, Written)], x: f32, y: f32) -> Written {
    let is_here =
        |rect: &Rect| (rect.min.x..rect.max.x).contains(&x) && (rect.min.y..rect.max.y).contains(&y);
    let topmost = layers.iter().find(|(rect, _)| is_here(rect));
    topmost.map_or(Written::Text(String::new()), |(_, written)| written.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::font::{CELL_HEIGHT, CELL_WIDTH, is_set};
    use crate::embedded::EmbeddedDesktop;
    use crate::environment::{Environment, ends_episode};
    use crate::oracle::Oracle;
    use crate::tasks::Suite;
    use crate::view::Node;
    use crate::world::App;
    use egui::pos2;
    use image::RgbImage;
    use std::collections::BTreeSet;
    use std::time::{Duration, Instant};

    fn deadline() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    /// Whether a letter is in the picture with its left upper corner here: every pixel against the table of the font. The
    /// background is the gap to the next letter.
    fn is_drawn(letter: char, image: &RgbImage, left: u32, top: u32) -> bool {
        let pixel = |x: usize, y: usize| image.get_pixel(left + x as u32, top + y as u32).0;
        let gap = pixel(CELL_WIDTH - 1, 0);
        let differs =
            |x: usize, y: usize| pixel(x, y).iter().zip(gap).any(|(one, other)| one.abs_diff(other) > 30);
        (0..CELL_HEIGHT).all(|y| (0..CELL_WIDTH - 1).all(|x| differs(x, y) == is_set(letter, x, y)))
    }

    /// On pocket screens, where the place of every letter is known.
    #[test]
    fn what_is_written_is_drawn() {
        let mut desktop = EmbeddedDesktop::new(Suite::Pocket.screen()).unwrap();
        let (mut letters, mut drawn) = (0, 0);
        for (number, template) in (0..).zip(Suite::Pocket.templates()) {
            let task = Suite::Pocket.further_task_of(&template, number).unwrap();
            let mut screen = desktop.reset(&task, number, deadline()).unwrap();
            let mut oracle = Oracle::new();
            for _ in 0..6 {
                let image = screen.image().unwrap();
                let layers = desktop.planning().unwrap().2.layers();
                for widget in desktop.widgets().iter().filter(|widget| widget.enabled) {
                    let [left, top, right, _] = widget.rect;
                    let Written::Text(text) = written_at(&layers, left + 1.0, top + 1.0) else { continue };
                    let lefts = (0..).map(|number| left as u32 + 12 + number * CELL_WIDTH as u32);
                    let fits = |left: &u32| left + CELL_WIDTH as u32 <= right as u32;
                    for (letter, left) in text.chars().zip(lefts.take_while(fits)) {
                        letters += 1;
                        drawn += u32::from(is_drawn(letter, &image, left, top as u32 + 3));
                    }
                }
                let action = oracle.next_action(&desktop);
                if ends_episode(&action) {
                    break;
                }
                screen = desktop.step(&action, deadline()).unwrap().screen;
            }
        }
        assert!(letters > 2_000 && drawn * 100 >= letters * 99, "{drawn} of {letters}");
    }

    fn rect([left, top, right, bottom]: [f32; 4]) -> Rect {
        Rect::from_min_max(pos2(left, top), pos2(right, bottom))
    }

    fn panel(surface: Surface, at: [f32; 4]) -> SceneItem {
        SceneItem::Panel { surface, rect: rect(at) }
    }

    fn widget(role: Role, label: &str, value: Value, at: [f32; 4]) -> SceneItem {
        let node = Node { value, ..Node::new(role, label, label) };
        SceneItem::Widget(PlacedWidget { node, rect: rect(at), active: true })
    }

    #[test]
    fn a_square_says_what_the_widgets_in_its_halves_show() {
        let mut items = vec![
            panel(Surface::Wallpaper, [0.0, 0.0, 80.0, 40.0]),
            widget(Role::Item, "above", Value::None, [0.0, 0.0, 39.0, 12.0]),
            widget(Role::Item, "below", Value::None, [0.0, 13.0, 39.0, 25.0]),
            widget(Role::Menu, "Colour", Value::Text("Blue".into()), [40.0, 0.0, 80.0, 40.0]),
            widget(Role::Field, "Name", Value::Text("typed".into()), [60.0, 20.0, 80.0, 40.0]),
        ];
        let written = |items: &[SceneItem]| {
            Scene { items: items.to_vec(), ..Scene::default() }.written([80, 40], [4, 2])
        };
        let text = |text: &str| Written::Text(text.into());
        let unknown = [Written::Unknown, Written::Unknown];
        let both = |one: &str| [text(one), text(one)];
        let items_in_two_halves = [text("above"), text("below")];
        assert_eq!(
            written(&items),
            [
                items_in_two_halves.clone(),
                items_in_two_halves.clone(),
                both("Blue"),
                both("Blue"),
                both(""),
                both(""),
                both("Blue"),
                unknown.clone(),
            ]
        );
        // over the end of the menu: its text is not read where it is seen, either
        items.push(panel(Surface::Window(App::Files), [60.0, 0.0, 80.0, 20.0]));
        items.push(widget(Role::Label, "front", Value::None, [60.0, 0.0, 80.0, 9.0]));
        let covered = [
            items_in_two_halves.clone(),
            items_in_two_halves,
            unknown.clone(),
            [text("front"), text("")],
            both(""),
            both(""),
            unknown.clone(),
            unknown.clone(),
        ];
        assert_eq!(written(&items), covered);
        items.push(panel(Surface::Shade, [0.0, 0.0, 80.0, 40.0]));
        items.push(panel(Surface::Dialog, [0.0, 20.0, 20.0, 40.0]));
        items.push(widget(Role::Label, "sure?", Value::None, [0.0, 20.0, 20.0, 30.0]));
        let mut dimmed = vec![unknown; 8];
        dimmed[4] = [text("sure?"), text("")];
        assert_eq!(written(&items), dimmed);
    }

    /// A menu opens at the edge of its button.
    #[test]
    fn a_widget_that_touches_a_panel_is_not_under_it() {
        let button = widget(Role::Button, "Colour", Value::None, [0.0, 0.0, 40.0, 20.0]);
        let under = |panel: SceneItem| {
            let scene = Scene { items: vec![button.clone(), panel], ..Scene::default() };
            scene.written([40, 20], [1, 1])
        };
        let menu = |top: f32| panel(Surface::Menu, [0.0, top, 40.0, 60.0]);
        let text = || Written::Text("Colour".into());
        assert_eq!(under(menu(20.0)), [[text(), text()]]);
        assert_eq!(under(menu(19.0)), [[Written::Unknown, Written::Unknown]]);
    }

    /// The others are partly under another window.
    #[test]
    fn nearly_every_widget_is_written_in_some_square() {
        for (suite, grid) in [(Suite::Pocket, [6, 5]), (Suite::Desktop, [23, 17])] {
            let look = suite.screen();
            let mut desktop = EmbeddedDesktop::new(look.clone()).unwrap();
            let (mut shown, mut written) = (0, 0);
            for (number, template) in (0..).zip(suite.templates()) {
                let task = suite.further_task_of(&template, number).unwrap();
                desktop.reset(&task, number, deadline()).unwrap();
                let found: BTreeSet<String> = desktop
                    .written(grid)
                    .into_iter()
                    .flatten()
                    .filter_map(|found| match found {
                        Written::Text(text) => Some(text),
                        Written::Unknown => None,
                    })
                    .collect();
                let widgets = desktop.widgets();
                for widget in widgets.iter().filter(|widget| matches!(widget.role, Role::Item | Role::Button))
                {
                    shown += 1;
                    written += usize::from(found.contains(widget.label.as_str()));
                }
            }
            assert!(shown > 200 && written * 100 >= shown * 97, "{suite:?}: {written} of {shown}");
        }
    }
}
