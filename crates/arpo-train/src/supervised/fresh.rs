//! The model that a run begins with: a given one, or an untrained one with the dimensions for its suite, a tokenizer trained on the
//! oracle's prompts and responses, and an image processor.

use super::desktops::on_desktops;
use super::reading::{Lesson, lesson};
use super::{Family, SupervisedOptions};
use crate::TrainError;
use crate::agent::Agent;
use crate::base_model;
use crate::demonstrations::{MAX_QUESTIONS, oracle_episode_of, response_text, screens_on_the_way};
use arpo_agent::geometry::Size;
use arpo_core::random::{Purpose, stream};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::grounding::{Asking, questions};
use arpo_env::layout::Widget;
use arpo_env::tasks::Suite;
use arpo_model::checkpoint::layout::parameters;
use arpo_model::checkpoint::{Checkpoint, Weights};
use arpo_model::config::{self, ModelConfig};
use arpo_tokenizer::train::{self, Spaces, Words};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use tch::{Device, Kind};

/// Oracle episodes whose text the tokenizer is trained on.
const TOKENIZER_EPISODES: u64 = 3000;

/// The files of a checkpoint beside its config and weights, by their names.
type SideFiles = BTreeMap<String, Vec<u8>>;

/// The model before the first update: its dimensions, side files and weights.
pub(super) fn starting_model(
    options: &SupervisedOptions,
    device: Device,
) -> Result<(ModelConfig, SideFiles, Weights), TrainError> {
    if let Some(name) = &options.model {
        let Checkpoint { config, weights, side_files, .. } = base_model::load(name, Kind::Float, device)?;
        return Ok((config, side_files, weights));
    }
    let (config, side_files) = untrained(options)?;
    tch::manual_seed(options.seed as i64);
    let weights = Weights::from_scratch(&config, Kind::Float, device);
    Ok((config, side_files, weights))
}

/// The dimensions and side files of an untrained model.
pub(super) fn untrained(options: &SupervisedOptions) -> Result<(ModelConfig, SideFiles), TrainError> {
    let config = dimensions(options)?;
    let side_files = side_files(options, &config)?;
    Ok((config, side_files))
}

/// The dimensions of the model that a run begins with: those of a given one, which is checked, of a file, or of the suite and the
/// family.
pub fn dimensions(options: &SupervisedOptions) -> Result<ModelConfig, TrainError> {
    if let Some(name) = &options.model {
        let (config, side_files) = base_model::check(name)?;
        of_family(&config, options.family)
            .map_err(|problem| TrainError::Configuration(format!("{name}: {problem}")))?;
        Agent::new(&config, &side_files, Path::new(name), options.family.style())?;
        let parameters: i64 = parameters(&config).iter().map(|one| one.shape.iter().product::<i64>()).sum();
        if parameters > MOST_PARAMETERS {
            return Err(TrainError::Configuration(format!(
                "{name} has {} M parameters: expected at most {} M, the models that supervised training is made for; \
                 `arpo train` and `arpo offline` train larger ones",
                parameters / 1_000_000,
                MOST_PARAMETERS / 1_000_000
            )));
        }
        return Ok(config);
    }
    match (&options.dimensions, options.suite, options.family) {
        (Some(path), _, family) => read(Path::new(path), family)
            .map_err(|problem| TrainError::Configuration(format!("{path}: {problem}"))),
        (None, Suite::Pocket, Family::Qwen25Vl) => Ok(config::pocket()),
        (None, Suite::Desktop, Family::Qwen25Vl) => Ok(config::desktop()),
        (None, Suite::Pocket, Family::Qwen3Vl) => Ok(config::pocket_qwen3()),
        (None, Suite::Desktop, Family::Qwen3Vl) => Err(TrainError::Configuration(
            "there is no small Qwen3-VL for the desktop suite: expected the pocket suite, or --dimensions FILE".into(),
        )),
    }
}

/// A given model is trained in f32 and without a memory plan.
const MOST_PARAMETERS: i64 = 1_000_000_000;

/// Bytes and special tokens, and room for some words.
const SMALLEST_VOCABULARY: i64 = 512;

fn read(path: &Path, family: Family) -> Result<ModelConfig, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let value = serde_json::from_str(&text).map_err(|error| format!("not JSON: {error}"))?;
    let config = config::parse_with_own_tokens(value)?;
    of_family(&config, family)?;
    let size = config.text.vocabulary;
    if size < SMALLEST_VOCABULARY {
        return Err(format!("`vocab_size` is {size}: expected at least {SMALLEST_VOCABULARY}"));
    }
    Ok(config)
}

/// An error if a model is of another family.
fn of_family(config: &ModelConfig, family: Family) -> Result<(), String> {
    let (found, wanted) = (config.architecture.model_type(), family.model_type());
    if found == wanted {
        return Ok(());
    }
    Err(format!("`model_type` is {found:?}: expected {wanted:?}, which --family names"))
}

fn side_files(options: &SupervisedOptions, config: &ModelConfig) -> Result<SideFiles, TrainError> {
    // all applications: a vocabulary that lacks one could not be taught it later
    let mut options = SupervisedOptions { weights: BTreeMap::new(), ..options.clone() };
    if options.reading.spelled_names {
        // a name that occurs twice would be a token; the listed ones are left out by name
        options.reading.invented = 0.0;
    }
    let style = options.family.style();
    let look = options.suite.screen();
    let screen = Size { width: look.width, height: look.height };
    let texts = on_desktops(options.suite, 0..TOKENIZER_EPISODES, |desktop, number| {
        let Lesson { task, reworded } = lesson(&options, number)?;
        let episode = oracle_episode_of(desktop, &task, number)?;
        let mut rng = stream(number, Purpose::Environment, 4, 0);
        // a word is a token only if texts have it, so they need the labels of all screens; of parts the last screen has enough
        let screens: Vec<Vec<Widget>> = if options.reading.spelled_names {
            let screens =
                screens_on_the_way(desktop, &task, number, None, &mut rng, EmbeddedDesktop::widgets)?;
            screens.into_iter().map(|(_, widgets)| widgets).collect()
        } else {
            vec![desktop.widgets()]
        };
        let mut texts = vec![format!("{}\n{}", style.system, episode.instruction)];
        if options.reading.spelled_names {
            // the verb is a token; what is to be typed is spelled
            texts.push("type".into());
        }
        for widgets in screens {
            if reworded {
                let asking = Asking { count: MAX_QUESTIONS, reworded, names_first: false };
                texts.extend(questions(&widgets, asking, &mut rng).into_iter().map(|question| question.text));
            }
            texts.extend(widgets.iter().map(|widget| format!("find {}\n{}", widget.label, widget.label)));
        }
        texts.extend(episode.actions.iter().map(|action| response_text(style.format, action, screen)));
        Ok(texts)
    })?;
    let spaces = if options.reading.separate_spaces { Spaces::Separate } else { Spaces::Joined };
    let size = config.text.vocabulary as usize;
    let words = if options.reading.spelled_names {
        Words::Whole { spelled: options.suite.names() }
    } else {
        Words::Parts
    };
    let mut files = train::train(texts.into_iter().flatten(), size, style.format.grammar, spaces, &words)?;
    let processor_class = match config.architecture.model_type() {
        "qwen3_vl" => "Qwen3VLProcessor",
        _ => "Qwen2_5_VLProcessor",
    };
    let processor = json!({
        "image_processor_type": "Qwen2VLImageProcessor", "processor_class": processor_class,
        "patch_size": config.vision.patch, "merge_size": config.vision.merge,
        "temporal_patch_size": config.vision.temporal_patch,
        "min_pixels": 28 * 28, "max_pixels": 28 * 28 * 1280,
        "do_resize": true, "do_rescale": true, "do_normalize": true, "do_convert_rgb": true, "resample": 3,
        "rescale_factor": 1.0 / 255.0,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.27, 0.27, 0.27],
    });
    files.insert("preprocessor_config.json".into(), format!("{processor:#}\n").into_bytes());
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervised::{Reading, test_options};
    use serde_json::Value;

    #[test]
    fn dimensions_are_read_from_a_file_and_checked() {
        let folder = std::env::temp_dir().join(format!("arpo-dimensions-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("config.json");
        let of = |family: Family, change: &dyn Fn(&mut Value)| {
            let mut value: Value =
                serde_json::from_str(include_str!("../../../../models/pocket/config.json")).unwrap();
            value["image_token_id"] = json!(99);
            value["text_config"]["num_hidden_layers"] = json!(2);
            for of_another_tokenizer in ["eos_token_id", "image_token_id"] {
                value["text_config"][of_another_tokenizer] = json!(98);
            }
            change(&mut value);
            std::fs::write(&path, value.to_string()).unwrap();
            let dimensions = Some(path.display().to_string());
            dimensions_of(&SupervisedOptions { family, dimensions, ..test_options(Reading::default()) })
        };
        let read = of(Family::Qwen25Vl, &|_| ()).unwrap();
        assert_eq!((read.text.layers, read.image_token), (2, 5));
        let saved = read.to_json("float16");
        assert!(
            saved["text_config"]["eos_token_id"].is_null()
                && saved["text_config"]["image_token_id"].is_null()
        );
        assert_eq!(saved["image_token_id"], 5);
        let name = path.display().to_string();
        assert_eq!(
            of(Family::Qwen3Vl, &|_| ()).unwrap_err(),
            format!("{name}: `model_type` is \"qwen2_5_vl\": expected \"qwen3_vl\", which --family names")
        );
        let small = of(Family::Qwen25Vl, &|value| value["text_config"]["vocab_size"] = json!(300));
        assert_eq!(small.unwrap_err(), format!("{name}: `vocab_size` is 300: expected at least 512"));
        let missing = folder.join("none.json");
        let options = SupervisedOptions {
            dimensions: Some(missing.display().to_string()),
            ..test_options(Reading::default())
        };
        assert!(dimensions_of(&options).unwrap_err().starts_with(&format!("{}: ", missing.display())));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_run_begins_with_a_given_model_whose_tower_is_frozen() {
        let given = |family: Family, name: &str| SupervisedOptions {
            family,
            model: Some(name.into()),
            ..test_options(Reading::default())
        };
        let options = given(Family::Qwen25Vl, "pocket");
        assert!([0, 1, 9].iter().all(|&number| options.vision_is_frozen(number)));
        assert!(!test_options(Reading::default()).vision_is_frozen(9), "an untrained one learns");
        let (config, side_files, weights) = starting_model(&options, Device::Cpu).unwrap();
        let pocket = base_model::load("pocket", Kind::Float, Device::Cpu).unwrap();
        assert_eq!((&config, &side_files), (&pocket.config, &pocket.side_files));
        assert_eq!(dimensions_of(&options).unwrap(), config);
        let values = |weights: &Weights| -> Vec<tch::Tensor> {
            weights.iter().map(|(_, value)| value.shallow_clone()).collect()
        };
        assert_eq!(values(&weights), values(&pocket.weights));
        assert_eq!(
            dimensions_of(&given(Family::Qwen3Vl, "pocket")).unwrap_err(),
            "pocket: `model_type` is \"qwen2_5_vl\": expected \"qwen3_vl\", which --family names"
        );
        let missing = dimensions_of(&given(Family::Qwen25Vl, "none")).unwrap_err();
        assert!(missing.starts_with("model \"none\" does not exist"), "{missing}");
    }

    /// Also labels of dialogs, which are on no last screen of an episode.
    #[test]
    fn labels_are_tokens_and_names_are_spelled() {
        let tokenizer = |reading: Reading| {
            let (_, files) = untrained(&test_options(reading)).unwrap();
            arpo_tokenizer::Tokenizer::new(&files, Path::new("made")).unwrap()
        };
        // here it is in questions only
        let plain = tokenizer(Reading { reworded: 0.0, auxiliary: 0.0, ..Reading::default() });
        assert_eq!(plain.encode("type").unwrap().len(), 1);
        let tokenizer = tokenizer(Reading::default());
        let count = |text: &str| tokenizer.encode(text).unwrap().len();
        for label in ["OK", "Cancel", "Top", "Rename", "Wifi", "delete", "find", "cancel", "home"] {
            assert_eq!(count(label), 1, "{label}");
        }
        for name in Suite::Pocket.names() {
            assert_eq!(count(&name), name.len(), "{name}");
        }
        // a folder is called `Archive 2024`, and a button `Archive`
        assert!(Suite::Desktop.names().iter().all(|name| !name.eq_ignore_ascii_case("archive")));
    }

    fn dimensions_of(options: &SupervisedOptions) -> Result<ModelConfig, String> {
        dimensions(options).map_err(|error| error.to_string())
    }
}
