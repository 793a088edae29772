//! The text of images, read by a real tesseract; skipped where there is none.

use crate::golden::folder;
use arpo_core::generation::Generation;
use arpo_osworld::host::TESSERACT;
use arpo_osworld::metrics::{self, Settings};
use arpo_osworld::state::{FileState, State};
use serde_json::{Map, Value, json};

/// Whether the test can go on.
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn has_reader() -> bool {
    let installed = TESSERACT.is_installed();
    if !installed {
        println!("skipped: {}", TESSERACT.missing());
    }
    installed
}

fn image(name: &str) -> State {
    let path = folder().join("files").join(name);
    State::File(FileState::new(name, std::fs::read(path).unwrap()))
}

fn score(image: &State, rule: &Value, generation: Generation) -> Result<f64, String> {
    let settings = Settings { generation, sandbox: None };
    metrics::score("compare_image_text", image, Some(&State::Json(rule.clone())), &Map::new(), &settings)
        .map_err(|error| error.to_string())
}

#[test]
fn what_a_terminal_shows_is_read() {
    if !has_reader() {
        return;
    }
    for name in ["media_terminal_light.png", "media_terminal_dark.png"] {
        for generation in Generation::ALL {
            let holds = |text: &str| {
                let rule = json!({"type": "text", "text": text});
                score(&image(name), &rule, generation).unwrap() > 0.5
            };
            for shown in ["Desktop Documents", "music", "vm:", " Ls", "LS"] {
                assert!(holds(shown), "{name}: {shown}");
            }
            for other in ["Desktop Music", "Pictures", "cd"] {
                assert!(!holds(other), "{name}: {other}");
            }
        }
    }
}

#[test]
fn an_image_without_text_has_none() {
    if !has_reader() {
        return;
    }
    let rule = json!({"type": "text", "text": "ls"});
    for generation in Generation::ALL {
        let score = score(&image("more_i_flat.png"), &rule, generation).unwrap();
        assert!(score < 0.5, "{generation:?}");
    }
    let other = json!({"type": "size", "text": "ls"});
    let terminal = image("media_terminal_light.png");
    assert!(score(&terminal, &other, Generation::ArpoEra).unwrap_err().starts_with("raises"));
    assert!(score(&terminal, &other, Generation::Verified).unwrap() < 0.5);
}
