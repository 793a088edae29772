//! The stream beside libtorch's, on a GPU: what is queued on both happens in the order that its events give. Without a GPU the
//! test is skipped with a message; `./x test --gpu` requires one.

use arpo_torch::runtime;
use arpo_torch::stream::SideStream;
use libloading::os::unix::Library;
use std::ffi::{c_int, c_void};
use tch::{Cuda, Device, Kind, Tensor};

type CopyAsync = unsafe extern "C" fn(u64, u64, usize, *mut c_void) -> c_int;

/// Rows and columns of a matrix.
const SIZE: i64 = 4096;

/// Half a second on an H200, far longer than it takes to queue everything.
const MATMULS: usize = 200;

/// Copies before the one that matters, so that it would come long after what has to wait for it.
const COPIES: usize = 100;

/// The first GPU; `None`, with a message, without one.
fn gpu() -> Option<Device> {
    runtime::start().unwrap_or_else(|error| panic!("{error}"));
    if runtime::usable_cuda_devices() == 0 {
        assert!(std::env::var_os("ARPO_TEST_GPU").is_none(), "no GPU that libtorch can use");
        println!("skipped: no GPU");
        return None;
    }
    Some(Device::Cuda(0))
}

/// Without the first event the copy would be made before the product is there, without the second one after it is overwritten.
#[test]
fn a_side_stream_follows_the_computation_and_holds_it() {
    let Some(device) = gpu() else { return };
    let stream = SideStream::new(device).unwrap();
    // SAFETY: libtorch uses the driver already; opening it again only adds a reference.
    let driver = unsafe { Library::new("libcuda.so.1") }.unwrap();
    // SAFETY: CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream).
    let copy_async: CopyAsync = *unsafe { driver.get::<CopyAsync>("cuMemcpyDtoDAsync_v2") }.unwrap();
    let copy = |from: &Tensor, to: &Tensor| {
        let (from, to, bytes) = (from.data_ptr() as u64, to.data_ptr() as u64, 4 * from.numel());
        // SAFETY: as above; both tensors have that many bytes on the GPU that is current, and live until the end of the test.
        let code = unsafe { copy_async(to, from, bytes, stream.handle()) };
        assert_eq!(code, 0, "cuMemcpyDtoDAsync");
    };

    tch::manual_seed(7);
    let random = || Tensor::randn([SIZE, SIZE], (Kind::Float, device));
    // by the root of SIZE, so that products stay finite
    let matrix = random() / 64.0;
    // all memory is there before: its allocation may wait for the GPU, as the first product may
    let [first, scratch, found, mut expected] = [random(), random(), random(), random()];
    let _ = matrix.matmul(&first);
    Cuda::synchronize(0);

    let mut product = matrix.matmul(&first);
    for _ in 1..MATMULS {
        product = matrix.matmul(&product);
    }
    expected.copy_(&product);
    stream.follow_computation().unwrap();
    for _ in 0..COPIES {
        copy(&first, &scratch);
    }
    copy(&product, &found);
    let end = stream.mark().unwrap();
    let hold = stream.hold_computation(&end).unwrap();
    let _ = product.zero_();
    assert!(hold.seconds().is_none(), "the GPU was done before everything was queued: nothing was tested");

    assert!(found.equal(&expected), "copied before it was computed, or after it was overwritten");
    assert!(!product.equal(&expected), "not overwritten");
    Cuda::synchronize(0);
    assert!(hold.seconds().is_some_and(|seconds| seconds > 0.0), "{:?}", hold.seconds());
}
