//! What is written where on a pocket screen, from the widget tree: the letters in each square of a grid, as the image tokens
//! of a model are.

use crate::draw::font::CELL_WIDTH;
use crate::layout::Widget;
use crate::layout::pocket::{TEXT, widget_corner};
use crate::look::CELL;
use crate::view::{Role, Value};

/// Side of a square in pixels: an image token of the models that are trained here, and a row of cells.
pub const SQUARE: u32 = CELL.1;

/// Places for letters in a square, from left to right.
pub const PLACES: usize = 5;

/// What a square of the screen shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Square {
    /// A letter, or nothing, at each place. A letter belongs to the square that its middle lies in.
    Letters([Option<char>; PLACES]),
    /// Something that the tree does not tell: typed text, which scrolls, or a slider.
    Unknown,
}

/// The squares of a screen, row by row.
pub fn squares(widgets: &[Widget], width: u32, height: u32) -> Vec<Square> {
    let columns = (width / SQUARE) as usize;
    let column_of = |x: f32| (x / SQUARE as f32) as usize;
    let mut squares = vec![Square::Letters([None; PLACES]); columns * (height / SQUARE) as usize];
    for widget in widgets {
        let corner = widget_corner(widget);
        let row = (corner.y / SQUARE as f32) as usize * columns;
        let Some(written) = written(widget) else {
            squares[row + column_of(corner.x)..=row + column_of(widget.rect[2])].fill(Square::Unknown);
            continue;
        };
        for (letter, left) in written {
            let middle = left + CELL_WIDTH as f32 / 2.0;
            let column = column_of(middle);
            let place = (middle as usize - column * SQUARE as usize) / CELL_WIDTH;
            if let Square::Letters(letters) = &mut squares[row + column] {
                letters[place.min(PLACES - 1)] = Some(letter);
            }
        }
    }
    squares
}

/// The letters on a widget with the left edge of each, as far as they are inside it; none if the tree does not tell.
fn written(widget: &Widget) -> Option<impl Iterator<Item = (char, f32)>> {
    let text = match (widget.role, &widget.value) {
        (Role::Slider | Role::Field | Role::Text, _) => return None,
        (Role::Menu, Value::Text(chosen)) => chosen,
        _ => &widget.label,
    };
    let (first, right) = (widget_corner(widget).x + TEXT.0, widget.rect[2]);
    let left_of = move |number: usize| first + (number * CELL_WIDTH) as f32;
    let letters = text.chars().enumerate().map(move |(number, letter)| (letter, left_of(number)));
    Some(letters.filter(move |(letter, left)| *letter != ' ' && left + CELL_WIDTH as f32 / 2.0 <= right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::font::{CELL_HEIGHT, is_set};
    use crate::embedded::EmbeddedDesktop;
    use crate::environment::{Environment, ends_episode};
    use crate::oracle::Oracle;
    use crate::tasks::Suite;
    use image::RgbImage;
    use std::time::{Duration, Instant};

    /// Whether a letter is in the picture with its left upper corner here: every pixel against the table of the font. The
    /// background is the gap to the next letter.
    fn is_drawn(letter: char, image: &RgbImage, left: u32, top: u32) -> bool {
        let pixel = |x: usize, y: usize| image.get_pixel(left + x as u32, top + y as u32).0;
        let gap = pixel(CELL_WIDTH - 1, 0);
        let differs =
            |x: usize, y: usize| pixel(x, y).iter().zip(gap).any(|(one, other)| one.abs_diff(other) > 30);
        (0..CELL_HEIGHT).all(|y| (0..CELL_WIDTH - 1).all(|x| differs(x, y) == is_set(letter, x, y)))
    }

    #[test]
    fn letters_are_drawn_where_the_tree_has_them() {
        let deadline = || Instant::now() + Duration::from_mins(1);
        let mut desktop = EmbeddedDesktop::new(Suite::Pocket.screen()).unwrap();
        let (mut letters, mut drawn) = (0, 0);
        for (number, template) in (0..).zip(Suite::Pocket.templates()) {
            let task = Suite::Pocket.further_task_of(&template, number).unwrap();
            let mut screen = desktop.reset(&task, number, deadline()).unwrap();
            let mut oracle = Oracle::new();
            for _ in 0..6 {
                let image = screen.image().unwrap();
                for widget in desktop.widgets().iter().filter(|widget| widget.enabled) {
                    let top = (widget_corner(widget).y + TEXT.1) as u32;
                    for (letter, left) in written(widget).into_iter().flatten() {
                        letters += 1;
                        drawn += u32::from(is_drawn(letter, &image, left as u32, top));
                    }
                }
                let action = oracle.next_action(&desktop);
                if ends_episode(&action) {
                    break;
                }
                screen = desktop.step(&action, deadline()).unwrap().screen;
            }
        }
        // the last letter of a long text may be cut off at the edge of its widget
        assert!(letters > 2_000 && drawn * 100 >= letters * 99, "{drawn} of {letters}");
    }

    #[test]
    fn a_letter_is_in_the_square_of_its_middle() {
        let widget = |role: Role, rect: [f32; 4]| Widget {
            id: "files:name".into(),
            role,
            label: "ab cdefg".into(),
            value: Value::None,
            rect,
            enabled: true,
            focused: false,
        };
        // in the second row: a name of a list, a field, and nothing
        let name = widget(Role::Item, [2.0, 40.0, 54.0, 55.0]);
        let field = widget(Role::Field, [58.0, 40.0, 110.0, 55.0]);
        let found = squares(&[name, field], 140, 56);
        let letters = |text: &str| {
            let mut places = text.chars().map(|letter| (letter != ' ').then_some(letter));
            Square::Letters(std::array::from_fn(|_| places.next().flatten()))
        };
        let nothing = letters("");
        assert_eq!(found[..5], [nothing; 5]);
        assert_eq!(
            found[5..],
            [letters("  ab"), letters(" cdef"), Square::Unknown, Square::Unknown, nothing]
        );
    }
}
