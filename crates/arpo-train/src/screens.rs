//! The screenshots that trajectories refer to, each once, by their digests.

use crate::TrainError;
use arpo_core::trajectory::{Step, Trajectory};
use image::RgbImage;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Screenshots in memory.
#[derive(Debug, Default)]
pub struct Screens {
    by_digest: HashMap<String, Arc<RgbImage>>,
}

impl Screens {
    /// Keeps the screenshots of a trajectory's steps.
    pub fn add(&mut self, trajectory: &Trajectory, screens: &[Arc<RgbImage>]) {
        for (step, screen) in trajectory.steps.iter().zip(screens) {
            let digest = &step.observation.screenshot.digest;
            if !self.by_digest.contains_key(digest) {
                self.by_digest.insert(digest.clone(), Arc::clone(screen));
            }
        }
    }

    /// Keeps one screenshot.
    pub fn insert(&mut self, digest: String, screen: Arc<RgbImage>) {
        self.by_digest.insert(digest, screen);
    }

    /// The screenshots of steps, in order.
    pub fn of(&self, steps: &[Step]) -> Result<Vec<Arc<RgbImage>>, TrainError> {
        let one = |digest: &String| {
            let screen = self.by_digest.get(digest).map(Arc::clone);
            screen.ok_or_else(|| TrainError::Options(format!("screenshot {digest} is lost")))
        };
        steps.iter().map(|step| one(&step.observation.screenshot.digest)).collect()
    }

    /// One screenshot.
    pub fn get(&self, digest: &str) -> Option<&Arc<RgbImage>> {
        self.by_digest.get(digest)
    }

    /// Forgets what none of these trajectories shows.
    pub fn keep_only<'a>(&mut self, trajectories: impl Iterator<Item = &'a Trajectory>) {
        let steps = trajectories.flat_map(|trajectory| &trajectory.steps);
        let used: HashSet<&str> = steps.map(|step| step.observation.screenshot.digest.as_str()).collect();
        self.by_digest.retain(|digest, _| used.contains(digest.as_str()));
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_digest.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.by_digest.is_empty()
    }
}
