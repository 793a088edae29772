//! The pocket font: crisp 5x9 bitmaps in cells of 6x11 pixels, drawn here and handed to egui glyph by glyph.
//!
//! Printable ASCII and the Latin-1 letters, accented ones composed of a letter and an accent. egui lays the text
//! out as it does any other; only the bitmap of each character comes from the table, so it is exact at its
//! native size on every machine. Characters missing from the table fall back to egui's own fonts.

use egui::epaint::text::{FontPriority, GlyphBitmap, GlyphRasterizer, RasterizedGlyph};
use egui::{Color32, ColorImage, vec2};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Width of a character, the gap to the next included.
pub(crate) const CELL_WIDTH: usize = 6;
/// Height of a character: two rows for accents, seven above the base line, two below.
pub(crate) const CELL_HEIGHT: usize = 11;

/// Rows for accents above capitals.
const ACCENT_ROWS: usize = 2;
/// Rows from the top of the cell to the base line.
const BASE_LINE: usize = 9;

/// One line per character: the character and its nine rows.
const TABLE: &str = include_str!("glyphs.txt");

/// Accents by name, three columns in the middle of the cell, top row first.
const ACCENTS: &[(char, [&str; 2])] = &[
    ('`', [".#...", "..#.."]),
    ('\'', ["...#.", "..#.."]),
    ('^', ["..#..", ".#.#."]),
    ('~', [".##.#", "#.##."]),
    ('"', [".#.#.", "....."]),
    ('o', [".##..", ".##.."]),
];

/// Letters that are a base and an accent.
const COMPOSED: &str = "ÀA` ÁA' ÂA^ ÃA~ ÄA\" ÅAo ÈE` ÉE' ÊE^ ËE\" ÌI` ÍI' ÎI^ ÏI\" ÑN~ ÒO` ÓO' ÔO^ ÕO~ ÖO\" ÙU` \
    ÚU' ÛU^ ÜU\" ÝY' àa` áa' âa^ ãa~ äa\" åao èe` ée' êe^ ëe\" ìı` íı' îı^ ïı\" ñn~ òo` óo' ôo^ õo~ öo\" ùu` \
    úu' ûu^ üu\" ýy' ÿy\"";

/// Letters with a hook below.
const CEDILLA: &[(char, char)] = &[('Ç', 'C'), ('ç', 'c')];

/// Rows of a character, one byte per row, the leftmost pixel in bit 4.
type Bitmap = [u8; CELL_HEIGHT];

fn row_bits(row: &str) -> u8 {
    row.bytes().fold(0, |bits, pixel| bits << 1 | u8::from(pixel == b'#'))
}

fn table() -> &'static BTreeMap<char, Bitmap> {
    static GLYPHS: OnceLock<BTreeMap<char, Bitmap>> = OnceLock::new();
    GLYPHS.get_or_init(|| {
        let mut glyphs = BTreeMap::from([(' ', [0; CELL_HEIGHT])]);
        for line in TABLE.lines() {
            let mut parts = line.split(' ');
            let Some(character) = parts.next().and_then(|name| name.chars().next()) else { continue };
            let mut bitmap = [0; CELL_HEIGHT];
            for (row, bits) in bitmap[ACCENT_ROWS..].iter_mut().zip(parts) {
                *row = row_bits(bits);
            }
            glyphs.insert(character, bitmap);
        }
        for word in COMPOSED.split_whitespace() {
            let mut parts = word.chars();
            let (Some(letter), Some(base), Some(accent)) = (parts.next(), parts.next(), parts.next()) else {
                continue;
            };
            let Some((_, rows)) = ACCENTS.iter().find(|(name, _)| *name == accent) else { continue };
            let mut bitmap = glyphs.get(&base).copied().unwrap_or_default();
            // small letters leave two more rows free: the accent comes down to them
            let top = usize::from(!base.is_uppercase());
            for (offset, row) in rows.iter().enumerate() {
                bitmap[top + offset] |= row_bits(row);
            }
            glyphs.insert(letter, bitmap);
        }
        for (letter, base) in CEDILLA {
            let mut bitmap = glyphs.get(base).copied().unwrap_or_default();
            bitmap[BASE_LINE] = row_bits("..#..");
            bitmap[BASE_LINE + 1] = row_bits(".##..");
            glyphs.insert(*letter, bitmap);
        }
        glyphs
    })
}

fn is_set_in(bitmap: &Bitmap, x: usize, y: usize) -> bool {
    x < CELL_WIDTH - 1 && bitmap[y] >> (CELL_WIDTH - 2 - x) & 1 == 1
}

/// Whether a pixel of a character's cell is drawn.
#[cfg(test)]
pub(crate) fn is_set(character: char, x: usize, y: usize) -> bool {
    table().get(&character).is_some_and(|bitmap| is_set_in(bitmap, x, y))
}

/// Gives egui the bitmaps, ahead of any font, at an integer scale: `scale` screen pixels per pixel.
pub(crate) fn rasterizer(scale: usize) -> GlyphRasterizer {
    GlyphRasterizer::new("arpo_env::pocket", move |request| {
        let mut characters = request.cluster.chars();
        let bitmap = table().get(&characters.next()?)?;
        if characters.next().is_some() {
            return None;
        }
        let size = [CELL_WIDTH * scale, CELL_HEIGHT * scale];
        let pixel = |index: usize| {
            let (x, y) = (index % size[0] / scale, index / size[0] / scale);
            if is_set_in(bitmap, x, y) { Color32::WHITE } else { Color32::TRANSPARENT }
        };
        let image = ColorImage::new(size, (0..size[0] * size[1]).map(pixel).collect());
        let offset_px = vec2(0.0, -((BASE_LINE * scale) as f32));
        let bitmap = GlyphBitmap { image, offset_px, is_color: false };
        Some(RasterizedGlyph { bitmap, advance_px: size[0] as f32 })
    })
    .with_priority(FontPriority::Highest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ascii_and_latin_letters_are_there_and_differ() {
        let wanted = (' '..='~').chain(('À'..='ÿ').filter(|c| c.is_alphabetic()));
        let mut bitmaps = BTreeSet::new();
        for character in wanted {
            assert!(table().contains_key(&character), "{character}");
            assert!(bitmaps.insert(table()[&character]), "{character} looks like another one");
        }
    }

    #[test]
    fn letters_look_like_themselves() {
        let drawn: Vec<String> = table()[&'é'].iter().map(|row| format!("{row:05b}")).collect();
        assert_eq!(drawn[1], "00010");
        assert_eq!(drawn[6], "11111");
    }
}
