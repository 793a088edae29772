//! How a desktop looks: its profile, size, colours, font and order of widgets.

use serde::{Deserialize, Serialize};

/// Which layout the screen has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Small: one window at a time on a grid of 56x28 pixels, text on the model's patch grid.
    Pocket,
    /// Windows that overlap, a task bar.
    Desktop,
}

/// Light or dark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Theme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

impl Theme {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Light, Self::Dark];

    /// Its name on the command line.
    pub fn key(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// The font of a desktop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Font {
    /// The pocket font, doubled on large screens.
    Pixel,
    /// egui's proportional font.
    Proportional,
    /// egui's fixed-width font.
    Monospace,
}

impl Font {
    /// All.
    pub const ALL: [Self; 3] = [Self::Pixel, Self::Proportional, Self::Monospace];

    /// Its name on the command line.
    pub fn key(self) -> &'static str {
        match self {
            Self::Pixel => "pixel",
            Self::Proportional => "proportional",
            Self::Monospace => "monospace",
        }
    }
}

/// What a screen looks like; `None` means that the seed of the episode decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScreenOptions {
    /// The layout.
    pub profile: Profile,
    /// In pixels; the pocket profile needs multiples of 56.
    pub width: u32,
    /// In pixels; the pocket profile needs multiples of 28.
    pub height: u32,
    /// The colours.
    pub theme: Option<Theme>,
    /// The font of the desktop profile.
    pub font: Option<Font>,
    /// Order of buttons and entries, empty cells, window positions and open windows vary with the seed.
    pub jitter: bool,
    /// Colours fade across the screen from left to right and from top to bottom, which tells a small model the position.
    pub tint: bool,
}

impl Default for ScreenOptions {
    fn default() -> Self {
        Self::pocket()
    }
}

impl ScreenOptions {
    /// The pocket suite's screen: 3 by 5 cells.
    pub fn pocket() -> Self {
        let (width, height) = (168, 140);
        Self {
            profile: Profile::Pocket,
            width,
            height,
            theme: Some(Theme::Light),
            font: None,
            jitter: true,
            tint: true,
        }
    }

    /// A desktop of a size: 640x480, 1280x720, 1920x1080 or anything between.
    pub fn desktop(width: u32, height: u32) -> Self {
        let (theme, font) = (None, None);
        Self { profile: Profile::Desktop, width, height, theme, font, jitter: true, tint: false }
    }

    /// Checks that the profile can be drawn at this size.
    pub fn check(&self) -> Result<(), String> {
        let (width, height) = (self.width, self.height);
        match self.profile {
            Profile::Pocket => {
                let cells = width.is_multiple_of(CELL.0) && height.is_multiple_of(CELL.1);
                let fits = (3..=5).contains(&(width / CELL.0)) && (4..=7).contains(&(height / CELL.1));
                if cells && fits {
                    return Ok(());
                }
                Err(format!(
                    "a pocket screen is 3 to 5 cells of 56 pixels wide and 4 to 7 cells of 28 pixels high, \
                     not {width}x{height}"
                ))
            }
            Profile::Desktop if (640..=3840).contains(&width) && (480..=2160).contains(&height) => Ok(()),
            Profile::Desktop => {
                Err(format!("a desktop screen is from 640x480 to 3840x2160 pixels, not {width}x{height}"))
            }
        }
    }

    /// The look of one episode.
    pub fn look(&self, seed: u64) -> Look {
        let draw = |what: &str, of: u64| seeded_hash(seed, what) % of;
        let theme = self.theme.unwrap_or(if draw("theme", 2) == 0 { Theme::Light } else { Theme::Dark });
        let font = self.font.unwrap_or(match draw("font", 4) {
            0 => Font::Monospace,
            1 => Font::Pixel,
            _ => Font::Proportional,
        });
        let order = if self.jitter { Some(seed) } else { None };
        let (width, height) = (self.width, self.height);
        Look { profile: self.profile, width, height, theme, font, order, tint: self.tint }
    }
}

/// A pocket cell: two merged patches wide, one high.
pub const CELL: (u32, u32) = (56, 28);

/// The look of one episode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// The layout.
    pub profile: Profile,
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// The colours.
    pub theme: Theme,
    /// The font.
    pub font: Font,
    /// The seed of the order of buttons and entries; none for the order in the source.
    pub order: Option<u64>,
    /// Colours fade across the screen.
    pub tint: bool,
}

impl Look {
    /// True for the pocket profile.
    pub fn pocket(&self) -> bool {
        self.profile == Profile::Pocket
    }

    /// How much larger than at 640x480 everything is.
    pub fn scale(&self) -> f32 {
        match self.height {
            0..600 => 1.0,
            600..900 => 1.25,
            _ => 1.75,
        }
    }

    /// A hash of a name that is constant within an episode; 0 where the order is fixed.
    pub(crate) fn seeded_hash(&self, name: &str) -> u64 {
        self.order.map_or(0, |seed| seeded_hash(seed, name))
    }
}

/// A hash of a seed and a name (FNV-1a, then a finaliser): for orders and colours, where a stream of random draws
/// would shift with every new entry.
pub(crate) fn seeded_hash(seed: u64, name: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 33
}
