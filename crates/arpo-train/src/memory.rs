//! How much memory this process uses, how much is available, and errors when it runs out.

use crate::TrainError;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

thread_local! {
    /// This thread is inside [`guarded`].
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs work that may run out of memory, on the device or on the host. libtorch then panics; this turns the panic into an
/// error that names the phase and what would help.
pub fn guarded<T>(
    phase: &'static str,
    advice: &'static str,
    work: impl FnOnce() -> Result<T, TrainError>,
) -> Result<T, TrainError> {
    quiet_hook();
    let before = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(before);
    result.unwrap_or_else(|panic| match out_of_memory(&*panic) {
        Some(problem) => Err(TrainError::OutOfMemory { phase, advice, problem }),
        None => resume_unwind(panic),
    })
}

/// libtorch's message, if the panic is about memory.
fn out_of_memory(panic: &(dyn std::any::Any + Send)) -> Option<String> {
    let text =
        panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied())?;
    let messages = [
        "CUDA out of memory",
        "can't allocate memory",
        "CUDNN_STATUS_ALLOC_FAILED",
        "CUBLAS_STATUS_ALLOC_FAILED",
    ];
    let start = messages.iter().find_map(|message| text.find(message))?;
    // the first sentence; advice for Python and a C++ stack trace follow it
    let rest = text[start..].lines().next().unwrap_or_default();
    let end = rest.find(". GPU").or(rest.find(". Error code")).unwrap_or(rest.len());
    Some(rest[..end].trim_end_matches(['.', '"', ')']).to_owned())
}

/// A panic that becomes an error is not printed as well.
fn quiet_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !(GUARDED.get() && out_of_memory(info.payload()).is_some()) {
                default_hook(info);
            }
        }));
    });
}

/// Resident memory in MiB; `None` if the system does not report it.
pub fn resident_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// Available memory in GiB; `None` if the system does not report it.
pub fn available_gib() -> Option<f64> {
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, Tensor};

    #[test]
    fn running_out_of_memory_is_an_error_that_names_phase_and_key() {
        let too_much = || {
            let _ = Tensor::empty([1i64 << 50], (Kind::Float, Device::Cpu));
            Ok(())
        };
        let problem =
            guarded("learning", "a smaller `model.activation_gib`", too_much).unwrap_err().to_string();
        let expected = "out of memory while learning: can't allocate memory: you tried to allocate 4503599627370496 bytes";
        assert!(problem.starts_with(expected) && !problem.contains('\n'), "{problem}");
        assert!(problem.ends_with("expected a smaller `model.activation_gib`"), "{problem}");
        let on_a_gpu = "Torch(\"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139 GiB\nException\")";
        let message = out_of_memory(&on_a_gpu.to_owned());
        assert_eq!(message.as_deref(), Some("CUDA out of memory. Tried to allocate 2.00 GiB"));
    }

    #[test]
    #[should_panic(expected = "something else")]
    fn other_panics_stay_panics() {
        let _ = guarded("learning", "less", || -> Result<(), TrainError> { panic!("something else") });
    }
}
