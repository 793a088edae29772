//! Checkpoints written and read again, and invalid checkpoints.

use crate::golden::Golden;
use arpo_model::checkpoint::{self, Checkpoint};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use tch::{Device, Kind};

/// A folder of this test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("arpo-model-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// A copy of a golden model to corrupt.
    fn copy_of(golden: &Golden, name: &str) -> Self {
        let folder = Self::new(name);
        for entry in fs::read_dir(&golden.folder).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, folder.0.join(path.file_name().unwrap())).unwrap();
        }
        folder
    }

    fn load_error(&self) -> String {
        checkpoint::load(&self.0, Kind::Float, Device::Cpu).unwrap_err().to_string()
    }

    fn weights(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn assert_same(one: &Checkpoint, other: &Checkpoint) {
    assert_eq!(one.weights.iter().len(), other.weights.iter().len());
    for ((layout, tensor), (other_layout, other_tensor)) in one.weights.iter().zip(other.weights.iter()) {
        assert_eq!(layout, other_layout);
        assert!(tensor.equal(other_tensor), "{}", layout.name);
    }
    assert_eq!(one.side_files, other.side_files);
    assert_eq!((&one.config.text, &one.config.vision), (&other.config.text, &other.config.vision));
}

fn load(folder: &Path, kind: Kind) -> Checkpoint {
    checkpoint::load(folder, kind, Device::Cpu).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_saved_checkpoint_loads_unchanged() {
    for golden in Golden::all() {
        for kind in [Kind::Float, Kind::BFloat16, Kind::Half] {
            let parent = Folder::new(&format!("saved-{kind:?}"));
            let original = load(&golden.folder, kind);
            let saved = parent.0.join("model");
            checkpoint::save(&saved, &original.config, &original.weights, &original.side_files).unwrap();
            assert_same(&original, &load(&saved, kind));
            assert_eq!(fs::read_dir(&parent.0).unwrap().count(), 1, "nothing else is left behind");

            let again = checkpoint::save(&saved, &original.config, &original.weights, &original.side_files);
            assert!(again.unwrap_err().to_string().ends_with("exists already: expected a new folder"));
        }
    }
}

/// For `tests/transformers_loads_ours.py`.
#[test]
#[ignore = "leaves a folder behind, for testing other programs by hand"]
fn leave_saved_models() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/saved-models");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    for golden in Golden::all() {
        let original = golden.checkpoint();
        let saved = folder.join(golden.folder.file_name().unwrap());
        checkpoint::save(&saved, &original.config, &original.weights, &original.side_files).unwrap();
    }
}

#[test]
fn weights_saved_in_f32_are_the_same_file() {
    for golden in Golden::all() {
        let parent = Folder::new("same");
        let original = golden.checkpoint();
        let saved = parent.0.join("model");
        checkpoint::save(&saved, &original.config, &original.weights, &original.side_files).unwrap();
        let tensors = |path: &Path| {
            let bytes = fs::read(path).unwrap();
            let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
            let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = file
                .iter()
                .map(|(name, view)| (name.to_owned(), view.shape().to_vec(), view.data().to_vec()))
                .collect();
            tensors.sort();
            tensors
        };
        let written = tensors(&saved.join("model.safetensors"));
        // golden files may have either naming; ours have the published one
        let given = tensors(&golden.folder.join("model.safetensors"));
        assert_eq!(written.len(), given.len(), "a tensor is missing");
        for (ours, theirs) in written.iter().zip(given) {
            assert_eq!((&ours.1, &ours.2), (&theirs.1, &theirs.2), "{} and {}", ours.0, theirs.0);
        }
    }
}

#[test]
fn either_naming_and_shards_are_read() {
    for golden in Golden::all() {
        let folder = Folder::copy_of(&golden, "shards");
        let original = golden.checkpoint();
        let bytes = fs::read(folder.weights()).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let names: Vec<(String, String)> = original
            .weights
            .iter()
            .flat_map(|(layout, _)| layout.pieces.clone())
            .map(|piece| (piece.other_name(), piece.name))
            .collect();
        let mut index = serde_json::Map::new();
        for (number, half) in names.chunks(names.len().div_ceil(2)).enumerate() {
            let shard = format!("part-{number}.safetensors");
            let views: Vec<_> = half
                .iter()
                .map(|(other, name)| {
                    (other.clone(), file.tensor(name).or_else(|_| file.tensor(other)).unwrap())
                })
                .collect();
            index.extend(half.iter().map(|(other, _)| (other.clone(), Value::from(shard.clone()))));
            safetensors::serialize_to_file(views, None, &folder.0.join(&shard)).unwrap();
        }
        let text = serde_json::json!({ "weight_map": index }).to_string();
        fs::write(folder.0.join("model.safetensors.index.json"), text).unwrap();
        fs::remove_file(folder.weights()).unwrap();
        assert_same(&original, &load(&folder.0, Kind::Float));
    }
}

#[test]
fn a_truncated_file_is_rejected() {
    let golden = &Golden::all()[0];
    let folder = Folder::copy_of(golden, "cut");
    let whole = fs::read(folder.weights()).unwrap();
    for length in [0, 4, 8, 100, whole.len() / 2, whole.len() - 1] {
        fs::write(folder.weights(), &whole[..length]).unwrap();
        let error = folder.load_error();
        assert!(error.contains("model.safetensors: not a whole safetensors file"), "{length}: {error}");
    }
    for length in [u64::MAX, 1 << 40, 0] {
        let mut hostile = whole.clone();
        hostile[..8].copy_from_slice(&length.to_le_bytes());
        fs::write(folder.weights(), hostile).unwrap();
        assert!(folder.load_error().contains("model.safetensors"), "{length}");
    }
}

#[test]
fn inconsistent_headers_are_rejected() {
    let golden = &Golden::all()[0];
    let folder = Folder::copy_of(golden, "lie");
    let whole = fs::read(folder.weights()).unwrap();
    let length = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&whole[8..8 + length]).unwrap();
    let name =
        header.as_object().unwrap().keys().find(|name| name.ends_with("model.norm.weight")).unwrap().clone();
    let rewritten = |change: &dyn Fn(&mut Value)| {
        let mut header = header.clone();
        change(&mut header);
        let header = header.to_string().into_bytes();
        let bytes = [&(header.len() as u64).to_le_bytes()[..], &header, &whole[8 + length..]].concat();
        fs::write(folder.weights(), bytes).unwrap();
        folder.load_error()
    };
    let error = rewritten(&|header| header[&name]["shape"] = serde_json::json!([8, 8]));
    assert!(error.contains(&format!("tensor {name}: has the shape [8, 8]: expected [64]")), "{error}");
    let error = rewritten(&|header| header[&name]["dtype"] = "I32".into());
    assert!(error.contains(&format!("tensor {name}: is I32: expected F32, F16 or BF16")), "{error}");
    let error = rewritten(&|header| header[&name]["data_offsets"] = serde_json::json!([0, u64::MAX]));
    assert!(error.contains("not a whole safetensors file"), "{error}");
    let error = rewritten(&|header| {
        let tensor = header.as_object_mut().unwrap().shift_remove(&name).unwrap();
        header["renamed"] = tensor;
    });
    assert!(error.contains("tensor model.norm.weight: missing"), "{error}");
}

#[test]
fn incomplete_folders_are_rejected() {
    let golden = &Golden::all()[0];
    let folder = Folder::copy_of(golden, "bare");
    fs::remove_file(folder.weights()).unwrap();
    assert!(folder.load_error().contains("model.safetensors: No such file"));
    fs::write(folder.0.join("model.safetensors.index.json"), r#"{"weight_map": {"a": "../../etc/passwd"}}"#)
        .unwrap();
    assert!(folder.load_error().contains("expected a file of this folder"));
    let mut config: Value = serde_json::from_slice(&fs::read(folder.0.join("config.json")).unwrap()).unwrap();
    config["text_config"]["num_attention_heads"] = 0.into();
    fs::write(folder.0.join("config.json"), config.to_string()).unwrap();
    let error = folder.load_error();
    assert!(
        error.contains("`text_config.num_attention_heads` is 0: expected a whole number from 1 to"),
        "{error}"
    );
    config["model_type"] = "llama".into();
    fs::write(folder.0.join("config.json"), config.to_string()).unwrap();
    assert!(folder.load_error().contains("`model_type` is \"llama\": expected \"qwen2_5_vl\""));
    fs::write(folder.0.join("config.json"), "{").unwrap();
    assert!(folder.load_error().contains("config.json: not JSON"));
}
