//! Writes the listed tasks into the crate's `tasks` folder, after a template was changed.

use arpo_env::tasks::{Split, Suite, listing_path};
use std::path::Path;

fn main() -> std::io::Result<()> {
    for suite in Suite::ALL {
        for split in [Split::Train, Split::HeldOut] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(listing_path(suite, split));
            std::fs::write(path, suite.listing(split))?;
        }
    }
    Ok(())
}
