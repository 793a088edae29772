//! From screenshots, or from the grey levels of their patches, to the numbers the tower reads, on the device it runs on.

use arpo_image::{CHANNELS, GREYS, ImageError, ImageProcessor, Levels, PATCH_LEVELS, Patches};
use arpo_torch::given;
use image::RgbImage;
use tch::{Device, Kind, Tensor};

/// Of each screenshot `[patches, channels * patch * patch]`. A CPU makes numbers of a patch while it is in its cache; grey
/// levels are kept for GPUs only.
pub fn pixels_of(
    processor: &ImageProcessor,
    screenshots: &[&RgbImage],
    device: Device,
) -> Result<Vec<Tensor>, ImageError> {
    if device != Device::Cpu {
        return Ok(pixels(&processor.process_all(screenshots)?, device));
    }
    let patches = |screenshot: &&RgbImage| {
        processor.grid(screenshot.width(), screenshot.height()).map(|grid| grid.patches() as i64)
    };
    let patches = screenshots.iter().map(patches).collect::<Result<Vec<_>, _>>()?;
    let places = patches.iter().sum::<i64>() as usize * PATCH_LEVELS;
    let mut written = Ok(());
    let numbers = given::written::<f32>(places, |places| {
        written = processor.write_numbers(screenshots, places);
    });
    written?;
    Ok(numbers.view([-1, PATCH_LEVELS as i64]).split_with_sizes(&patches, 0))
}

/// The same of patches that were made before. A GPU gets bytes and looks their numbers up itself: a quarter travels.
pub fn pixels(patches: &[Patches], device: Device) -> Vec<Tensor> {
    let Some(first) = patches.first() else { return vec![] };
    assert!(patches.iter().all(|one| one.levels == first.levels), "pictures of one processor");
    if device == Device::Cpu {
        return patches.iter().map(numbers).collect();
    }
    let table = LevelTable::new(&first.levels, device);
    patches.iter().map(|one| table.look_up(one)).collect()
}

/// Computed by a CPU, straight into the tensor.
fn numbers(patches: &Patches) -> Tensor {
    let numbers = given::written::<f32>(patches.greys.len(), |places| patches.write_numbers(places));
    numbers.view([patches.grid.patches() as i64, -1])
}

/// What grey levels become, on a device.
struct LevelTable {
    levels: Tensor, // [channels * greys]
    begins: Tensor, // [channels, 1]: where each channel's begin
}

impl LevelTable {
    fn new(levels: &Levels, device: Device) -> Self {
        let channels = CHANNELS as i64;
        let begins = Tensor::arange(channels, (Kind::Int, device)) * GREYS as i64;
        Self { levels: given::copied(levels.all(), device), begins: begins.view([channels, 1]) }
    }

    fn look_up(&self, patches: &Patches) -> Tensor {
        let size = [patches.grid.patches() as i64, CHANNELS as i64, -1];
        let greys = given::copied(&patches.greys, self.levels.device()).view(size);
        let places = greys.to_kind(Kind::Int) + &self.begins;
        self.levels.index_select(0, &places.flatten(0, -1)).view([size[0], -1])
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
        let as_on_a_gpu = LevelTable::new(&patches.levels, Device::Cpu).look_up(&patches);
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
