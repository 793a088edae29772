//! The tree of accessible things on a desktop (AT-SPI), as the document that OSWorld's clients know.
//!
//! | to change | look in |
//! |---|---|
//! | what the document looks like | [`document`] |
//! | the names of roles and states | [`names`] |
//! | what applications are asked | [`bus`] |
//! | how far and how long is walked | [`walk`] |

pub mod bus;
pub mod document;
pub mod names;
pub mod walk;
