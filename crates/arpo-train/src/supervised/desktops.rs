//! Work on embedded desktops, on all cores.

use crate::TrainError;
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::tasks::Suite;
use rayon::prelude::*;
use std::ops::Range;

/// Does the work of each number on a desktop of the suite, of which a thread uses one for many numbers. The results are in the
/// order of the numbers.
pub(super) fn on_desktops<T: Send>(
    suite: Suite,
    numbers: Range<u64>,
    work: impl Fn(&mut EmbeddedDesktop, u64) -> Result<T, TrainError> + Sync,
) -> Result<Vec<T>, TrainError> {
    let new_desktop = || EmbeddedDesktop::new(suite.screen());
    let results = numbers.into_par_iter().map_init(new_desktop, |desktop, number| match desktop {
        Ok(desktop) => work(desktop, number),
        Err(error) => Err(TrainError::Internal(error.to_string())),
    });
    results.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_numbers() {
        let width = Suite::Pocket.screen().width;
        let found =
            on_desktops(Suite::Pocket, 3..90, |desktop, number| Ok((number, desktop.options().width)));
        assert_eq!(found.unwrap(), (3..90).map(|number| (number, width)).collect::<Vec<_>>());
        let failed = on_desktops(Suite::Pocket, 0..90, |_, number| match number {
            70 => Err(TrainError::Internal("number 70".into())),
            _ => Ok(()),
        });
        assert_eq!(failed.unwrap_err().to_string(), "internal error: number 70");
    }
}
