//! The files of the page, which are part of the program.

/// A file: its name, its type, its contents.
pub(crate) struct Asset {
    pub(crate) name: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) contents: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

macro_rules! asset {
    ($name:literal, $media_type:expr) => {
        Asset {
            name: $name,
            media_type: $media_type,
            contents: include_str!(concat!("../../assets/", $name)),
        }
    };
}

/// The page.
pub(crate) const PAGE: &str = include_str!("../../assets/index.html");

/// Everything the page loads.
pub(crate) const ASSETS: &[Asset] = &[
    asset!("style.css", "text/css; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
    asset!("main.js", SCRIPT),
    asset!("address.js", SCRIPT),
    asset!("api.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("plot.js", SCRIPT),
    asset!("curves.js", SCRIPT),
    asset!("overview.js", SCRIPT),
    asset!("now.js", SCRIPT),
    asset!("tasks.js", SCRIPT),
    asset!("task.js", SCRIPT),
    asset!("episodes.js", SCRIPT),
    asset!("group.js", SCRIPT),
    asset!("player.js", SCRIPT),
    asset!("marks.js", SCRIPT),
];

/// An asset by its name.
pub(crate) fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}
