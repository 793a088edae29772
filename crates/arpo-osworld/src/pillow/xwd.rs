//! Screen dumps of X11 (`xwd`), read as OSWorld-Verified reads them.

use super::{Mode, PillowImage};
use crate::error::MetricError;

/// Whether a file is one.
pub fn is_dump(bytes: &[u8]) -> bool {
    const VERSION: u32 = 7;
    number(bytes, 1) == Some(VERSION) && number(bytes, 0).is_some_and(|size| (100..10_000).contains(&size))
}

/// The image: with 32 bits a pixel blue comes first, with 24 bits red.
pub fn decode(bytes: &[u8]) -> Result<PillowImage, MetricError> {
    let field = |at: usize| number(bytes, at).map(|value| value as usize);
    let broken = || MetricError::raises("a screen dump that is cut off");
    let [Some(header), Some(depth), Some(width), Some(height)] = [0, 3, 4, 5].map(field) else {
        return Err(broken());
    };
    let samples = match depth {
        32 => 4,
        24 => 3,
        other => return Err(MetricError::raises(format!("a screen dump of {other} bits"))),
    };
    let size = width.checked_mul(height).and_then(|pixels| pixels.checked_mul(samples)).ok_or_else(broken)?;
    let content = bytes.get(header..).and_then(|rest| rest.get(..size)).ok_or_else(broken)?;
    let pixels = content.chunks_exact(samples).flat_map(|pixel| match pixel {
        [blue, green, red, _] => [*red, *green, *blue],
        _ => [pixel[0], pixel[1], pixel[2]],
    });
    Ok(PillowImage { mode: Mode::Rgb, is_palette: false, width, height, pixels: pixels.collect() })
}

/// A number of the header.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at * 4..at * 4 + 4)?;
    field.try_into().ok().map(u32::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_are_read_in_both_depths() {
        let dump = |depth: u32, pixels: &[u8]| {
            let mut bytes = vec![0; 100];
            for (at, value) in [100, 7, 2, depth, 2, 1].into_iter().enumerate() {
                bytes[at * 4..at * 4 + 4].copy_from_slice(&u32::to_be_bytes(value));
            }
            bytes.extend_from_slice(pixels);
            bytes
        };
        let deep = dump(32, &[1, 2, 3, 0, 4, 5, 6, 0]);
        assert!(is_dump(&deep) && !is_dump(b"\x89PNG\r\n\x1a\n"));
        assert_eq!(decode(&deep).unwrap().pixels, [3, 2, 1, 6, 5, 4]);
        assert_eq!(decode(&dump(24, &[1, 2, 3, 4, 5, 6])).unwrap().pixels, [1, 2, 3, 4, 5, 6]);
        assert!(decode(&deep[..deep.len() - 1]).is_err() && decode(&dump(8, &[])).is_err());
    }
}
