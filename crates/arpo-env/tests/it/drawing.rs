//! What is drawn: pocket text on the patch grid, the same pixels everywhere, and labels that fit.

use crate::{later, scene, started};
use arpo_core::action::{Action, ModelBox};
use arpo_core::random::{Purpose, stream};
use arpo_env::embedded::EmbeddedDesktop;
use arpo_env::environment::Environment;
use arpo_env::grounding::{
    Asking, FIND_WORDS, GroundingAnswer, label_at, questions, questions_about_names, texts_to_type,
};
use arpo_env::look::{Font, Profile, ScreenOptions, Theme};
use arpo_env::oracle::Oracle;
use arpo_env::tasks::Suite;
use arpo_env::view::Role;
use serde_json::json;
use std::collections::BTreeSet;

/// Runs pocket tasks and passes every screen to a check.
fn on_pocket_screens(check: impl Fn(&EmbeddedDesktop)) {
    let options = ScreenOptions { tint: false, ..ScreenOptions::pocket() };
    let mut environment = EmbeddedDesktop::new(options).unwrap();
    for (seed, task) in Suite::Pocket.all_tasks().enumerate() {
        let mut oracle = Oracle::new();
        environment.reset(task, seed as u64, later()).unwrap();
        for _ in 0..20 {
            check(&environment);
            if environment.step(&oracle.next_action(&environment), later()).unwrap().terminated {
                break;
            }
        }
    }
}

/// Rows and columns that hold text-coloured pixels right of a widget's first patch.
fn ink(environment: &EmbeddedDesktop, rect: [f32; 4]) -> Vec<(u32, u32)> {
    let image = environment.screen().unwrap().image().unwrap();
    let [left, top, right, _] = rect.map(|edge| edge as u32);
    let mut pixels = Vec::new();
    // inside the frame, across the whole cell
    for y in top - 12..(top + 16).min(image.height()) {
        for x in left + 11..(right - 1).min(image.width()) {
            if image.get_pixel(x, y).0.iter().all(|channel| *channel < 60) {
                pixels.push((x, y));
            }
        }
    }
    pixels
}

#[test]
fn pocket_text_starts_on_a_patch_and_stays_in_one_row_of_patches() {
    on_pocket_screens(|environment| {
        for widget in environment.widgets() {
            let plain =
                matches!(widget.role, Role::Label | Role::Button | Role::Item | Role::Entry | Role::Toggle);
            let dark = widget.value == arpo_env::view::Value::On(true) && widget.role != Role::Toggle;
            if !plain || dark || !widget.enabled || !widget.label.starts_with(|c: char| c.is_alphabetic()) {
                continue;
            }
            let ink = ink(environment, widget.rect);
            let first =
                ink.iter().map(|(x, _)| *x).min().unwrap_or_else(|| panic!("{widget:?} shows nothing"));
            // the leftmost pixels of a letter are its first or second column
            assert!(matches!(first % 14, 0..=2), "{widget:?} starts at {first}");
            let rows = (ink.iter().map(|(_, y)| y / 14).min(), ink.iter().map(|(_, y)| y / 14).max());
            assert_eq!(rows.0, rows.1, "{widget:?} lies in two rows of patches");
        }
    });
}

#[test]
fn pocket_labels_fit_their_cells() {
    on_pocket_screens(|environment| {
        for widget in environment.widgets().iter().filter(|widget| widget.role != Role::Slider) {
            let room = (widget.rect[2] + 2.0 - widget.rect[0] - 12.0) / 6.0;
            let label = widget.label.chars().count() as f32;
            assert!(label <= room, "{} needs {label} of {room} characters", widget.label);
        }
    });
}

/// FNV-1a of all pixels.
fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Pins the pixels of pocket screens and of desktops in the same font: they come from our own font and integer
/// blending, so that every machine must draw the same.
#[test]
fn pixels_are_the_same_on_every_machine() {
    let pocket = ScreenOptions::pocket();
    let desktop = ScreenOptions { font: Some(Font::Pixel), ..ScreenOptions::desktop(640, 480) };
    let dark = |screen: &ScreenOptions| ScreenOptions { theme: Some(Theme::Dark), ..screen.clone() };
    let light = ScreenOptions { theme: Some(Theme::Light), ..desktop.clone() };
    let mut digests = Vec::new();
    for (screen, app) in [
        (pocket.clone(), "settings"),
        (pocket.clone(), "files"),
        (pocket.clone(), "sheet"),
        (dark(&pocket), "mail"),
        (light, "files"),
        (dark(&desktop), "shop"),
    ] {
        let desk = started(screen, json!([{"type": "open", "application": app}]));
        digests.push(digest(desk.screen().unwrap().image().unwrap().as_raw()));
    }
    assert_eq!(digests, PINNED);
}

/// A thousand desktops coexist, each with its own state.
#[test]
fn a_thousand_desktops_live_in_one_process() {
    let setup = |level: u32| json!([{"type": "set", "path": "/player/volume", "value": level}]);
    let mut desktops: Vec<_> =
        (0..1000).map(|number| started(ScreenOptions::pocket(), setup(number % 10))).collect();
    for (number, desktop) in desktops.iter_mut().enumerate() {
        let volume = crate::world(desktop, "/player/volume");
        assert_eq!(volume, Some(json!(number % 10)));
        crate::act(desktop, arpo_core::action::Action::Wait {});
    }
}

const PINNED: [u64; 6] = [
    971_048_162_036_148_674,
    8_981_012_944_927_665_733,
    6_212_256_350_162_809_235,
    9_588_751_809_267_357_358,
    13_791_243_939_242_071_361,
    9_175_564_721_090_074_020,
];

#[test]
fn themes_and_fonts_vary_with_the_seed_unless_fixed() {
    let mut corners = std::collections::BTreeSet::new();
    let mut environment = EmbeddedDesktop::new(ScreenOptions::desktop(640, 480)).unwrap();
    for seed in 0..12 {
        environment.reset(&scene(json!([{"type": "open", "application": "mail"}])), seed, later()).unwrap();
        let look = environment.desktop().unwrap().look.clone();
        corners.insert(format!("{:?} {:?}", look.theme, look.font));
    }
    assert!(corners.len() >= 4, "{corners:?}");
    let fixed = ScreenOptions { theme: Some(Theme::Dark), ..ScreenOptions::desktop(640, 480) };
    assert_eq!(fixed.profile, Profile::Desktop);
    assert!((0..12).all(|seed| fixed.look(seed).theme == Theme::Dark));
}

const ASKING: Asking = Asking { count: 8, reworded: false, names_first: false };

#[test]
fn grounding_questions_have_the_right_answers() {
    for suite in Suite::ALL {
        let mut environment = EmbeddedDesktop::new(suite.screen()).unwrap();
        let mut kinds = (0, 0);
        for (seed, task) in suite.all_tasks().enumerate().step_by(11) {
            environment.reset(task, seed as u64, later()).unwrap();
            let widgets = environment.widgets();
            let mut rng = stream(seed as u64, Purpose::Environment, 9, 0);
            for question in questions(&widgets, ASKING, &mut rng) {
                match (question.text.split_once(' ').unwrap(), question.answer) {
                    (
                        ("find", label),
                        GroundingAnswer::Act(arpo_core::action::Action::Click { start_box }),
                    ) => {
                        kinds.0 += 1;
                        assert_eq!(label_at(&widgets, start_box.x1, start_box.y1), Some(label));
                    }
                    (("read", at), GroundingAnswer::Label(label)) => {
                        kinds.1 += 1;
                        let (x, y) = at.split_once(',').unwrap();
                        let found = label_at(&widgets, x.parse().unwrap(), y.parse().unwrap());
                        assert_eq!(found, Some(label.as_str()));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(kinds.0 > kinds.1 && kinds.1 > 10, "{kinds:?}");
    }
}

#[test]
fn reworded_questions_ask_for_the_same() {
    let mut environment = EmbeddedDesktop::new(Suite::Pocket.screen()).unwrap();
    let mut asked = BTreeSet::new();
    let mut lower = 0;
    for (seed, task) in Suite::Pocket.all_tasks().enumerate().step_by(3) {
        environment.reset(task, seed as u64, later()).unwrap();
        let widgets = environment.widgets();
        let mut rng = stream(seed as u64, Purpose::Environment, 9, 0);
        for question in questions(&widgets, Asking { reworded: true, ..ASKING }, &mut rng) {
            let GroundingAnswer::Act(arpo_core::action::Action::Click { start_box }) = question.answer else {
                continue;
            };
            let words = FIND_WORDS.into_iter().find(|words| question.text.starts_with(words)).unwrap();
            let label = &question.text[words.len() + 1..];
            let shown = label_at(&widgets, start_box.x1, start_box.y1).unwrap();
            assert_eq!(label.to_lowercase(), shown.to_lowercase());
            lower += usize::from(label != shown);
            asked.insert(words);
        }
    }
    assert!(asked.len() == FIND_WORDS.len() && lower > 10, "{asked:?} {lower}");
}

#[test]
fn texts_to_type_are_short_random_names_and_numbers() {
    let mut rng = stream(3, Purpose::Environment, 9, 0);
    let (mut lengths, mut numbers, mut capitals) = (BTreeSet::new(), 0, 0);
    for question in texts_to_type(Suite::Pocket, 300, &mut rng) {
        let text = question.text.strip_prefix("type ").unwrap().to_owned();
        assert_eq!(question.answer, GroundingAnswer::Act(Action::Type { content: text.clone() }));
        lengths.insert(text.len());
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        assert!(is_number || text[1..].bytes().all(|byte| byte.is_ascii_lowercase()), "{text}");
        numbers += u32::from(is_number);
        capitals += u32::from(text.starts_with(|first: char| first.is_ascii_uppercase()));
    }
    assert_eq!(lengths, (1..=6).collect());
    assert!((70..130).contains(&numbers) && (70..130).contains(&capitals), "{numbers} {capitals}");

    // names of files, two words, times of day
    let texts = texts_to_type(Suite::Desktop, 300, &mut rng).into_iter().map(|question| question.text);
    let texts: Vec<String> = texts.map(|text| text.strip_prefix("type ").unwrap().to_owned()).collect();
    for between in [' ', '.', ':'] {
        let parts: Vec<_> = texts.iter().filter_map(|text| text.split_once(between)).collect();
        let fits = |text: &str, longest: usize| {
            (1..=longest).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        assert!(
            parts.len() > 30 && parts.iter().all(|(one, two)| fits(one, 10) && fits(two, 4)),
            "{parts:?}"
        );
    }
    assert!(texts.iter().any(|text| text.len() == 10 && text.chars().all(char::is_alphanumeric)));
}

#[test]
fn names_in_lists_are_asked_about_first() {
    let mut environment = EmbeddedDesktop::new(Suite::Pocket.screen()).unwrap();
    let (mut read, mut screens) = (0, 0);
    for (seed, task) in Suite::Pocket.all_tasks().enumerate().step_by(3) {
        environment.reset(task, seed as u64, later()).unwrap();
        let widgets = environment.widgets();
        let mut names: Vec<&str> = widgets
            .iter()
            .filter(|widget| widget.role == Role::Item && widget.is_clickable())
            .filter(|widget| !widget.id.starts_with("alarms:") && widget.label != "Top")
            .map(|widget| widget.label.as_str())
            .collect();
        names.retain(|name| widgets.iter().filter(|widget| widget.label == *name).count() == 1);
        let mut rng = stream(seed as u64, Purpose::Environment, 9, 0);
        let asked = questions(&widgets, Asking { names_first: true, ..ASKING }, &mut rng);
        let (about_names, others) = asked.split_at(names.len().min(ASKING.count));
        let is_about_a_name = |text: &str, answer: &GroundingAnswer| match answer {
            GroundingAnswer::Label(label) => names.contains(&label.as_str()),
            GroundingAnswer::Act(_) => names.iter().any(|name| text == format!("find {name}")),
        };
        assert!(about_names.iter().all(|one| is_about_a_name(&one.text, &one.answer)), "{about_names:?}");
        assert!(!others.iter().any(|one| is_about_a_name(&one.text, &one.answer)), "{others:?}");
        for [find, question, typed] in questions_about_names(&widgets) {
            let GroundingAnswer::Label(label) = question.answer else { panic!("{question:?}") };
            let (x, y) = question.text.strip_prefix("read ").unwrap().split_once(',').unwrap();
            let click = Action::Click { start_box: ModelBox::point(x.parse().unwrap(), y.parse().unwrap()) };
            assert_eq!((find.text, find.answer), (format!("find {label}"), GroundingAnswer::Act(click)));
            let action = Action::Type { content: label.clone() };
            assert_eq!((typed.text, typed.answer), (format!("type {label}"), GroundingAnswer::Act(action)));
            assert_eq!(label_at(&widgets, x.parse().unwrap(), y.parse().unwrap()), Some(label.as_str()));
            read += 1;
        }
        screens += usize::from(!names.is_empty());
    }
    assert!(read > 20 && screens > 5, "{read} names, {screens} screens");
}
