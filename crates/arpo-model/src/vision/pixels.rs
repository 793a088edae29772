//! From screenshots, or from the pixel bytes of their patches, to the tower's input values, on its device.

use arpo_image::{BYTE_VALUES, CHANNELS, ImageError, ImageProcessor, Normalisation, Patches};
use arpo_torch::upload::upload;
use image::RgbImage;
use tch::{Device, Kind, Tensor};

/// The input of each screenshot, `[patches, channels * patch * patch]`. Only GPUs get pixel bytes.
pub fn pixels_of(
    processor: &ImageProcessor,
    screenshots: &[&RgbImage],
    device: Device,
) -> Result<Vec<Tensor>, ImageError> {
    if device != Device::Cpu {
        return Ok(pixels(&processor.process_all(screenshots)?, device));
    }
    let patch_values = processor.patch_size().values() as i64;
    let screenshots = processor.normalised(screenshots)?;
    Ok(screenshots.iter().map(|values| upload(values, device).view([-1, patch_values])).collect())
}

/// The same for patches that are already processed. A GPU gets bytes and normalises them itself by table lookup: a
/// quarter of the transfer.
pub fn pixels(patches: &[Patches], device: Device) -> Vec<Tensor> {
    let Some(first) = patches.first() else { return vec![] };
    assert!(patches.iter().all(|one| one.normalisation == first.normalisation), "images of one processor");
    if device == Device::Cpu {
        return patches
            .iter()
            .map(|one| upload(&one.normalised(), device).view([one.grid.patches() as i64, -1]))
            .collect();
    }
    let table = ValueTable::new(&first.normalisation, device);
    patches.iter().map(|one| table.look_up(one)).collect()
}

/// The normalised values of bytes, on a device.
struct ValueTable {
    values: Tensor,  // [channels * byte values]
    offsets: Tensor, // [channels, 1]: where each channel begins
}

impl ValueTable {
    fn new(normalisation: &Normalisation, device: Device) -> Self {
        let channels = CHANNELS as i64;
        let offsets = Tensor::arange(channels, (Kind::Int, device)) * BYTE_VALUES as i64;
        Self { values: upload(normalisation.table(), device), offsets: offsets.view([channels, 1]) }
    }

    fn look_up(&self, patches: &Patches) -> Tensor {
        let size = [patches.grid.patches() as i64, CHANNELS as i64, -1];
        let bytes = upload(&patches.bytes, self.values.device()).view(size);
        let indices = bytes.to_kind(Kind::Int) + &self.offsets;
        self.values.index_select(0, &indices.flatten(0, -1)).view([size[0], -1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::Rgb;

    #[test]
    fn a_gpu_looks_up_what_a_cpu_computes() {
        let image =
            RgbImage::from_fn(112, 84, |x, y| Rgb([(x * y) as u8, (7 * x + y) as u8, (x + 3 * y) as u8]));
        let patches = ImageProcessor::published().process(&image).expect("a legal size");
        let as_on_a_gpu = ValueTable::new(&patches.normalisation, Device::Cpu).look_up(&patches);
        let on_a_cpu = pixels(&[patches], Device::Cpu).remove(0);
        assert_eq!(on_a_cpu.size(), [48, 588]);
        assert!(on_a_cpu.equal(&as_on_a_gpu));
        for count in 0..3 {
            let at_once = pixels_of(&ImageProcessor::published(), &vec![&image; count], Device::Cpu);
            let at_once = at_once.expect("a legal size");
            assert!(at_once.len() == count && at_once.iter().all(|one| one.equal(&on_a_cpu)));
        }
    }
}
