//! An untrained model: its dimensions, a tokenizer trained on the oracle's prompts and responses, and an image processor.

use super::desktops::on_desktops;
use super::reading::{Lesson, lesson};
use super::{Family, SupervisedOptions};
use crate::TrainError;
use crate::demonstrations::{MAX_QUESTIONS, oracle_episode_of, response_text, screens_on_the_way};
use arpo_agent::geometry::Size;
use arpo_core::random::{Purpose, stream};
use arpo_env::grounding::{Asking, questions};
use arpo_env::layout::Widget;
use arpo_env::letters::SQUARE;
use arpo_env::tasks::Suite;
use arpo_model::config::{self, ModelConfig};
use arpo_tokenizer::train::{self, Spaces, Words};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Oracle episodes whose text the tokenizer is trained on.
const TOKENIZER_EPISODES: u64 = 3000;

/// The dimensions and side files of a fresh model.
pub fn model(options: &SupervisedOptions) -> Result<(ModelConfig, BTreeMap<String, Vec<u8>>), TrainError> {
    let config = dimensions(options)?;
    let side_files = side_files(options, &config)?;
    Ok((config, side_files))
}

/// The dimensions of a fresh model: those of a file, or of the suite and the family.
pub fn dimensions(options: &SupervisedOptions) -> Result<ModelConfig, TrainError> {
    let config = given_or_usual(options)?;
    let token = config.vision.patch * config.vision.merge;
    if options.letter_updates > 0 && token != i64::from(SQUARE) {
        return Err(TrainError::Configuration(format!(
            "--letter-updates {}: an image token of this model is {token} pixels wide; expected 0, or a model with {SQUARE}",
            options.letter_updates
        )));
    }
    Ok(config)
}

fn given_or_usual(options: &SupervisedOptions) -> Result<ModelConfig, TrainError> {
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

/// Bytes and special tokens, and room for some words.
const SMALLEST_VOCABULARY: i64 = 512;

fn read(path: &Path, family: Family) -> Result<ModelConfig, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let value = serde_json::from_str(&text).map_err(|error| format!("not JSON: {error}"))?;
    let config = config::parse_with_own_tokens(value)?;
    let (found, wanted) = (config.architecture.model_type(), family.model_type());
    if found != wanted {
        return Err(format!("`model_type` is {found:?}: expected {wanted:?}, which --family names"));
    }
    let size = config.text.vocabulary;
    if size < SMALLEST_VOCABULARY {
        return Err(format!("`vocab_size` is {size}: expected at least {SMALLEST_VOCABULARY}"));
    }
    Ok(config)
}

fn side_files(
    options: &SupervisedOptions,
    config: &ModelConfig,
) -> Result<BTreeMap<String, Vec<u8>>, TrainError> {
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
            let screens = screens_on_the_way(desktop, &task, number, None, &mut rng)?;
            screens.into_iter().map(|(_, widgets)| widgets).collect()
        } else {
            vec![desktop.widgets()]
        };
        let mut texts = vec![format!("{}\n{}", style.system, episode.instruction)];
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
    fn letters_are_learnt_in_tokens_of_their_squares() {
        let options = SupervisedOptions { letter_updates: 5, ..test_options(Reading::default()) };
        assert!(dimensions_of(&options).is_ok());
        let finer = std::env::temp_dir().join(format!("arpo-finer-{}.json", std::process::id()));
        let config = include_str!("../../../../models/pocket/config.json");
        let mut value: Value = serde_json::from_str(config).unwrap();
        value["vision_config"]["patch_size"] = json!(7);
        std::fs::write(&finer, value.to_string()).unwrap();
        let options = SupervisedOptions { dimensions: Some(finer.display().to_string()), ..options };
        let refused = dimensions_of(&options).unwrap_err();
        assert!(refused.ends_with(
            "--letter-updates 5: an image token of this model is 14 pixels wide; expected 0, or a model with 28"
        ), "{refused}");
        std::fs::remove_file(&finer).unwrap();
    }

    /// Also labels of dialogs, which are on no last screen of an episode.
    #[test]
    fn labels_are_tokens_and_names_are_spelled() {
        let options = test_options(Reading::default());
        let (_, files) = model(&options).unwrap();
        let tokenizer = arpo_tokenizer::Tokenizer::new(&files, Path::new("made")).unwrap();
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
