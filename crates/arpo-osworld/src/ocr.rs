//! The text of an image, read by this host's `tesseract`.
//!
//! The original reads it with a neural network of its own, whose mistakes no other reader makes: its tasks expect " Ls" where
//! the screen shows " ls". So texts are compared as a reader sees them: without case, and with l, I, 1 and | as one letter.

use crate::error::MetricError;
use crate::host::{Ending, TESSERACT};
use crate::pillow::PillowImage;
use std::ffi::OsStr;
use std::time::Duration;

/// Reading may take so long.
const LIMIT: Duration = Duration::from_mins(1);
/// Images with more pixels are not read: a screenshot has two million, for which the reader takes a second.
const PIXELS_LIMIT: usize = 16_000_000;
/// Tesseract's mode for text that is anywhere, in no order.
const SPARSE: &str = "11";

/// The words of an image with one blank between them.
pub fn words(image: &PillowImage) -> Result<String, MetricError> {
    if image.width.saturating_mul(image.height) > PIXELS_LIMIT {
        return Err(MetricError::raises(format!("an image of more than {PIXELS_LIMIT} pixels is not read")));
    }
    // Only pixels are passed on, in the plainest format: the image's file was an agent's.
    let rgb = image.to_rgb();
    let mut portable = format!("P6\n{} {}\n255\n", rgb.width, rgb.height).into_bytes();
    portable.extend_from_slice(&rgb.pixels);
    let arguments = ["stdin", "stdout", "-l", "eng", "--psm", SPARSE].map(OsStr::new);
    match TESSERACT.run(&arguments, &portable, LIMIT)? {
        (Ending::Succeeded, text) => Ok(crate::text::python::collapse_space(&String::from_utf8_lossy(&text))),
        (Ending::Failed, _) => Err(MetricError::raises("tesseract cannot read the image")),
        // Noise keeps the reader busy for minutes: an agent that leaves such an image does not get its episode repeated.
        (Ending::Late, _) => {
            let limit_s = LIMIT.as_secs();
            Err(MetricError::raises(format!("tesseract was not done with the image after {limit_s} s")))
        }
    }
}

/// Whether a text holds another, as far as a reader can tell.
pub fn holds(text: &str, part: &str) -> bool {
    as_seen(text).contains(&as_seen(part))
}

fn as_seen(text: &str) -> String {
    let seen = |letter: char| match letter {
        'I' | 'L' | '1' | '|' => 'l',
        other => other,
    };
    text.chars().map(seen).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pillow::Mode;

    #[test]
    fn letters_that_look_alike_are_one() {
        for seen in ["user@vm:~$ ls Desktop", "user@vm:~$ Ls", "$ 1s", "$ Is"] {
            assert!(holds(seen, " Ls") && holds(seen, "1s"), "{seen}");
        }
        assert!(!holds("user@vm:~$ cd", " Ls") && !holds("files", " Ls"));
    }

    #[test]
    fn a_small_i_is_no_l() {
        assert!(!holds("this is a list", " Ls"));
        assert!(!holds("this is it", "ls") && holds("tools", "ls"));
    }

    #[test]
    fn a_huge_image_is_not_read() {
        let huge =
            PillowImage { mode: Mode::L, is_palette: false, width: 4001, height: 4001, pixels: vec![] };
        assert!(matches!(words(&huge), Err(MetricError::Raises(_))));
    }
}
