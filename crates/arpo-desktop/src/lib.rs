//! What runs inside a desktop container, to be the guest that OSWorld's clients expect.
//!
//! | to change | look in |
//! |---|---|
//! | which Python clients send is carried out without Python | [`script`] |

pub mod script;
