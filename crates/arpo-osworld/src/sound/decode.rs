//! Samples of a sound file as librosa loads them: one channel, 22 050 a second.

use super::resample::resampled;
use crate::error::MetricError;
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
/// What recorders use. A file may claim any rate, and far ones would take all memory.
const RATES_HZ: std::ops::RangeInclusive<u32> = 1000..=768_000;

/// Decodes a file; one that holds no samples is none.
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
    let limit = SAMPLES_LIMIT as u64;
    if !RATES_HZ.contains(&rate) || mono.len() as u64 * u64::from(RATE_HZ) > limit * u64::from(rate) {
        return Err(broken(&format!("{} samples at {rate} a second", mono.len())));
    }
    Ok(resampled(&mono, rate, RATE_HZ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_no_recording() {
        assert!(load(b"").is_err());
        assert!(load(&[7; 3000]).is_err());
    }

    #[test]
    fn a_rate_that_would_take_all_memory_is_none() {
        let wav = |rate: u32| {
            let mut file = b"RIFF\x2c\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0".to_vec();
            file.extend(rate.to_le_bytes());
            file.extend(rate.wrapping_mul(2).to_le_bytes());
            file.extend(b"\x02\0\x10\0data\x08\0\0\0\0\x10\0\x20\0\x10\0\0");
            file
        };
        assert_eq!(load(&wav(RATE_HZ)).unwrap().len(), 4);
        assert_eq!(load(&wav(44_100)).unwrap().len(), 2);
        for rate in [1, 999, 1_000_000, u32::MAX] {
            assert!(load(&wav(rate)).is_err(), "{rate}");
        }
    }
}
