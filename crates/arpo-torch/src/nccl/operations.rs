//! Sums and copies of a tensor's values between the GPUs of a group: of the whole, of equal parts, of sections.

use super::Communicator;
use crate::stream::SideStream;
use std::ffi::{c_int, c_void};
use std::ptr;
use tch::{Kind, Tensor};

/// Values of `ncclDataType_t`.
const FLOAT32: c_int = 7;
const BFLOAT16: c_int = 9;

/// The value of `ncclRedOp_t` for a sum.
const SUM: c_int = 0;

/// A range of a tensor that an operation works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// The first value.
    pub start: usize,
    /// How many.
    pub length: usize,
    /// The rank that it belongs to.
    pub root: usize,
}

impl Communicator {
    /// Replaces the values of a flat tensor by their sums over all ranks.
    pub fn all_reduce(&self, tensor: &Tensor) -> Result<(), String> {
        let (pointer, kind) = self.buffer(tensor)?;
        self.operate(|handle| {
            // SAFETY: ncclAllReduce(send, receive, count, type, operation, comm, stream), in place, on the default stream, which
            // is the one that libtorch computes on; the tensor has as many values of this type.
            let code = unsafe {
                (self.calls.all_reduce)(pointer, pointer, tensor.numel(), kind, SUM, handle, ptr::null_mut())
            };
            self.calls.check("ncclAllReduce", code)
        })
    }

    /// Sums equal parts of a flat tensor over all ranks, each for its rank, which is the `rank`-th; on a stream of its own, if
    /// there is one.
    pub fn reduce_scatter(
        &self,
        tensor: &Tensor,
        rank: usize,
        length: usize,
        stream: Option<&SideStream>,
    ) -> Result<(), String> {
        let (pointer, kind) = self.buffer(tensor)?;
        let own = self.part(tensor, pointer, rank, length);
        let stream = handle_of(stream);
        self.operate(|handle| {
            // SAFETY: ncclReduceScatter(send, receive, count of a part, type, operation, comm, stream); in place, because what is
            // received is the rank's part of what is sent; as above, or on a live stream of the same device.
            let code =
                unsafe { (self.calls.reduce_scatter)(pointer, own, length, kind, SUM, handle, stream) };
            self.calls.check("ncclReduceScatter", code)
        })
    }

    /// Copies equal parts of a flat tensor from each rank to all; this rank's is the `rank`-th.
    pub fn all_gather(&self, tensor: &Tensor, rank: usize, length: usize) -> Result<(), String> {
        let (pointer, kind) = self.buffer(tensor)?;
        let own = self.part(tensor, pointer, rank, length);
        self.operate(|handle| {
            // SAFETY: ncclAllGather(send, receive, count of a part, type, comm, stream); in place, because what is sent is the
            // rank's part of what is received; as above.
            let code =
                unsafe { (self.calls.all_gather)(own, pointer, length, kind, handle, ptr::null_mut()) };
            self.calls.check("ncclAllGather", code)
        })
    }

    /// Where the part of a rank begins. All parts together are the tensor.
    fn part(&self, tensor: &Tensor, pointer: *mut c_void, rank: usize, length: usize) -> *mut c_void {
        assert_eq!(tensor.numel(), self.ranks * length, "parts that are not the tensor");
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        pointer.wrapping_byte_add(rank * length * tensor.kind().elt_size_in_bytes())
    }

    /// Copies each section from its rank to all.
    pub fn broadcast(&self, tensor: &Tensor, sections: &[Section]) -> Result<(), String> {
        self.each(tensor, sections, |pointer, kind, section, handle| {
            // SAFETY: ncclBroadcast(send, receive, count, type, root, comm, stream), in place; as above.
            let code = unsafe {
                (self.calls.broadcast)(
                    pointer,
                    pointer,
                    section.length,
                    kind,
                    section.root as c_int,
                    handle,
                    ptr::null_mut(),
                )
            };
            self.calls.check("ncclBroadcast", code)
        })
    }

    /// Sums each section over all ranks, for its rank; on a stream of its own, if there is one.
    pub fn reduce(
        &self,
        tensor: &Tensor,
        sections: &[Section],
        stream: Option<&SideStream>,
    ) -> Result<(), String> {
        let stream = handle_of(stream);
        self.each(tensor, sections, |pointer, kind, section, handle| {
            let (count, root) = (section.length, section.root as c_int);
            // SAFETY: ncclReduce(send, receive, count, type, operation, root, comm, stream), in place; as above.
            let code =
                unsafe { (self.calls.reduce)(pointer, pointer, count, kind, SUM, root, handle, stream) };
            self.calls.check("ncclReduce", code)
        })
    }

    /// One operation for each section that is not empty, all at once.
    fn each(
        &self,
        tensor: &Tensor,
        sections: &[Section],
        operation: impl Fn(*mut c_void, c_int, &Section, *mut c_void) -> Result<(), String>,
    ) -> Result<(), String> {
        let (pointer, kind) = self.buffer(tensor)?;
        let width = tensor.kind().elt_size_in_bytes();
        self.operate(|handle| {
            // SAFETY: ncclGroupStart() and ncclGroupEnd() have no arguments; every start is followed by an end.
            self.calls.check("ncclGroupStart", unsafe { (self.calls.group_start)() })?;
            let queued = sections.iter().filter(|section| section.length > 0).try_for_each(|section| {
                assert!(section.start + section.length <= tensor.numel(), "a section outside of its tensor");
                // inside of the tensor, by the line above
                let first = pointer.wrapping_byte_add(section.start * width);
                operation(first, kind, section, handle)
            });
            // SAFETY: as above.
            let ended = self.calls.check("ncclGroupEnd", unsafe { (self.calls.group_end)() });
            queued.and(ended)
        })
    }

    /// Where the values of a tensor are, and their `ncclDataType_t`.
    fn buffer(&self, tensor: &Tensor) -> Result<(*mut c_void, c_int), String> {
        let kind = match tensor.kind() {
            Kind::Float => FLOAT32,
            Kind::BFloat16 => BFLOAT16,
            other => return Err(format!("values of {other:?} do not travel between GPUs")),
        };
        if tensor.device() != self.device || !tensor.is_contiguous() {
            return Err(format!(
                "a tensor on {:?}: expected a contiguous one on {:?}",
                tensor.device(),
                self.device
            ));
        }
        Ok((tensor.data_ptr(), kind))
    }
}

/// The stream that an operation is queued on: the given one, or libtorch's.
fn handle_of(stream: Option<&SideStream>) -> *mut c_void {
    stream.map_or(ptr::null_mut(), SideStream::handle)
}
