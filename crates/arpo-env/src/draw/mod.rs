//! Drawing and input: egui passes over a scene, and the pixels of the last one.

pub(crate) mod font;
mod palette;
mod pocket_widgets;
pub(crate) mod raster;
pub(crate) mod display;
mod widgets;
