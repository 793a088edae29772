//! What reading a document may cost: an agent's file can ask for far more work than it has bytes.

use crate::error::MetricError;

/// Operators that are carried out, those of a form each time it is drawn, and objects that are looked at.
const STEPS: usize = 4_000_000;
/// Bytes that streams and images are decoded to.
const BYTES: usize = 1 << 30;
/// Bytes that the operators of a content count for each of its own: they take more memory, and more time to take apart.
const OPERATORS_FACTOR: usize = 64;

/// What is left to be spent on a document.
pub(super) struct Budget {
    steps: usize,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { steps: STEPS, bytes: BYTES }
    }
}

impl Budget {
    /// One operator or object.
    pub(super) fn step(&mut self) -> Result<(), MetricError> {
        self.spend(1, 0)
    }

    /// A stream or an image of so many bytes.
    pub(super) fn decoded(&mut self, bytes: usize) -> Result<(), MetricError> {
        self.spend(0, bytes)
    }

    /// A content of so many bytes, whose operators are taken apart.
    pub(super) fn content(&mut self, bytes: usize) -> Result<(), MetricError> {
        self.spend(0, bytes.saturating_mul(OPERATORS_FACTOR))
    }

    /// After the first time that it is too much, everything is.
    fn spend(&mut self, steps: usize, bytes: usize) -> Result<(), MetricError> {
        if let (Some(steps), Some(bytes)) = (self.steps.checked_sub(steps), self.bytes.checked_sub(bytes)) {
            *self = Self { steps, bytes };
            Ok(())
        } else {
            *self = Self { steps: 0, bytes: 0 };
            Err(MetricError::raises("a PDF that takes too long to read"))
        }
    }
}
