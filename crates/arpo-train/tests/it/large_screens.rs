//! Collecting on desktops with large screens: how much of them stays decoded, and whose time decoding is.

use crate::toy::{groups, options};
use arpo_core::action::Action;
use arpo_core::config::Order;
use arpo_core::task::Task;
use arpo_env::environment::{Environment, EnvironmentError, Screen, StepResult, encode_png, ends_episode};
use arpo_suite::EnvironmentSource;
use arpo_train::collect::{CollectOptions, Collector};
use arpo_train::episode::{CompletedEpisode, EpisodeScreen, History};
use arpo_train::policy::ScriptedPolicy;
use image::{Rgb, RgbImage};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A desktop that shows the same screens in every episode.
struct Slides {
    screens: Arc<[Screen]>,
    shown: usize,
}

impl Slides {
    fn screen(&self) -> Result<Screen, EnvironmentError> {
        let screen = &self.screens[self.shown % self.screens.len()];
        // as it comes from a guest: nothing is decoded yet
        screen.png().map_or_else(|| Ok(screen.clone()), |png| Screen::from_png(Arc::clone(png)))
    }
}

impl Environment for Slides {
    fn reset(&mut self, _: &Task, _: u64, _: Instant) -> Result<Screen, EnvironmentError> {
        self.shown = 0;
        self.screen()
    }

    fn step(&mut self, action: &Action, _: Instant) -> Result<StepResult, EnvironmentError> {
        self.shown += 1;
        Ok(StepResult { screen: self.screen()?, terminated: ends_episode(action), truncated: false })
    }

    fn evaluate(&mut self, _: Instant) -> Result<f64, EnvironmentError> {
        Ok(1.0)
    }
}

fn slides(screens: Vec<Screen>) -> Arc<dyn EnvironmentSource> {
    let screens: Arc<[Screen]> = screens.into();
    Arc::new(
        move |_| Ok(Box::new(Slides { screens: Arc::clone(&screens), shown: 0 }) as Box<dyn Environment>),
    )
}

/// Twice as large as the largest that stays decoded.
fn large(number: u8) -> RgbImage {
    RgbImage::from_fn(500, 350, |x, y| Rgb([number + 1, x as u8, y as u8]))
}

/// Of an episode's screens, only the last two may be decoded while it runs, and none when it is over, however they came.
#[test]
fn large_screens_are_kept_encoded() {
    let as_pixels = |number: u8| Screen::new(large(number));
    let as_png = |number: u8| Screen::from_png(encode_png(&large(number)).unwrap()).unwrap();
    for (form, screen) in [("pixels", &as_pixels as &dyn Fn(u8) -> Screen), ("PNG", &as_png)] {
        let is_decoded = |screen: &EpisodeScreen| screen.bytes() >= 500 * 350 * 3;
        let script = move |history: &History| {
            let screens = &history.screens;
            let earlier = &screens[..screens.len().saturating_sub(2)];
            assert!(!earlier.iter().any(is_decoded), "{form}, turn {}", screens.len());
            for (number, screen) in screens.iter().enumerate() {
                assert_eq!(*screen.image().unwrap(), large(number as u8), "{form}");
            }
            // one episode ends without an evaluation
            let last = screens.len() == 4;
            Ok(match history.plan.sampling_seed % 3 {
                0 if last => "nothing",
                _ if last => "Action: finished()",
                _ => "Action: wait()",
            }
            .to_owned())
        };
        let mut policy = ScriptedPolicy::new(script, Duration::ZERO);
        let source = slides((0..6).map(screen).collect());
        let mut collector = Collector::new(source, 2, options(Order::Arrival));
        let collected = collector.collect(&mut policy, groups(2, 4, 0), &mut |_| {}).unwrap();
        assert_eq!(collected.report.episodes, 8);
        for episode in collected.groups.iter().flat_map(|group| &group.episodes) {
            assert_eq!(episode.screens.len(), 4);
            for (number, screen) in episode.screens.iter().enumerate() {
                assert!(!is_decoded(screen), "{form} {number}");
                assert_eq!(*screen.image().unwrap(), large(number as u8));
            }
        }
    }
}

#[test]
fn screens_of_ended_episodes_can_be_given_up() {
    let collect = |keep_screens: bool| {
        let script = |history: &History| {
            let turn = history.screens.len();
            assert!(history.screens.iter().all(|screen| screen.image().is_ok()), "turn {turn}");
            Ok(if turn == 3 { "Action: finished()" } else { "Action: wait()" }.to_owned())
        };
        let mut policy = ScriptedPolicy::new(script, Duration::ZERO);
        let source = slides((0..6).map(|number| Screen::new(large(number))).collect());
        let options = CollectOptions { keep_screens, ..options(Order::Arrival) };
        let collected =
            Collector::new(source, 2, options).collect(&mut policy, groups(2, 2, 0), &mut |_| {}).unwrap();
        let groups = collected.groups.into_iter();
        groups.flat_map(|group| group.episodes).collect::<Vec<CompletedEpisode>>()
    };
    let (kept, given_up) = (collect(true), collect(false));
    assert_eq!((kept.len(), given_up.len()), (4, 4));
    for (kept, given_up) in kept.iter().zip(&given_up) {
        assert_eq!(given_up.trajectory, kept.trajectory, "its references are the same");
        assert!(kept.screens.iter().all(|screen| screen.png().is_ok() && screen.bytes() > 0));
        for screen in &given_up.screens {
            assert!(screen.image().is_err() && screen.png().is_err() && screen.bytes() == 0);
        }
    }
}

/// A desktop that answers at once keeps its deadline, however long this program takes to decode the answer.
#[test]
fn decoding_is_not_the_desktops_time() {
    let huge = encode_png(&RgbImage::from_pixel(7000, 7000, Rgb([1, 2, 3]))).unwrap();
    let screens = vec![Screen::from_png(huge).unwrap()];
    let decoding = {
        let began = Instant::now();
        screens[0].image().unwrap();
        began.elapsed()
    };
    let limit = Duration::from_millis(50);
    assert!(decoding > limit, "decoding took {decoding:?} only: this test shows nothing");
    let mut policy = ScriptedPolicy::new(|_: &History| Ok("Action: finished()".into()), Duration::ZERO);
    let options = CollectOptions { reset: limit, step: limit, ..options(Order::Arrival) };
    let mut collector = Collector::new(slides(screens), 1, options);
    let collected = collector.collect(&mut policy, groups(1, 2, 0), &mut |_| {}).unwrap();
    assert_eq!((collected.report.episodes, collected.report.lost), (2, 0), "{:?}", collected.report.failures);
}
