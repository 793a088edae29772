//! Large tensors of our own numbers without copies that are not needed. The wrapper's own way fills a tensor with zeros,
//! copies into it, and copies again for a GPU; for screenshots that is most of the time.

use std::mem::MaybeUninit;
use std::slice;
use tch::kind::Element;
use tch::{Device, Tensor};

/// Numbers that are in memory already, copied once, to the device.
pub fn copied<T: Element + Copy>(numbers: &[T], device: Device) -> Tensor {
    if device == Device::Cpu {
        return written(numbers.len(), |places| {
            places.write_copy_of_slice(numbers);
        });
    }
    let (first, count) = (numbers.as_ptr().cast(), numbers.len() as i64);
    // SAFETY: the memory holds that many numbers of that kind, outlives this tensor, and is only read through it: this
    // way of sending it to a device returns when it is there.
    let lent = unsafe { Tensor::from_blob(first, &[count], &[1], T::KIND, Device::Cpu) };
    lent.to_device(device)
}

/// Numbers written where the tensor keeps them, on a CPU. What is not written is anything.
pub fn written<T: Element>(count: usize, write: impl FnOnce(&mut [MaybeUninit<T>])) -> Tensor {
    let tensor = Tensor::empty([count as i64], (T::KIND, Device::Cpu));
    if count > 0 {
        // SAFETY: the memory was just made for that many numbers of that kind, and nothing else has it yet
        write(unsafe { slice::from_raw_parts_mut(tensor.data_ptr().cast(), count) });
    }
    tensor
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(tensor: &Tensor) -> Vec<f32> {
        Vec::try_from(tensor).expect("it is flat and of f32")
    }

    #[test]
    fn a_tensor_keeps_what_it_was_given() {
        let mut given = vec![1.5f32, -2.0, 0.25];
        let tensor = copied(&given, Device::Cpu);
        given.fill(0.0);
        assert_eq!(numbers(&tensor), [1.5, -2.0, 0.25]);
        let doubled = written(3, |places| {
            for (place, number) in places.iter_mut().zip([1.0, 2.0, 4.0]) {
                place.write(2.0 * number);
            }
        });
        assert_eq!(numbers(&doubled), [2.0, 4.0, 8.0]);
    }

    #[test]
    fn nothing_is_a_tensor_of_nothing() {
        assert_eq!(copied::<u8>(&[], Device::Cpu).size(), [0]);
        assert_eq!(written::<f32>(0, |_| {}).size(), [0]);
    }
}
