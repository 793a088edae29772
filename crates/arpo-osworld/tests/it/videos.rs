//! Videos are compared frame by frame, decoded in the guest.

use crate::fake_guest::FakeGuest;
use crate::golden::folder;
use arpo_osworld::error::MetricError;
use arpo_osworld::guest::Output;
use arpo_osworld::host::FFMPEG;
use arpo_osworld::metrics::{self, Settings};
use arpo_osworld::sandbox::{GuestSandbox, Sandbox};
use arpo_osworld::state::{FileState, State};
use arpo_osworld::video::frames_by_host;
use serde_json::{Map, json};

/// Decodes what is a video in motion JPEG: its frames are JPEG files one after the other.
pub(crate) struct MotionJpeg;

impl Sandbox for MotionJpeg {
    fn run_test(&self, _: &FileState, _: &[&FileState], _: &str) -> Result<f64, MetricError> {
        Err(MetricError::Unsupported("no guest in this test".into()))
    }

    fn video_frames(
        &self,
        video: &FileState,
        limit: usize,
        each: &mut dyn FnMut(&[u8]) -> Result<(), MetricError>,
    ) -> Result<(), MetricError> {
        let starts = |at: &usize| video.bytes[*at..].starts_with(&[0xff, 0xd8, 0xff]);
        for start in (0..video.bytes.len()).filter(starts).take(limit) {
            each(&video.bytes[start..])?;
        }
        Ok(())
    }
}

fn video(frames: &[u8]) -> State {
    let mut bytes = Vec::new();
    for shade in frames {
        let picture = image::RgbImage::from_fn(48, 32, |x, y| {
            image::Rgb([
                if x < 24 { *shade } else { 10 },
                (y * 7) as u8,
                if x > y { 255 - *shade } else { 0 },
            ])
        });
        let mut file = std::io::Cursor::new(Vec::new());
        picture.write_to(&mut file, image::ImageFormat::Jpeg).unwrap();
        bytes.extend(file.into_inner());
    }
    State::File(FileState::new("a.avi", bytes))
}

fn score(found: &State, wanted: &State, options: serde_json::Value) -> f64 {
    let settings = Settings { sandbox: Some(&MotionJpeg), ..Settings::default() };
    let serde_json::Value::Object(options) = options else { panic!("options are an object") };
    metrics::score("compare_videos", found, Some(wanted), &options, &settings).unwrap()
}

#[test]
fn a_few_frames_may_differ_and_the_lengths_may_not() {
    let gold = video(&[200; 12]);
    let with_others = |others: usize| {
        let shades: Vec<u8> = (0..12).map(|at| if at < others { 0 } else { 200 }).collect();
        video(&shades)
    };
    assert!(score(&gold, &gold, json!({})) > 0.5 && score(&with_others(5), &gold, json!({})) > 0.5);
    assert!(score(&with_others(6), &gold, json!({})) < 0.5);
    assert!(score(&video(&[200; 11]), &gold, json!({})) < 0.5);
    assert!(score(&video(&[200; 11]), &gold, json!({"max_frames_to_check": 10})) > 0.5);
    assert!(score(&State::Absent("none.mp4".into()), &gold, json!({})) < 0.5);
}

#[test]
fn frames_are_decoded_in_the_guest() {
    let mut guest = FakeGuest::default();
    guest.outputs.insert("/usr/bin/ffmpeg".into(), Output::default());
    let score = |guest: &FakeGuest| {
        let sandbox = GuestSandbox::new(guest);
        let settings = Settings { sandbox: Some(&sandbox), ..Settings::default() };
        let one = State::File(FileState::new("a.mp4", b"video".to_vec()));
        metrics::score("compare_videos", &one, Some(&one), &Map::new(), &settings)
    };
    assert!(score(&guest).is_ok());
    let log = guest.log();
    assert!(log.iter().any(|call| call.contains("\"timeout\",\"90\",\"/usr/bin/ffmpeg\"")), "{log:?}");
    assert!(log.iter().any(|call| call.starts_with("write /tmp/frames-") && call.ends_with(" 5 bytes")));
    assert!(log.iter().any(|call| call.contains("\"rm\",\"-rf\",\"/tmp/frames-")));
    // whoever removed it: a score, not a task that cannot be judged
    let without = score(&FakeGuest::default()).unwrap_err();
    let why = "videos are decoded in the desktop, which has no /usr/bin/ffmpeg";
    assert_eq!(without, MetricError::raises(why));
}

/// Skipped where this host has no ffmpeg.
#[test]
fn every_frame_is_decoded_once_on_a_host_with_ffmpeg() {
    if !FFMPEG.is_installed() {
        return;
    }
    for (name, wanted) in [("media_gold.avi", 12), ("media_shorter.avi", 11)] {
        let bytes = std::fs::read(folder().join("files").join(name)).unwrap();
        let decoded = |limit: usize| {
            let mut frames = 0;
            let mut each = |frame: &[u8]| {
                assert!(frame.starts_with(b"\x89PNG"), "{name}");
                frames += 1;
                Ok(())
            };
            frames_by_host(&FileState::new(name, bytes.clone()), limit, &mut each).unwrap();
            frames
        };
        assert_eq!((decoded(100), decoded(5)), (wanted, 5), "{name}");
    }
}
