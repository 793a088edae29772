//! The accessibility tree of a desktop (AT-SPI), as the document that OSWorld's clients know.
//!
//! | to change | look in |
//! |---|---|
//! | what the document looks like | [`xml`] |
//! | the names of roles and states | [`names`] |
//! | calls to applications | [`bus`] |
//! | how the tree is walked, and its limits | [`walk`] |

pub mod bus;
pub mod names;
pub mod walk;
pub mod xml;
