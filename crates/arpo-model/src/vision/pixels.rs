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
    uploads(patches).into_iter().flat_map(|together| table.look_up(together)).collect()
}

/// Images whose bytes are this many or fewer are uploaded together: hundreds of small screens would take longer to launch
/// than to copy.
const UPLOAD_BYTES: usize = 1 << 20;

/// Images in order, in groups that are uploaded at once.
fn uploads(patches: &[Patches]) -> Vec<&[Patches]> {
    let mut bytes = patches.first().map_or(0, |first| first.bytes.len());
    let fits = |_: &Patches, next: &Patches| {
        bytes += next.bytes.len();
        let fits = bytes <= UPLOAD_BYTES;
        if !fits {
            bytes = next.bytes.len();
        }
        fits
    };
    patches.chunk_by(fits).collect()
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

    /// The values of each image, looked up at once.
    fn look_up(&self, images: &[Patches]) -> Vec<Tensor> {
        let device = self.values.device();
        let bytes = match images {
            [only] => upload(&only.bytes, device),
            several => {
                let bytes: Vec<&[u8]> = several.iter().map(|one| one.bytes.as_slice()).collect();
                upload(&bytes.concat(), device)
            }
        };
        let counts: Vec<i64> = images.iter().map(|one| one.grid.patches() as i64).collect();
        let indices =
            bytes.view([counts.iter().sum(), CHANNELS as i64, -1]).to_kind(Kind::Int) + &self.offsets;
        let values = self.values.index_select(0, &indices.flatten(0, -1));
        values.view([counts.iter().sum(), -1]).split_with_sizes(&counts, 0)
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
        let table = ValueTable::new(&patches.normalisation, Device::Cpu);
        let as_on_a_gpu = table.look_up(std::slice::from_ref(&patches)).remove(0);
        let other = ImageProcessor::published().process(&RgbImage::new(56, 84)).expect("a legal size");
        let several = table.look_up(&[other.clone(), patches.clone()]);
        let alone = table.look_up(std::slice::from_ref(&other)).remove(0);
        assert!(several.len() == 2 && several[0].equal(&alone) && several[1].equal(&as_on_a_gpu));
        let on_a_cpu = pixels(&[patches], Device::Cpu).remove(0);
        assert_eq!(on_a_cpu.size(), [48, 588]);
        assert!(on_a_cpu.equal(&as_on_a_gpu));
        for count in 0..3 {
            let at_once = pixels_of(&ImageProcessor::published(), &vec![&image; count], Device::Cpu);
            let at_once = at_once.expect("a legal size");
            assert!(at_once.len() == count && at_once.iter().all(|one| one.equal(&on_a_cpu)));
        }
    }

    /// As many as fit, in order; one that is larger alone.
    #[test]
    fn small_images_are_uploaded_together() {
        let patches = |side: u32| {
            let image = RgbImage::new(side, side);
            ImageProcessor::published().process(&image).expect("a legal size")
        };
        let (small, large) = (patches(224), patches(672));
        let most = UPLOAD_BYTES / small.bytes.len();
        assert!(large.bytes.len() > UPLOAD_BYTES && most > 1);
        let mut all = vec![small.clone(); most + 1];
        all.extend([large.clone(), small.clone(), small, large]);
        let groups: Vec<usize> = uploads(&all).iter().map(|group| group.len()).collect();
        assert_eq!(groups, [most, 1, 1, 2, 1]);
        assert!(uploads(&[]).is_empty());
    }
}
