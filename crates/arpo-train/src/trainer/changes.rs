//! A run that is resumed with another configuration: what differs is reported, and updates that were planned with a
//! configuration of other results are dropped.

use super::state::RunState;
use crate::TrainError;
use crate::run::RunFolder;
use crate::run::config_changes::may_change;
use crate::run::events::{Notice, RunEvent};
use crate::run::folder::{ConfigChange, config_changes};
use arpo_core::config::{Config, Layer, resolve};

/// Reports how a configuration differs from the run's previous one, and drops the updates of an unfinished iteration that it
/// does not fit. Stores nothing: the configuration may turn out not to work.
pub(super) fn apply(
    config: &Config,
    folder: &RunFolder,
    state: &mut RunState,
    observer: &mut dyn FnMut(RunEvent),
) -> Result<Vec<ConfigChange>, TrainError> {
    let was = read(&folder.config()?.unwrap_or_default())?;
    let changes = config_changes(&was.to_toml(), &config.to_toml());
    let dropped = drop_outdated(state, &was, config);
    for message in changes.iter().map(ConfigChange::description).chain(dropped) {
        observer(RunEvent::Notice(Notice { message }));
    }
    Ok(changes)
}

/// Drops the remaining updates of an unfinished iteration if it was planned with a configuration of other results; returns a
/// line that says so. `was` is the run's previous configuration.
fn drop_outdated(state: &mut RunState, was: &Config, config: &Config) -> Option<String> {
    let number = state.iteration + 1;
    let unfinished = state.unfinished.as_mut()?;
    // the previous configuration may be younger than the iteration: that of a process which was killed before it saved anything
    let planned_with = unfinished.planned_with.as_deref().and_then(|text| read(text).ok());
    let planned_with = planned_with.as_ref().unwrap_or(was);
    let changes = config_changes(&planned_with.to_toml(), &config.to_toml());
    if changes.iter().all(|change| may_change(&change.key)) {
        return None;
    }
    unfinished.samples.clear();
    unfinished.planned_with = Some(config.to_toml());
    Some(format!("the remaining updates of iteration {number} are dropped"))
}

/// A stored configuration. Keys that did not exist when it was written have their defaults.
fn read(text: &str) -> Result<Config, TrainError> {
    let config = Layer::toml("config.toml", text).and_then(|layer| resolve(&[layer]));
    config.map_err(|error| TrainError::Configuration(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchReport, Sample};
    use crate::collect::CollectReport;
    use crate::trainer::state::IterationInProgress;
    use crate::updates::Updates;
    use arpo_core::replay::{Member, Origin};
    use arpo_core::task::TaskId;
    use arpo_core::trajectory::Trajectory;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn config(sets: &[&str]) -> Config {
        let sets = sets.iter().map(|set| Layer::set(set).unwrap());
        resolve(&std::iter::once(Layer::preset("quick").unwrap()).chain(sets).collect::<Vec<_>>()).unwrap()
    }

    /// A run that was stopped between two updates of its fifth iteration.
    fn stopped(planned_with: Option<&Config>) -> RunState {
        let task = TaskId::new("t");
        let trajectory = Arc::new(Trajectory::without_turns(4, &task, 0, 1.0));
        let member = Member { trajectory, origin: Origin::Fresh {} };
        let unfinished = IterationInProgress {
            planned_with: planned_with.map(Config::to_toml),
            samples: vec![Sample { member, advantage: 1.0, step_advantages: vec![] }],
            updates: Updates::default(),
            batch: BatchReport::default(),
            collected: CollectReport::default(),
            tasks: BTreeMap::new(),
            staleness: 0,
            faults: BTreeMap::new(),
            collect_seconds: 0.0,
            learn_seconds: 0.0,
        };
        RunState { iteration: 4, unfinished: Some(Box::new(unfinished)), ..RunState::new([task], 0) }
    }

    fn samples(state: &RunState) -> usize {
        state.unfinished.as_ref().map_or(0, |unfinished| unfinished.samples.len())
    }

    #[test]
    fn updates_that_were_planned_with_another_configuration_are_dropped_once() {
        let (before, after) = (config(&[]), config(&["seed=3"]));
        // the second time, the process that was resumed with the change was killed: the folder has the new one already
        for was in [&before, &after] {
            let mut state = stopped(Some(&before));
            let message = drop_outdated(&mut state, was, &after);
            assert_eq!(message.as_deref(), Some("the remaining updates of iteration 5 are dropped"));
            assert_eq!(samples(&state), 0);
            assert_eq!(drop_outdated(&mut state, &after, &after), None, "said once");
        }
    }

    #[test]
    fn updates_stay_if_results_stay() {
        let planned_with = config(&[]);
        for sets in [vec![], vec!["model.memory_gib=8", "iterations=200"]] {
            let mut state = stopped(Some(&planned_with));
            assert_eq!(drop_outdated(&mut state, &planned_with, &config(&sets)), None, "{sets:?}");
            assert_eq!(samples(&state), 1, "{sets:?}");
        }
        // changed, killed, and changed back
        let mut state = stopped(Some(&planned_with));
        assert_eq!(drop_outdated(&mut state, &config(&["seed=3"]), &planned_with), None);
        assert_eq!(samples(&state), 1);
    }

    #[test]
    fn a_state_of_an_earlier_version_was_planned_with_the_stored_configuration() {
        let (before, after) = (config(&[]), config(&["seed=3"]));
        let written = serde_json::to_value(stopped(None).unfinished.unwrap()).unwrap();
        assert!(written.get("planned_with").is_none(), "{written}");
        let state = RunState { unfinished: serde_json::from_value(written).unwrap(), ..stopped(None) };
        assert_eq!(drop_outdated(&mut state.clone(), &before, &before), None);
        assert!(drop_outdated(&mut state.clone(), &before, &after).is_some());
    }
}
