//! From memory to a tensor with one copy. `tch` fills a tensor with zeros, copies into it, and copies again for a GPU;
//! for screenshots that is most of the time.

use tch::kind::Element;
use tch::{Device, Tensor};

/// A one-dimensional tensor of these values on a device.
pub fn upload<T: Element + Copy>(values: &[T], device: Device) -> Tensor {
    if values.is_empty() {
        return Tensor::empty([0], (T::KIND, device));
    }
    let (first, count) = (values.as_ptr().cast(), values.len() as i64);
    // SAFETY: the memory holds that many values of that kind, outlives this tensor, and is only read through it: a copy
    // to a device, like one on the host, returns when it is made.
    let borrowed = unsafe { Tensor::from_blob(first, &[count], &[1], T::KIND, Device::Cpu) };
    if device == Device::Cpu { borrowed.copy() } else { borrowed.to_device(device) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_has_memory_of_its_own() {
        let mut values = vec![1.5f32, -2.0, 0.25];
        let tensor = upload(&values, Device::Cpu);
        values.fill(0.0);
        assert_eq!(Vec::<f32>::try_from(tensor).unwrap(), [1.5, -2.0, 0.25]);
        assert_eq!(upload::<u8>(&[], Device::Cpu).size(), [0]);
    }
}
