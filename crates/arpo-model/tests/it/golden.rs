//! The golden models: every folder `qwen2_5_vl_*` and `qwen3_vl_*` under `$ARPO_GOLDEN_DIR`, or the project's own.

use arpo_agent::conversation::{Content, Message, Role};
use arpo_core::trajectory::ImageRef;
use arpo_image::{ImageProcessor, Patches, decode_png};
use arpo_model::checkpoint::{self, Checkpoint};
use arpo_model::positions::Grid;
use arpo_model::training::ImageInput;
use arpo_tokenizer::Tokenizer;
use image::RgbImage;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tch::{Device, Kind, Tensor};

/// The golden folder.
pub(crate) fn folder() -> PathBuf {
    // a relative path is relative to the project's root
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    root.join(std::env::var_os("ARPO_GOLDEN_DIR").unwrap_or_else(|| "tests/golden".into()))
}

/// One model with its conversation and the results of transformers.
pub(crate) struct Golden {
    pub(crate) folder: PathBuf,
    pub(crate) conversation: Value,
    expected: Vec<u8>,
}

impl Golden {
    /// All of them; at least one.
    pub(crate) fn all() -> Vec<Self> {
        let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
        let is_model = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            path.is_dir() && (name.starts_with("qwen2_5_vl_") || name.starts_with("qwen3_vl_"))
        };
        let mut folders: Vec<PathBuf> = entries.filter(is_model).collect();
        folders.sort();
        assert!(!folders.is_empty(), "no golden model");
        folders.into_iter().map(Self::open).collect()
    }

    fn open(folder: PathBuf) -> Self {
        let conversation =
            serde_json::from_slice(&fs::read(folder.join("conversation.json")).unwrap()).unwrap();
        let expected = fs::read(folder.join("expected.safetensors")).unwrap();
        Self { folder, conversation, expected }
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        checkpoint::load(&self.folder, Kind::Float, Device::Cpu).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn tokenizer(&self) -> Tokenizer {
        Tokenizer::new(&self.checkpoint().side_files, &self.folder).unwrap()
    }

    /// A result of transformers.
    pub(crate) fn expected(&self, name: &str) -> Tensor {
        tensor(&self.expected, name)
    }

    pub(crate) fn tokens(&self) -> Vec<u32> {
        Vec::<i64>::try_from(self.expected("input_ids")).unwrap().into_iter().map(|id| id as u32).collect()
    }

    pub(crate) fn grids(&self) -> Vec<Grid> {
        let values = Vec::<i64>::try_from(self.expected("image_grid_thw").flatten(0, -1)).unwrap();
        values.chunks(3).map(|thw| Grid { height: thw[1] as usize, width: thw[2] as usize }).collect()
    }

    /// The expected patches, one frame of the two equal ones.
    pub(crate) fn pixels(&self) -> Tensor {
        let patch_values = self.checkpoint().config.vision.patch_values();
        let both = self.expected("pixel_values").view([-1, 3, 2, patch_values / 3]);
        assert!(both.select(2, 0).equal(&both.select(2, 1)), "the frames of an image are equal");
        both.select(2, 0).reshape([-1, patch_values])
    }

    /// The expected patches, image by image.
    pub(crate) fn image_inputs(&self) -> Vec<ImageInput> {
        let pixels = self.pixels();
        let mut start = 0;
        let image_input = |grid: Grid| {
            let patches = grid.patches() as i64;
            start += patches;
            ImageInput::of_pixels(pixels.narrow(0, start - patches, patches), grid)
        };
        self.grids().into_iter().map(image_input).collect()
    }

    /// The screenshots.
    pub(crate) fn images(&self) -> Vec<RgbImage> {
        let names = self.conversation["images"].as_array().unwrap();
        let read =
            |name: &Value| decode_png(&fs::read(self.folder.join(name.as_str().unwrap())).unwrap()).unwrap();
        names.iter().map(read).collect()
    }

    /// The screenshots as we process them.
    pub(crate) fn processed(&self) -> Vec<Patches> {
        let images = self.images();
        let images: Vec<&RgbImage> = images.iter().collect();
        ImageProcessor::read(&self.folder).unwrap().process_all(&images).unwrap()
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        let message = |message: &Value| {
            let role = match message["role"].as_str().unwrap() {
                "system" => Role::System,
                "user" => Role::User,
                _ => Role::Assistant,
            };
            let part = |part: &Value| match part["text"].as_str() {
                Some(text) => Content::Text(text.to_owned()),
                None => Content::Image(ImageRef { digest: String::new(), width: 1, height: 1 }),
            };
            Message { role, content: message["content"].as_array().unwrap().iter().map(part).collect() }
        };
        self.conversation["messages"].as_array().unwrap().iter().map(message).collect()
    }
}

/// A tensor of a safetensors file in memory.
pub(crate) fn tensor(bytes: &[u8], name: &str) -> Tensor {
    let file = SafeTensors::deserialize(bytes).unwrap();
    let view = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    let kind = match view.dtype() {
        Dtype::F32 => Kind::Float,
        Dtype::I64 => Kind::Int64,
        Dtype::I32 => Kind::Int,
        other => panic!("{name} is {other:?}"),
    };
    let shape: Vec<i64> = view.shape().iter().map(|&side| side as i64).collect();
    Tensor::from_data_size(view.data(), &shape, kind)
}

/// The gradients of transformers, by the names of transformers 5.
pub(crate) fn gradients(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("expected_gradients.safetensors")).unwrap()
}

/// Agreement of all values, absolutely where they are small and relatively where they are large.
pub(crate) fn assert_close(actual: &Tensor, expected: &Tensor, tolerance: f64, what: &str) {
    assert_eq!(actual.size(), expected.size(), "{what}");
    let allowed = expected.abs().clamp_min(1.0) * tolerance;
    let excess = (actual - expected).abs() / allowed;
    let worst = excess.max().double_value(&[]);
    assert!(worst <= 1.0, "{what}: {worst} times the tolerance of {tolerance}");
}
