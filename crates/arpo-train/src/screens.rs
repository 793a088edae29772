//! The screenshots that trajectories refer to, each once, by their digests.
//!
//! Those of the current iteration are in memory, large ones as PNG. Of those in the replay buffer, only a limited number of
//! bytes is; the others are in the run folder and are read on demand.

use crate::TrainError;
use crate::episode::EpisodeScreen;
use crate::run::screens::ScreenStore;
use arpo_core::trajectory::{ImageRef, Step, Trajectory};
use image::RgbImage;
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Screenshots in memory and on disk.
#[derive(Debug, Default)]
pub struct Screens {
    memory: Mutex<Memory>,
    /// The screenshots on disk.
    store: Option<Arc<ScreenStore>>,
    /// Bytes that [`Screens::keep_only`] leaves in memory, if there is a store.
    budget: usize,
}

#[derive(Debug, Default)]
struct Memory {
    by_digest: HashMap<String, Kept>,
    /// Digests by time of last use, least recently used first.
    by_use: BTreeMap<u64, String>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Kept {
    screen: EpisodeScreen,
    /// Its bytes when it was added.
    bytes: usize,
    used_at: u64,
}

impl Memory {
    fn get(&mut self, digest: &str) -> Option<EpisodeScreen> {
        let kept = self.by_digest.get_mut(digest)?;
        self.clock += 1;
        let name = self.by_use.remove(&kept.used_at)?;
        kept.used_at = self.clock;
        self.by_use.insert(self.clock, name);
        Some(kept.screen.clone())
    }

    fn insert(&mut self, digest: &str, screen: &EpisodeScreen) {
        if self.by_digest.contains_key(digest) {
            return;
        }
        self.clock += 1;
        let kept = Kept { screen: screen.clone(), bytes: screen.bytes(), used_at: self.clock };
        self.bytes += kept.bytes;
        self.by_use.insert(self.clock, digest.to_owned());
        self.by_digest.insert(digest.to_owned(), kept);
    }

    fn remove(&mut self, digest: &str) -> Option<Kept> {
        let kept = self.by_digest.remove(digest)?;
        self.by_use.remove(&kept.used_at);
        self.bytes -= kept.bytes;
        Some(kept)
    }

    /// Removes and returns the least recently used screenshots beyond a budget.
    fn overflow(&mut self, budget: usize) -> Vec<(String, Kept)> {
        let mut overflow = vec![];
        while self.bytes > budget
            && let Some(digest) = self.by_use.values().next().cloned()
            && let Some(kept) = self.remove(&digest)
        {
            overflow.push((digest, kept));
        }
        overflow
    }
}

impl Screens {
    /// With a store for screenshots beyond `budget` bytes.
    pub fn with_store(store: Arc<ScreenStore>, budget: usize) -> Self {
        Self { store: Some(store), budget, ..Self::default() }
    }

    /// Adds the screenshots of a trajectory's steps.
    pub fn add(&mut self, trajectory: &Trajectory, screens: &[EpisodeScreen]) {
        let mut memory = self.memory();
        for (step, screen) in trajectory.steps.iter().zip(screens) {
            memory.insert(&step.observation.screenshot.digest, screen);
        }
    }

    /// Adds a screenshot as a PNG, which is decoded when its pixels are needed.
    pub fn insert(&mut self, screenshot: &ImageRef, png: Arc<[u8]>) {
        self.memory().insert(&screenshot.digest, &EpisodeScreen::encoded(screenshot, png));
    }

    /// The screenshots of steps, in order, read from the store if they are not in memory. In parallel, because decoding a
    /// 1080p screen takes over 10 ms. What had to be decoded is not kept decoded: training needs it once.
    pub fn of(&self, steps: &[Step]) -> Result<Vec<Arc<RgbImage>>, TrainError> {
        let kept: Vec<Option<EpisodeScreen>> = {
            let mut memory = self.memory();
            steps.iter().map(|step| memory.get(&step.observation.screenshot.digest)).collect()
        };
        let wanted = kept.into_par_iter().zip(steps);
        wanted.map(|(kept, step)| self.pixels(kept, &step.observation.screenshot)).collect()
    }

    /// The PNG of a screenshot: as it is in memory or in the store, else encoded.
    pub fn png(&self, screenshot: &ImageRef) -> Result<Arc<[u8]>, TrainError> {
        let kept = self.memory().get(&screenshot.digest);
        match kept {
            Some(screen) => Ok(screen.png()?),
            None => Ok(self.store_of(screenshot)?.png(screenshot)?.into()),
        }
    }

    /// Not under the lock: decoding takes its time.
    fn pixels(
        &self,
        kept: Option<EpisodeScreen>,
        screenshot: &ImageRef,
    ) -> Result<Arc<RgbImage>, TrainError> {
        match kept {
            Some(screen) => Ok(screen.image()?),
            None => Ok(Arc::new(self.store_of(screenshot)?.get(screenshot)?)),
        }
    }

    /// The store, for a screenshot that is not in memory.
    fn store_of(&self, screenshot: &ImageRef) -> Result<&ScreenStore, TrainError> {
        let missing = || TrainError::Io(format!("screenshot {} is missing", screenshot.digest));
        self.store.as_deref().ok_or_else(missing)
    }

    /// A screenshot, if it is in memory. This does not count as a use.
    pub fn in_memory(&self, digest: &str) -> Option<EpisodeScreen> {
        Some(self.memory().by_digest.get(digest)?.screen.clone())
    }

    /// Puts a screenshot into the store, unless it is already there.
    pub fn put(&self, digest: &str, store: &ScreenStore) -> Result<(), TrainError> {
        // a screenshot that is not in memory is already in the store
        let kept = self.memory().get(digest);
        kept.map_or(Ok(()), |screen| Ok(store.put_encoded(digest, || screen.png())?))
    }

    /// Drops the screenshots that none of these trajectories shows, and moves those beyond the budget to the store.
    pub fn keep_only<'a>(
        &mut self,
        trajectories: impl Iterator<Item = &'a Trajectory>,
    ) -> Result<(), TrainError> {
        let steps = trajectories.flat_map(|trajectory| &trajectory.steps);
        let used: HashSet<&str> = steps.map(|step| step.observation.screenshot.digest.as_str()).collect();
        let mut memory = self.memory();
        let unused: Vec<String> =
            memory.by_digest.keys().filter(|digest| !used.contains(digest.as_str())).cloned().collect();
        for digest in &unused {
            memory.remove(digest);
        }
        let Some(store) = &self.store else { return Ok(()) };
        let overflow = memory.overflow(self.budget);
        drop(memory);
        // in parallel, because encoding a 1080p screen takes about 30 ms
        let put = |(digest, kept): &(String, Kept)| store.put_encoded(digest, || kept.screen.png());
        Ok(overflow.par_iter().try_for_each(put)?)
    }

    /// Number of screenshots in memory.
    pub fn len(&self) -> usize {
        self.memory().by_digest.len()
    }

    /// True if there are none in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arpo_core::task::TaskId;
    use arpo_core::trajectory::{EpisodeId, Observation, Outcome, PolicyVersion, TokenSpan};

    fn screen(number: u8) -> Arc<RgbImage> {
        Arc::new(RgbImage::from_fn(20, 10, |x, y| image::Rgb([number, x as u8, y as u8])))
    }

    /// An episode that shows these screens.
    fn trajectory(numbers: &[u8]) -> Trajectory {
        let step = |&number: &u8| Step {
            observation: Observation {
                screenshot: ImageRef { digest: format!("screen{number:03}"), width: 20, height: 10 },
            },
            response: String::new(),
            actions: vec![],
            span: TokenSpan { start: 0, end: 0 },
        };
        Trajectory {
            id: EpisodeId::new(0, &TaskId::new("t"), 0),
            task: TaskId::new("t"),
            policy_version: PolicyVersion(0),
            slices: vec![],
            steps: numbers.iter().map(step).collect(),
            sampler_logp: vec![],
            score: 1.0,
            well_formed: true,
            outcome: Outcome::Finished {},
        }
    }

    #[test]
    fn screenshots_beyond_the_budget_are_read_from_disk() {
        let folder = std::env::temp_dir().join(format!("arpo-screens-{}", std::process::id()));
        let store = Arc::new(ScreenStore::new(&folder));
        let mut screens = Screens::with_store(Arc::clone(&store), 3 * 600);
        let stored = trajectory(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let other = trajectory(&[100, 101]);
        for one in [&stored, &other] {
            let images: Vec<_> = one
                .steps
                .iter()
                .map(|step| step.observation.screenshot.digest[6..].parse().unwrap())
                .map(|number| EpisodeScreen::new(screen(number), None))
                .collect();
            screens.add(one, &images);
        }
        assert_eq!(screens.len(), 10, "those of an iteration are all in memory");
        // the two used last and the newest stay
        screens.of(&stored.steps[..2]).unwrap();
        screens.keep_only([&stored].into_iter()).unwrap();
        assert_eq!((screens.len(), screens.memory().bytes), (3, 1800));
        assert!(store.path("screen002").unwrap().exists() && !store.path("screen001").unwrap().exists());
        for (number, found) in screens.of(&stored.steps).unwrap().iter().enumerate() {
            assert_eq!(*found, screen(number as u8));
        }
        // as PNGs, from memory and from disk, and back
        let mut others = Screens::default();
        for step in &stored.steps {
            let screenshot = &step.observation.screenshot;
            others.insert(screenshot, screens.png(screenshot).unwrap());
        }
        assert_eq!(others.of(&stored.steps).unwrap(), screens.of(&stored.steps).unwrap());
        assert_eq!(screens.len(), 3, "reading keeps nothing");
        let lost = screens.of(&other.steps).unwrap_err().to_string();
        assert!(lost.contains("screen100"), "{lost}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
