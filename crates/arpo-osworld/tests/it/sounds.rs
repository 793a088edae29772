//! Recordings: the same is the same, another is another, and what cannot be read is as each generation has it.

use arpo_core::generation::Generation;
use arpo_osworld::metrics::{self, Settings};
use arpo_osworld::state::{FileState, State};
use serde_json::Map;

/// A tone that sweeps up or down, as a WAV file of 16 bits.
fn wav(rate: u32, from_hz: f64, to_hz: f64) -> State {
    let count = rate / 2;
    let sample = |at: u32| {
        let time = f64::from(at) / f64::from(rate);
        let phase = from_hz * time + (to_hz - from_hz) * time * time;
        ((std::f64::consts::TAU * phase).sin() * 12_000.0) as i16
    };
    let data: Vec<u8> = (0..count).flat_map(|at| sample(at).to_le_bytes()).collect();
    let mut file = b"RIFF".to_vec();
    file.extend((36 + data.len() as u32).to_le_bytes());
    file.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    file.extend(rate.to_le_bytes());
    file.extend((rate * 2).to_le_bytes());
    file.extend(b"\x02\0\x10\0data");
    file.extend((data.len() as u32).to_le_bytes());
    file.extend(data);
    State::File(FileState::new("a.wav", file))
}

fn score(first: &State, second: &State, generation: Generation) -> Result<f64, String> {
    let settings = Settings { generation, sandbox: None };
    metrics::score("compare_audios", first, Some(second), &Map::new(), &settings)
        .map_err(|error| error.to_string())
}

#[test]
fn likeness_is_high_for_the_same_and_low_for_another() {
    let (up, down) = (wav(22_050, 200.0, 4000.0), wav(22_050, 4000.0, 200.0));
    let up_again = wav(44_100, 200.0, 4000.0);
    assert!(score(&up, &up, Generation::ArpoEra).unwrap() > 0.999_999);
    assert!(score(&up, &down, Generation::ArpoEra).unwrap() < 0.5);
    let (same, other) = (
        score(&up, &up_again, Generation::Verified).unwrap(),
        score(&up, &down, Generation::Verified).unwrap(),
    );
    assert!(same > 0.95 && other < same, "{same} {other}");
}

#[test]
fn what_cannot_be_read() {
    let noise = State::File(FileState::new("a.mp3", vec![1; 500]));
    let tone = wav(22_050, 200.0, 400.0);
    assert!(score(&noise, &tone, Generation::ArpoEra).is_err());
    assert!(score(&noise, &tone, Generation::Verified).unwrap() < 0.5);
    assert!(score(&noise, &noise, Generation::Verified).unwrap() > 0.5);
    assert!(score(&State::Null, &tone, Generation::Verified).unwrap() < 0.5);
}
