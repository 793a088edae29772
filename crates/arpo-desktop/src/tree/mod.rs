//! The tree of accessible things.
