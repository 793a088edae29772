//! Samples of a sound file as librosa loads them: one channel, 22 050 a second.

use crate::error::MetricError;
use std::f64::consts::PI;
use std::io::Cursor;
use symphonia::core::codecs::audio::AudioDecoderOptions;
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, TrackType};
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;

/// What librosa resamples to.
pub const RATE_HZ: u32 = 22_050;
/// Half an hour; no recording of a task is longer.
const SAMPLES_LIMIT: usize = 48_000 * 1800;

/// Decodes a file.
pub fn load(bytes: &[u8]) -> Result<Vec<f32>, MetricError> {
    let broken = |error: &dyn std::fmt::Display| MetricError::raises(format!("not a recording: {error}"));
    let source =
        MediaSourceStream::new(Box::new(Cursor::new(bytes.to_vec())), MediaSourceStreamOptions::default());
    let mut format = symphonia::default::get_probe()
        .probe(&Hint::new(), source, FormatOptions::default(), MetadataOptions::default())
        .map_err(|error| broken(&error))?;
    let track = format.default_track(TrackType::Audio).ok_or_else(|| broken(&"no sound in it"))?;
    let parameters =
        track.codec_params.as_ref().and_then(|one| one.audio()).ok_or_else(|| broken(&"no codec"))?;
    let mut decoder = symphonia::default::get_codecs()
        .make_audio_decoder(parameters, &AudioDecoderOptions::default())
        .map_err(|error| broken(&error))?;
    let id = track.id;
    let (mut mono, mut rate) = (Vec::new(), RATE_HZ);
    let mut interleaved: Vec<f32> = Vec::new();
    while let Ok(Some(packet)) = format.next_packet() {
        if packet.track_id != id {
            continue;
        }
        match decoder.decode(&packet) {
            Ok(buffer) => {
                rate = buffer.spec().rate();
                let channels = buffer.spec().channels().count().max(1);
                interleaved.resize(buffer.samples_interleaved(), 0.0);
                buffer.copy_to_slice_interleaved(&mut interleaved);
                mono.extend(
                    interleaved
                        .chunks_exact(channels)
                        .map(|frame| frame.iter().sum::<f32>() / channels as f32),
                );
            }
            Err(Error::DecodeError(_)) => {}
            Err(_) => break,
        }
        if mono.len() > SAMPLES_LIMIT {
            break;
        }
    }
    if mono.is_empty() { Err(broken(&"no samples in it")) } else { Ok(resampled(&mono, rate)) }
}

/// Zero crossings of the kernel on each side.
const KERNEL_CROSSINGS: f64 = 32.0;

/// To librosa's rate, by a windowed sinc.
fn resampled(samples: &[f32], rate: u32) -> Vec<f32> {
    if rate == RATE_HZ || rate == 0 {
        return samples.to_vec();
    }
    let step = f64::from(rate) / f64::from(RATE_HZ);
    let cut = (1.0 / step).min(1.0);
    let reach = KERNEL_CROSSINGS / cut;
    let count = (samples.len() as f64 / step).ceil() as usize;
    let at = |index: usize| {
        let centre = index as f64 * step;
        let first = (centre - reach).ceil().max(0.0) as usize;
        let last = ((centre + reach).floor() as usize).min(samples.len() - 1);
        let weight = |input: usize| {
            let offset = input as f64 - centre;
            let angle = PI * offset * cut;
            let sinc = if angle.abs() < 1e-9 { 1.0 } else { angle.sin() / angle };
            let window = 0.5 + 0.5 * (PI * offset / reach).cos();
            cut * sinc * window
        };
        (first..=last).map(|input| f64::from(samples[input]) * weight(input)).sum::<f64>() as f32
    };
    (0..count).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tone_stays_a_tone() {
        let tone = |rate: f64, count: usize| {
            (0..count).map(|at| (2.0 * PI * 440.0 * at as f64 / rate).sin() as f32).collect::<Vec<_>>()
        };
        let from_44 = resampled(&tone(44_100.0, 8820), 44_100);
        let wanted = tone(f64::from(RATE_HZ), 4410);
        assert_eq!(from_44.len(), wanted.len());
        let worst =
            from_44.iter().zip(&wanted).skip(200).take(4000).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-3, "{worst}");
    }

    #[test]
    fn noise_is_no_recording() {
        assert!(load(b"").is_err());
        assert!(load(&[7; 3000]).is_err());
    }
}
