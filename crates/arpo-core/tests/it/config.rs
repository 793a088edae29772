//! The configuration from a user's point of view: presets, layers, errors.

use arpo_core::config::presets::PRESETS;
use arpo_core::config::{Config, Layer, StyleChoice, reference, resolve};
use arpo_core::generation::Generation;
use arpo_core::loss::{Objective, RatioLevel};

fn set(assignment: &str) -> Result<Config, String> {
    Layer::set(assignment).and_then(|layer| resolve(&[layer])).map_err(|error| error.to_string())
}

#[test]
fn every_shipped_config_loads() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    let mut shipped = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "toml") {
            continue; // a list of tasks
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let layer = Layer::toml(&path.display().to_string(), &text).unwrap();
        resolve(&[layer]).unwrap_or_else(|error| panic!("{error}"));
        shipped.push(path.file_stem().unwrap().to_string_lossy().into_owned());
    }
    shipped.sort();
    let mut presets = PRESETS.map(|(name, _)| name).to_vec();
    presets.sort_unstable();
    assert_eq!(shipped, presets, "every TOML file under configs/ is a preset");
}

#[test]
fn resolved_toml_reads_back_the_same() {
    for (name, _) in PRESETS {
        let config = resolve(&[Layer::preset(name).unwrap()]).unwrap();
        let again = resolve(&[Layer::toml("printed", &config.to_toml()).unwrap()]).unwrap();
        assert_eq!(again, config);
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config);
    }
}

#[test]
fn configurations_of_earlier_versions_still_load() {
    let config = resolve(&[Layer::preset("quick").unwrap()]).unwrap();
    let stored = config.to_toml().replace("[osworld]\n", "[osworld]\npython = \"\"\n");
    assert_ne!(stored, config.to_toml());
    assert_eq!(resolve(&[Layer::toml("config.toml", &stored).unwrap()]).unwrap(), config);
}

#[test]
fn presets_hold_the_published_constants() {
    let preset = |name| resolve(&[Layer::preset(name).unwrap()]).unwrap();
    let (paper, released) = (preset("paper"), preset("released"));
    for config in [&paper, &released] {
        assert_eq!((config.loss.clip_low, config.loss.clip_high), (0.2, 0.3));
        assert_eq!((config.collect.tasks, config.collect.group_size, config.collect.max_steps), (16, 8, 15));
        assert_eq!((config.replay.capacity, config.reward.success_above), (8, 0.1));
        assert_eq!((config.replay.fail_mean_below, config.replay.fail_std_below), (0.2, 0.05));
        assert_eq!((config.optimiser.learning_rate, config.optimiser.max_grad_norm), (1e-6, 1.0));
        assert_eq!((config.agent.max_screenshots, config.loss.kl_coefficient), (15, 0.0));
    }
    assert_eq!((paper.reward.format_weight, paper.loss.clip_dual), (1.0, 0.0));
    let (full, subset) = (preset("osworld"), preset("osworld-subset32"));
    assert_eq!((full.collect.tasks, full.collect.desktops, full.iterations), (16, 128, 120));
    assert_eq!((subset.collect.tasks, subset.collect.desktops, subset.iterations), (2, 16, 240));
    for config in [&full, &subset] {
        assert_eq!((&config.loss, &config.replay), (&paper.loss, &paper.replay));
        assert_eq!((config.collect.group_size, config.collect.max_steps), (8, 15));
        assert_eq!((config.optimiser.learning_rate, config.agent.max_pixels), (1e-6, 2_116_800));
    }
    assert_eq!((released.reward.format_weight, released.loss.clip_dual), (0.5, 3.0));
}

#[test]
fn later_layers_win_and_leave_the_rest() {
    let layers = [
        Layer::preset("released").unwrap(),
        Layer::toml("my.toml", "seed = 3\n[loss]\nclip_high = 0.28\n").unwrap(),
        Layer::set("loss.clip_high=0.25").unwrap(),
        Layer::set("loss.kl=mse").unwrap(),
        Layer::set("replay.enabled = false").unwrap(),
    ];
    let config = resolve(&layers).unwrap();
    assert_eq!((config.seed, config.loss.clip_high, config.loss.clip_dual), (3, 0.25, 3.0));
    assert_eq!((config.loss.kl, config.replay.enabled), (arpo_core::loss::KlKind::Mse, false));
}

#[test]
fn the_generation_is_osworld_s_or_that_of_the_task() {
    for (name, generation) in
        [("task", None), ("arpo_era", Some(Generation::ArpoEra)), ("verified", Some(Generation::Verified))]
    {
        let config = set(&format!("osworld.generation={name}")).unwrap();
        assert_eq!(config.osworld.generation, generation);
        assert!(config.to_toml().contains(&format!("\ngeneration = \"{name}\"\n")));
        let json = serde_json::to_value(&config).unwrap();
        assert_eq!(json["osworld"]["generation"], name);
        assert_eq!(serde_json::from_value::<Config>(json).unwrap(), config);
    }
    assert_eq!(Config::default().osworld.generation, None);
}

#[test]
fn errors_name_the_key_the_value_and_what_was_expected() {
    for (assignment, message) in [
        (
            "loss.clip_hihg=0.3",
            "`loss.clip_hihg` = 0.3: there is no such key; did you mean `loss.clip_high`?",
        ),
        ("clip_high=0.3", "`clip_high` = 0.3: there is no such key; did you mean `loss.clip_high`?"),
        // keys of older versions
        (
            "replay.success_above=0.5",
            "`replay.success_above` = 0.5: there is no such key; did you mean `reward.success_above`?",
        ),
        (
            "selection.success_above=0.5",
            "`selection.success_above` = 0.5: there is no such key; did you mean `reward.success_above`?",
        ),
        ("chat.servers=[1]", "`chat.servers` = [1]: expected a list of strings"),
        ("chat.servers=3", "`chat.servers` = 3: expected a list of strings"),
        (
            "reward.zzz=1",
            "`reward.zzz` = 1: there is no such key; expected one of success_above, format_weight, judge_unparsable",
        ),
        ("loss.clip_high=wide", "`loss.clip_high` = \"wide\": expected a number from 0 to 100"),
        ("loss.clip_low=1.5", "`loss.clip_low` = 1.5: expected a number from 0 to 0.99"),
        ("loss.clip_low=nan", "`loss.clip_low` = nan: expected a number from 0 to 0.99"),
        ("seed=-1", "`seed` = -1: expected a whole number from 0 to 4294967295"),
        ("seed=1.5", "`seed` = 1.5: expected a whole number from 0 to 4294967295"),
        ("collect.group_size=0", "`collect.group_size` = 0: expected a whole number from 2 to 10000"),
        ("replay.enabled=1", "`replay.enabled` = 1: expected true or false"),
        (
            "osworld.generation=arpo-era",
            "`osworld.generation` = \"arpo-era\": expected one of \"task\", \"arpo_era\", \"verified\"",
        ),
        ("advantage.kind=gae", "`advantage.kind` = \"gae\": expected one of \"grpo\", \"dr_grpo\", \"rloo\""),
        (
            "reward=1",
            "`reward` = 1: expected a section with the keys success_above, format_weight, judge_unparsable",
        ),
        ("seed.x=1", "`seed` = { x = 1 }: expected a whole number from 0 to 4294967295"),
        (
            "beta=1",
            "`beta` = 1: there is no such key; did you mean `offline.dpo.beta` or `offline.kto.beta`?",
        ),
        ("loss", "expected key=value"),
        ("loss..x=1", "expected key=value with a key like loss.clip_high"),
    ] {
        assert_eq!(set(assignment).unwrap_err(), format!("--set {assignment}: {message}"));
    }
}

#[test]
fn lists_are_lists_or_a_single_string() {
    let servers = |assignment: &str| set(assignment).unwrap().chat.servers;
    assert_eq!(servers(r#"chat.servers=["http://a/v1", "http://b/v1"]"#), ["http://a/v1", "http://b/v1"]);
    assert_eq!(servers("chat.servers=http://a/v1"), ["http://a/v1"]);
    assert!(servers("chat.servers=[]").is_empty());
}

#[test]
fn errors_are_one_line_whatever_the_input() {
    for assignment in [
        "loss.kl=a\nb",
        "a\nb=1",
        "loss.clip_low=\"\"\"\nx\n\"\"\"",
        "loss={a=1,\nb=2}",
        "seed=99999999999999999999",
    ] {
        let message = set(assignment).unwrap_err();
        assert!(!message.contains('\n'), "{message}");
    }
}

/// The prompt was named after UI-TARS when there was no other style.
#[test]
fn a_style_is_chosen_by_its_own_key() {
    let old = set("agent.prompt=uitars").unwrap_err();
    assert!(
        old.contains("`agent.prompt` = \"uitars\"") && old.contains("one of \"full\", \"short\""),
        "{old}"
    );
    assert_eq!(set("agent.style=computer_use").unwrap().agent.style, StyleChoice::ComputerUse);
    assert!(set("agent.grid=1001").is_err() && set("agent.grid=1000").is_ok());
}

#[test]
fn rules_between_keys_are_checked_too() {
    assert_eq!(
        set("loss.clip_dual=0.5").unwrap_err(),
        "configuration: `loss.clip_dual` = 0.5: expected a number above 1, or 0 to switch the dual clip off"
    );
    assert_eq!(
        set("agent.min_pixels=3000000").unwrap_err(),
        "configuration: `agent.min_pixels` = 3000000: expected at most `agent.max_pixels` = 2116800"
    );
    assert_eq!(
        set("agent.max_pixels=700").unwrap_err(),
        "configuration: `agent.max_pixels` = 700: expected at least 784, or 0 for the model's own limit"
    );
    assert_eq!(
        set("agent.window_advance=16").unwrap_err(),
        "configuration: `agent.window_advance` = 16: expected at most `agent.max_screenshots` = 15"
    );
    assert_eq!(
        set("collect.mode=\"overlapped\"").unwrap_err(),
        "configuration: `collect.mode` = \"overlapped\" samples with older weights than it trains: expected a \
         correction, `loss.old` = \"sampler\" or `loss.importance_truncation` = 2.0"
    );
    let probes = set("effort.probe_rollouts=1").unwrap_err();
    assert!(
        probes.starts_with("configuration: `effort.probe_rollouts` = 1: expected at least 2"),
        "{probes}"
    );
    let seeded = set("replay={enabled=false, seed_from=\"a\"}").unwrap_err();
    assert_eq!(
        seeded,
        "configuration: `replay.seed_from` = \"a\" fills a buffer that is not used: expected `replay.enabled` = true"
    );
    assert_eq!(
        set("replay.injections=8").unwrap_err(),
        "configuration: `replay.injections` = 8: expected less than `collect.group_size` = 8, \
         because a group needs at least one fresh member"
    );
    let settings = ["learn={ranks=4, gpus=3}", "rollout={engine=\"vllm\", servers=[\"http://a:1\"]}"];
    let split = resolve(&settings.map(|setting| Layer::set(setting).unwrap())).unwrap_err().to_string();
    assert_eq!(
        split,
        "configuration: `learn.gpus` = 3 leaves the other ranks to sample, while servers do that: expected 0, or \
         `rollout.engine` = \"builtin\""
    );
}

/// Tasks come from one source; conflicting keys are named.
#[test]
fn generated_tasks_exclude_other_sources() {
    let with = |assignments: &[&str]| {
        let layers: Vec<Layer> = assignments.iter().map(|one| Layer::set(one).unwrap()).collect();
        resolve(&layers).map(drop).map_err(|error| error.to_string())
    };
    for (assignments, message) in [
        (
            &["tasks.generated=9", "tasks.files=\"mine.json\""][..],
            "`tasks.generated` = 9 and `tasks.files` = \"mine.json\" both define the training tasks: expected one of them \
             (`tasks.files` = \"\")",
        ),
        (
            &["tasks.generated=9", "tasks.list=\"quick\""],
            "`tasks.generated` = 9 and `tasks.list` = \"quick\" both define the training tasks: expected one of them \
             (`tasks.list` = \"\")",
        ),
        (
            &["tasks.endless=true", "tasks.count=4"],
            "`tasks.endless` = true and `tasks.count` = 4 both define the training tasks: expected one of them \
             (`tasks.count` = 0)",
        ),
        (
            &["tasks.endless=true", "tasks.suite=\"osworld\""],
            "`tasks.endless` = true: `tasks.suite` = \"osworld\" has no templates to generate tasks from: expected \
             \"pocket\" or \"desktop\"",
        ),
        (
            &["tasks.endless=true", "task_sampling.order=\"weighted\""],
            "`tasks.endless` = true: no task is repeated, so `task_sampling.order` = \"weighted\" has no history to use: \
             expected \"shuffled\", or `task_sampling.history` = \"template\"",
        ),
        (
            &["tasks.endless=true", "evaluation.unseen=\"ends\""],
            "`tasks.endless` = true with `tasks.generated` = 0 has no trained tasks to evaluate on: expected \
             `evaluation.unseen` = \"always\", or `tasks.generated` = 64",
        ),
    ] {
        assert_eq!(with(assignments), Err(format!("configuration: {message}")), "{assignments:?}");
    }
    for fine in [
        &["tasks.generated=1000000"][..],
        &["tasks.endless=true"],
        &["tasks.endless=true", "task_sampling.order=\"weighted\"", "task_sampling.history=\"template\""],
        &["tasks.endless=true", "tasks.generated=64", "evaluation.unseen=\"never\""],
        &["tasks.endless=true", "evaluation.unseen=\"never\"", "evaluation.every=0"],
    ] {
        assert_eq!(with(fine), Ok(()), "{fine:?}");
    }
    let message = set("tasks.generated=1000001").unwrap_err();
    assert!(message.ends_with("expected a whole number from 0 to 1000000"), "{message}");
}

/// Who names tasks of their own need not know where those of the preset come from.
#[test]
fn a_presets_tasks_give_way_to_named_ones() {
    let tasks = |preset: &str, assignments: &[&str]| {
        let sets = assignments.iter().map(|one| Layer::set(one).unwrap());
        let layers: Vec<Layer> = [Layer::preset(preset).unwrap()].into_iter().chain(sets).collect();
        resolve(&layers).map(|config| config.tasks).map_err(|error| error.to_string())
    };
    let found = tasks("quick", &["tasks.files=\"mine.json\""]).unwrap();
    assert_eq!((found.files.as_str(), found.generated), ("mine.json", 0));
    let found = tasks("quick", &["tasks.generated=64"]).unwrap();
    assert_eq!(found.generated, 64);
    let found = tasks("quick", &["tasks.list=\"quick\"", "tasks.count=4"]).unwrap();
    assert_eq!((found.generated, found.list.as_str(), found.count), (0, "quick", 4));
    let found = tasks("quick", &["tasks.count=4"]).unwrap();
    assert_eq!((found.generated, found.count), (0, 4));
    let found = tasks("quick", &["tasks.suite=\"osworld\""]).unwrap();
    assert_eq!((found.generated, found.list.as_str()), (0, ""));
    let found = tasks("quick", &["tasks.suite=\"desktop\""]).unwrap();
    assert_eq!(found.generated, 4096);
    let found = tasks("osworld", &["tasks.files=\"mine\""]).unwrap();
    assert_eq!((found.files.as_str(), found.list.as_str()), ("mine", ""));
    // a number of the tasks of the preset's list
    let found = tasks("osworld", &["tasks.count=4"]).unwrap();
    assert_eq!((found.list.as_str(), found.count), ("osworld-128", 4));
    // what names nothing replaces nothing
    let found = tasks("quick", &["tasks.list=\"\"", "tasks.files=\"\""]).unwrap();
    assert_eq!(found.generated, 4096);
    // two that were both named are a mistake still
    let both = tasks("quick", &["tasks.generated=64", "tasks.files=\"mine.json\""]).unwrap_err();
    assert!(both.contains("both define the training tasks"), "{both}");
}

/// `gspo` and `sapo` are `quick` with another loss, so that the losses can be compared.
#[test]
fn the_losses_of_presets_can_be_compared() {
    let preset = |name| resolve(&[Layer::preset(name).unwrap()]).unwrap();
    let quick = preset("quick");
    let (gspo, sapo) = (preset("gspo"), preset("sapo"));
    assert_eq!((gspo.loss.ratio, gspo.loss.objective), (RatioLevel::Trajectory, Objective::Clip));
    assert_eq!((sapo.loss.ratio, sapo.loss.objective), (RatioLevel::Token, Objective::SoftGate));
    for other in [gspo, sapo] {
        assert_eq!(Config { loss: quick.loss.clone(), ..other }, quick);
    }
    // and the same two files work on top of any other preset
    let file = Layer::toml("gspo.toml", include_str!("../../../../configs/gspo.toml")).unwrap();
    let osworld = resolve(&[Layer::preset("osworld").unwrap(), file]).unwrap();
    assert_eq!((osworld.loss.ratio, osworld.collect.tasks), (RatioLevel::Trajectory, 16));
}

#[test]
fn errors_in_files_have_the_name_and_the_line() {
    let broken = Layer::toml("my.toml", "seed = 1\nloss = = 2\n").unwrap_err().to_string();
    assert!(broken.starts_with("my.toml: line 2 is not TOML: "), "{broken}");
    assert!(!broken.contains('\n'), "{broken}");
    let unknown = resolve(&[Layer::toml("my.toml", "speed = 1").unwrap()]).unwrap_err().to_string();
    assert!(unknown.starts_with("my.toml: `speed` = 1: there is no such key; "), "{unknown}");
    assert_eq!(
        Layer::preset("fast").unwrap_err().to_string(),
        "--preset: there is no preset \"fast\": expected one of quick, gspo, sapo, paper, released, osworld, osworld-subset32"
    );
}

#[test]
fn the_committed_reference_is_what_the_program_writes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == reference::markdown(),
        "docs/configuration.md is out of date: ./x config reference > docs/configuration.md"
    );
}
