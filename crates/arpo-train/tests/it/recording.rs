//! What a run keeps for a viewer: episodes that are found by their index, tokens, failures, the state of the run; within its
//! budget, once, and whatever happens to the disk.

use crate::coordinator::{Log, config, parts};
use crate::run_folder::Temporary;
use crate::toy::{Behaviour, factory, options};
use arpo_core::config::{Config, Order};
use arpo_core::task::TaskId;
use arpo_core::trajectory::{
    EpisodeId, Observation, Outcome, PolicyVersion, Slice, Step, TokenId, TokenSpan, Trajectory,
};
use arpo_train::collect::Collector;
use arpo_train::episode::EpisodeScreen;
use arpo_train::run::about::{RunAbout, set_view};
use arpo_train::run::episodes::budget::EpisodeFile;
use arpo_train::run::episodes::index::{EpisodeAbout, EpisodeOrigin, IndexLine};
use arpo_train::run::episodes::store::{Budget, EpisodeDraft, EpisodeRecord, EpisodeStore, Resumed, up_to};
use arpo_train::run::episodes::{self};
use arpo_train::run::events::RunEvent;
use arpo_train::run::stop::StopSwitch;
use arpo_train::run::{RunFolder, Start};
use arpo_train::trainer::parts::Parts;
use arpo_train::trainer::train_with;
use image::{Rgb, RgbImage};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn json_lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The lines of episodes that are still there, each found where its line says.
fn index(run: &Path) -> Vec<IndexLine> {
    let lines = json_lines(&run.join("episodes/index.jsonl"));
    let dropped: BTreeSet<String> =
        lines.iter().filter_map(|line| Some(line.get("dropped")?.as_str()?.to_owned())).collect();
    let episodes = lines.into_iter().filter(|line| line.get("dropped").is_none());
    let lines: Vec<IndexLine> = episodes.map(|line| serde_json::from_value(line).unwrap()).collect();
    let left: Vec<IndexLine> = lines.into_iter().filter(|line| !dropped.contains(&line.file)).collect();
    for line in &left {
        let trajectory = stored(run, line);
        trajectory.check().unwrap();
        assert_eq!((&trajectory.id, trajectory.steps.len()), (&line.id, line.turns));
        for step in &trajectory.steps {
            assert!(screen(run, &step.observation.screenshot.digest).exists());
        }
    }
    left
}

fn stored(run: &Path, line: &IndexLine) -> Trajectory {
    let bytes = fs::read(run.join("episodes").join(&line.file)).unwrap();
    let (from, length) = (line.offset as usize, line.length as usize);
    assert_eq!(bytes[from + length], b'\n');
    serde_json::from_slice(&bytes[from..from + length]).unwrap()
}

fn screen(run: &Path, digest: &str) -> PathBuf {
    run.join("episodes/screens").join(&digest[..2]).join(format!("{digest}.png"))
}

/// Trains with fakes; returns the notices.
fn train(parts: Parts, config: &Config, folder: &RunFolder) -> Vec<String> {
    let mut notices = vec![];
    let ended = train_with(parts, config, folder, &StopSwitch::default(), &mut |event| {
        if let RunEvent::Notice(notice) = event {
            notices.push(notice.message);
        }
    });
    assert_eq!(ended.unwrap().iterations, config.iterations);
    notices
}

#[test]
fn a_run_can_be_viewed_afterwards() {
    let temporary = Temporary::new("recording");
    let folder = RunFolder::start(&temporary.run(), Start::New).unwrap();
    set_view(&folder, "http://127.0.0.1:7/").unwrap();
    let (mut config, run) = (config(), temporary.run());
    // unparsable responses and two worlds, so that rewards differ
    (config.reward.format_weight, config.tasks.worlds) = (0.5, 2);
    config.seed = seed_with_spread(&config);
    let notices = train(parts(&config, &Log::default()), &config, &folder);
    assert_eq!(notices, ["slow"], "the learner's own");

    let about = RunAbout::read(&run);
    assert_eq!((about.ending.as_deref(), about.parameters, about.iterations), (Some("finished"), 7, 3));
    assert!(about.started > 1.6e9 && about.ended.unwrap() >= about.started && about.machine.cores > 0);
    assert_eq!((about.view.as_deref(), about.pid), (Some("http://127.0.0.1:7/"), std::process::id()));
    let status = json(&run.join("status.json"));
    assert_eq!(
        (&status["phase"], &status["iteration"], &status["of"]),
        (&"ended".into(), &3.into(), &3.into())
    );

    let metrics = json_lines(&folder.metrics_file());
    let walls: Vec<f64> = metrics.iter().map(|line| line["time/wall"].as_f64().unwrap()).collect();
    assert!(walls.len() == 4 && walls.windows(2).all(|pair| pair[0] <= pair[1]) && walls[0] >= about.started);

    let lines = index(&run);
    let of = |file: &str| lines.iter().filter(|line| line.file == file).collect::<Vec<_>>();
    let mut with_ratios = 0;
    for (number, metrics) in (1..=3).zip(&metrics[1..]) {
        let file = EpisodeFile::iteration(number);
        let lines = of(&file.to_string());
        let fresh = lines.iter().filter(|line| line.origin == EpisodeOrigin::Fresh);
        assert_eq!(metrics["collect/episodes"], fresh.count());
        let replayed = lines.iter().filter(|line| line.origin == EpisodeOrigin::Replayed);
        assert_eq!(metrics["replay/injected"], replayed.count());
        let mean: f64 = lines
            .iter()
            .filter(|line| line.origin == EpisodeOrigin::Fresh)
            .map(|line| line.score)
            .sum::<f64>()
            / metrics["collect/episodes"].as_f64().unwrap();
        assert!((metrics["reward/score"].as_f64().unwrap() - mean).abs() < 1e-9);
        assert!(lines.iter().all(|line| line.reward.is_some() && line.instruction.is_some()));
        // the batch has all members of every group but those that a replayed one replaced
        let trained = lines.iter().filter(|line| line.advantage.is_some()).count();
        assert_eq!(trained, 8, "{lines:?}");
        let groups: BTreeSet<Option<usize>> = lines.iter().map(|line| line.group).collect();
        assert_eq!(groups, [Some(0), Some(1)].into());
        tokens_fit(&run, file, &lines);
        with_ratios += lines.iter().filter(|line| line.advantage.is_some_and(|one| one != 0.0)).count();
    }
    assert!(with_ratios > 0);
    for (number, samples) in [(0, 4), (2, 4), (3, 4)] {
        let lines = of(&EpisodeFile::evaluation(number).to_string());
        assert_eq!(lines.len(), samples);
        let evaluated = |line: &&IndexLine| {
            line.origin == EpisodeOrigin::Evaluation && line.set.as_deref() == Some("training")
        };
        assert!(lines.iter().all(evaluated) && lines.iter().all(|line| line.advantage.is_none()));
    }
    // training offline reads the fresh ones, each once, without evaluations
    let fresh: BTreeSet<String> = lines
        .iter()
        .filter(|line| line.origin == EpisodeOrigin::Fresh)
        .map(|line| line.id.to_string())
        .collect();
    let (read, _) = episodes::read(&run).unwrap();
    assert_eq!(read.iter().map(|one| one.id.to_string()).collect::<BTreeSet<_>>(), fresh);
    assert_eq!(read.len(), fresh.len());
}

/// Every token has a text, and together they are the response; every sample with a gradient has ratios.
fn tokens_fit(run: &Path, file: EpisodeFile, lines: &[&IndexLine]) {
    let tokens = json_lines(&run.join("episodes").join(file.tokens()));
    assert_eq!(tokens.len(), lines.len());
    for (tokens, line) in tokens.iter().zip(lines) {
        assert_eq!(tokens["id"], line.id.to_string());
        let replayed = line.origin == EpisodeOrigin::Replayed;
        assert_eq!(tokens.get("iteration").is_some(), replayed);
        let trajectory = stored(run, line);
        let steps = tokens["steps"].as_array().unwrap();
        assert_eq!(steps.len(), trajectory.steps.len());
        for (tokens, step) in steps.iter().zip(&trajectory.steps) {
            let pieces: String =
                tokens["pieces"].as_array().unwrap().iter().map(|piece| piece.as_str().unwrap()).collect();
            assert!(pieces.starts_with(&step.response), "{pieces:?} {:?}", step.response);
            assert_eq!(tokens["pieces"].as_array().unwrap().len(), step.span.len());
            assert_eq!(tokens["logp"].as_array().unwrap().len(), step.span.len());
            let used = line.advantage.is_some_and(|advantage| advantage != 0.0);
            assert_eq!(tokens["ratio"].as_array().map(Vec::len), used.then_some(step.span.len()), "{line:?}");
        }
    }
}

#[test]
fn failures_and_lost_episodes_are_recorded() {
    let temporary = Temporary::new("recording-failures");
    let folder = RunFolder::start(&temporary.run(), Start::New).unwrap();
    let (mut config, run) = (config(), temporary.run());
    config.collect.refills = 8;
    let desktops = factory(|context| match context.call {
        "step" if context.slot == 1 && context.steps == 1 && context.seed.is_multiple_of(2) => {
            Behaviour::Break
        }
        _ => Behaviour::Well,
    });
    let collector = Collector::new(desktops, config.collect.desktops, options(Order::Rounds));
    train(Parts { collector, ..parts(&config, &Log::default()) }, &config, &folder);
    let failures = json_lines(&run.join("failures.jsonl"));
    let metrics = json_lines(&folder.metrics_file());
    let counted: u64 = metrics
        .iter()
        .map(|line| {
            line["evaluation/lost"].as_u64().unwrap_or(0) + line["collect/lost"].as_u64().unwrap_or(0)
        })
        .sum();
    assert!(counted > 0 && failures.len() as u64 == counted, "{counted} {failures:?}");
    for failure in &failures {
        assert_eq!((&failure["desktop"], &failure["kind"]), (&1.into(), &"broken".into()));
        assert!(failure["action"].as_str().unwrap().starts_with("replaced"), "{failure}");
        assert!(
            failure["task"].is_string() && failure["message"].as_str().unwrap().contains("as the test says")
        );
    }
    let lines = index(&run);
    let lost: Vec<&IndexLine> = lines.iter().filter(|line| line.outcome == "environment_error").collect();
    let collected: u64 = metrics.iter().filter_map(|line| line["collect/lost"].as_u64()).sum();
    assert_eq!(lost.len() as u64, collected);
    assert!(
        lost.iter().all(|line| line.reward.is_none() && line.advantage.is_none() && line.reason.is_some())
    );
    let (read, _) = episodes::read(&run).unwrap();
    assert!(read.iter().all(|one| one.outcome.is_trainable()));
}

/// The system's file that is always full takes the place of a file.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_stops_recording_and_not_training() {
    let temporary = Temporary::new("recording-full");
    let folder = RunFolder::start(&temporary.run(), Start::New).unwrap();
    fs::create_dir(folder.episodes()).unwrap();
    let hidden = folder.episodes().join(".iteration-000002.jsonl.writing");
    std::os::unix::fs::symlink("/dev/full", hidden).unwrap();
    let config = config();
    let notices = train(parts(&config, &Log::default()), &config, &folder);
    assert_eq!(notices.len(), 2, "{notices:?}");
    let notice = notices.iter().find(|notice| notice.starts_with("recording")).unwrap();
    assert!(notice.contains("iteration-000002.jsonl: cannot be written: No space left"), "{notice}");
    // what was recorded before is whole
    let files: BTreeSet<String> = index(folder.path()).into_iter().map(|line| line.file).collect();
    assert_eq!(files, ["evaluation-000000.jsonl".to_owned(), "iteration-000001.jsonl".to_owned()].into());
    assert_eq!(RunAbout::read(folder.path()).ending.as_deref(), Some("finished"));
}

#[test]
fn nothing_is_kept_if_nothing_is_wanted() {
    let temporary = Temporary::new("recording-off");
    let folder = RunFolder::start(&temporary.run(), Start::New).unwrap();
    let mut config = config();
    (config.logging.episodes_gib, config.logging.live) = (0.0, false);
    train(parts(&config, &Log::default()), &config, &folder);
    assert!(!folder.episodes().exists() && !folder.path().join("status.json").exists());
    assert!(!folder.path().join("live").exists() && folder.path().join("run.json").exists());
}

/// The first seed with which some rewards of a group differ, so that an update uses it.
fn seed_with_spread(config: &Config) -> u64 {
    let differ = |&seed: &u64| {
        let temporary = Temporary::new(&format!("recording-seed-{seed}"));
        let folder = RunFolder::start(&temporary.run(), Start::New).unwrap();
        let config = Config { seed, ..config.clone() };
        train(parts(&config, &Log::default()), &config, &folder);
        index(folder.path()).iter().any(|line| line.advantage.is_some_and(|one| one != 0.0))
    };
    (0..30).find(differ).expect("rewards differ with some seed")
}

fn shown(number: u8) -> EpisodeScreen {
    let image = RgbImage::from_fn(40, 30, |x, y| Rgb([number, (x as u8).wrapping_mul(number), y as u8]));
    EpisodeScreen::new(Arc::new(image), None)
}

/// An episode that shows these screens, with a response that looks like a reference to another.
fn record(iteration: u64, index: usize, screens: &[u8]) -> EpisodeRecord {
    let task = TaskId::new("t");
    let shown: Vec<EpisodeScreen> = screens.iter().map(|&number| shown(number)).collect();
    let step = |(at, screen): (usize, &EpisodeScreen)| Step {
        observation: Observation { screenshot: screen.reference() },
        response: r#"{"digest":"ffff"}"#.into(),
        actions: vec![],
        span: TokenSpan { start: at, end: at + 1 },
    };
    let trajectory = Trajectory {
        id: EpisodeId::new(iteration, &task, index),
        task,
        policy_version: PolicyVersion(iteration),
        slices: vec![Slice { tokens: vec![TokenId(65); screens.len()], first_live: 0, end: screens.len() }],
        steps: shown.iter().enumerate().map(step).collect(),
        sampler_logp: vec![-0.5; screens.len()],
        score: 1.0,
        well_formed: true,
        outcome: Outcome::Finished {},
    };
    let about = EpisodeAbout {
        origin: EpisodeOrigin::Fresh,
        set: None,
        instruction: None,
        application: None,
        group: None,
        reward: None,
        advantage: None,
        time: 1.0,
    };
    EpisodeRecord { trajectory: Arc::new(trajectory), screens: shown.into_iter().map(Some).collect(), about }
}

fn write(store: &mut EpisodeStore, file: EpisodeFile, records: &[EpisodeRecord]) {
    let mut draft = EpisodeDraft::new(file);
    store.add(&mut draft, records, &mut || {}).unwrap();
    store.finish(draft).unwrap();
}

fn files(run: &Path) -> Vec<String> {
    let names = fs::read_dir(run.join("episodes")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn after(iteration: u64, unfinished: bool) -> Resumed {
    Resumed { iteration, unfinished }
}

/// Killed after the evaluation before training, and before its first checkpoint: the run starts over.
#[test]
fn what_was_recorded_before_the_first_checkpoint_is_recorded_again() {
    let temporary = Temporary::new("recording-over");
    let folder = RunFolder::start(&temporary.run(), Start::New).unwrap();
    let run = temporary.run();
    let mut store = EpisodeStore::open(&run, Budget::UNLIMITED, |_| true).unwrap();
    write(&mut store, EpisodeFile::evaluation(0), &[record(99, 0, &[1])]);
    drop(store);
    fs::write(run.join("failures.jsonl"), "{\"iteration\": 0, \"message\": \"of the killed one\"}\n")
        .unwrap();
    let config = config();
    train(parts(&config, &Log::default()), &config, &folder);
    let lines = index(&run);
    assert!(lines.iter().all(|line| line.id.to_string() != "99:t:0"), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line.file == "evaluation-000000.jsonl").count(), 4);
    assert!(!fs::read_to_string(run.join("failures.jsonl")).unwrap_or_default().contains("killed"));
    // with a checkpoint after it, it stays
    assert!(up_to(Some(after(0, false)))(EpisodeFile::evaluation(0)));
    assert!(!up_to(None)(EpisodeFile::evaluation(0)));
}

#[test]
fn a_run_that_cannot_start_is_not_recorded_as_stopped() {
    let temporary = Temporary::new("recording-start");
    let folder = RunFolder::start(&temporary.run(), Start::New).unwrap();
    fs::create_dir(folder.metrics_file()).unwrap();
    let config = config();
    let parts = parts(&config, &Log::default());
    let ended = train_with(parts, &config, &folder, &StopSwitch::default(), &mut |_| {});
    assert!(ended.unwrap_err().to_string().contains("metrics.jsonl"));
    assert_eq!(RunAbout::read(folder.path()), RunAbout::default());
}

#[test]
fn episodes_without_an_index_are_left_alone() {
    let temporary = Temporary::new("recording-old");
    let episodes = temporary.run().join("episodes");
    fs::create_dir_all(&episodes).unwrap();
    fs::write(episodes.join("iteration-000001.jsonl"), "{}\n").unwrap();
    let refused = EpisodeStore::open(&temporary.run(), Budget::UNLIMITED, |_| true).unwrap_err().to_string();
    assert!(
        refused.contains("episodes without index.jsonl") && refused.ends_with("move them away"),
        "{refused}"
    );
    assert_eq!(files(&temporary.run()), ["iteration-000001.jsonl"]);
}

#[test]
fn a_resumed_run_replaces_what_a_killed_one_has_left() {
    let temporary = Temporary::new("recording-resumed");
    let run = temporary.run();
    let mut store = EpisodeStore::open(&run, Budget::UNLIMITED, |_| true).unwrap();
    for number in 1..=5 {
        let records = [record(number, 0, &[1, number as u8 + 1]), record(number, 1, &[1])];
        write(&mut store, EpisodeFile::iteration(number), &records);
        store.write_tokens(EpisodeFile::iteration(number), b"{}\n").unwrap();
    }
    write(&mut store, EpisodeFile::evaluation(3), &[record(100, 0, &[50])]);
    write(&mut store, EpisodeFile::evaluation(4), &[record(101, 0, &[51])]);
    drop(store);
    // killed while it wrote a line, after it had written a file and a screenshot
    let path = run.join("episodes/index.jsonl");
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend(b"not json\n{\"id\": \"6:t:0\", \"file\": \"iterat");
    fs::write(&path, bytes).unwrap();
    fs::write(run.join("episodes/iteration-000006.jsonl"), "half").unwrap();
    fs::write(screen(&run, shown(1).digest()).with_file_name("beef.png"), "half").unwrap();

    let mut store = EpisodeStore::open(&run, Budget::UNLIMITED, up_to(Some(after(3, false)))).unwrap();
    let left: Vec<(String, String)> =
        index(&run).into_iter().map(|line| (line.file, line.id.to_string())).collect();
    assert_eq!(left.len(), 7, "{left:?}");
    let expected = [
        "evaluation-000003.jsonl",
        "index.jsonl",
        "iteration-000001.jsonl",
        "iteration-000001.tokens.jsonl",
        "iteration-000002.jsonl",
        "iteration-000002.tokens.jsonl",
        "iteration-000003.jsonl",
        "iteration-000003.tokens.jsonl",
        "screens",
    ];
    assert_eq!(files(&run), expected);
    let kept = |number: u8| screen(&run, shown(number).digest()).exists();
    assert!([1, 2, 3, 4, 50].into_iter().all(kept) && ![5, 6, 51].into_iter().any(kept));
    // repeated iterations are written once more, and a file that is there stays as it is
    write(&mut store, EpisodeFile::iteration(4), &[record(4, 0, &[9])]);
    write(&mut store, EpisodeFile::iteration(3), &[record(3, 5, &[10])]);
    let lines = index(&run);
    assert_eq!(lines.len(), 8);
    let ids: BTreeSet<String> = lines.iter().map(|line| line.id.to_string()).collect();
    assert_eq!(ids.len(), 8, "nothing twice");
    let bytes = store.bytes();
    drop(store);
    // an iteration in the middle of which the run was stopped stays
    let store = EpisodeStore::open(&run, Budget::UNLIMITED, up_to(Some(after(3, true)))).unwrap();
    assert!(store.has(EpisodeFile::iteration(4)));
    assert_eq!(index(&run).len(), 8);
    // but for the screenshot of the file that was not replaced
    assert!(store.bytes() <= bytes && store.bytes() > bytes / 2);
}

#[test]
fn the_disk_is_used_within_the_budget() {
    let temporary = Temporary::new("recording-budget");
    let run = temporary.run();
    let used = |folder: &Path| -> u64 {
        fn sum(path: &Path) -> u64 {
            if path.is_dir() {
                return fs::read_dir(path).unwrap().map(|entry| sum(&entry.unwrap().path())).sum();
            }
            if path.ends_with("index.jsonl") { 0 } else { fs::metadata(path).unwrap().len() }
        }
        sum(&folder.join("episodes"))
    };
    let mut store = EpisodeStore::open(&run, Budget::UNLIMITED, |_| true).unwrap();
    write(&mut store, EpisodeFile::iteration(1), &[record(1, 0, &[1, 2])]);
    assert_eq!(store.bytes(), used(&run));
    let budget = Budget { bytes: store.bytes() * 6, last: 2 };
    drop(store);
    let mut store = EpisodeStore::open(&run, budget, |_| true).unwrap();
    for number in 2..=30 {
        // all share a screenshot
        let records = [record(number, 0, &[1, number as u8 + 1])];
        write(&mut store, EpisodeFile::iteration(number), &records);
        store.write_tokens(EpisodeFile::iteration(number), b"{}\n").unwrap();
        assert!(store.bytes() <= budget.bytes, "{number}");
        assert_eq!(store.bytes(), used(&run), "{number}");
    }
    let kept: Vec<u64> = index(&run).iter().map(|line| line.iteration).collect();
    assert!(kept.len() > 4 && kept[0] == 1 && kept[kept.len() - 2..] == [29, 30], "{kept:?}");
    // a run that resumes counts the same, with an index that names only what is there
    let bytes = store.bytes();
    drop(store);
    let store = EpisodeStore::open(&run, budget, up_to(Some(after(30, false)))).unwrap();
    assert_eq!(store.bytes(), bytes);
    assert_eq!(json_lines(&run.join("episodes/index.jsonl")).len(), kept.len());
}

/// A replayed episode whose screenshots have left the memory comes from the screenshots of the replay buffer.
#[test]
fn screenshots_of_replayed_episodes_are_taken_over() {
    let temporary = Temporary::new("recording-replayed");
    let folder = temporary.started();
    let records = [record(1, 0, &[1, 2]), record(1, 1, &[3])];
    for screen in records[0].screens.iter().flatten() {
        folder.screens().put(screen.digest(), &screen.image().unwrap()).unwrap();
    }
    let without =
        |one: &EpisodeRecord| EpisodeRecord { screens: vec![None; one.screens.len()], ..one.clone() };
    let mut store = EpisodeStore::open(folder.path(), Budget::UNLIMITED, |_| true).unwrap();
    write(&mut store, EpisodeFile::iteration(2), &records.each_ref().map(without));
    // the second one's screenshot is nowhere any more
    let lines = index(folder.path());
    assert_eq!(lines.iter().map(|line| line.id.to_string()).collect::<Vec<_>>(), ["1:t:0"]);
}

/// As when the rest of an iteration has been collected after a stop.
#[test]
fn a_file_whose_episodes_are_in_another_is_forgotten() {
    let temporary = Temporary::new("recording-forgotten");
    let folder = temporary.started();
    let run = folder.path();
    let mut store = EpisodeStore::open(run, Budget::UNLIMITED, |_| true).unwrap();
    let [whole, part] = [1, 9].map(EpisodeFile::iteration);
    write(&mut store, part, &[record(1, 0, &[1, 2])]);
    let times = store.times(part).unwrap();
    assert_eq!(times.values().map(f64::to_string).collect::<Vec<_>>(), ["1"]);
    write(&mut store, whole, &[record(1, 0, &[1, 2]), record(1, 1, &[3])]);
    store.forget(part).unwrap();
    let names = |run: &Path| index(run).iter().map(|line| line.id.to_string()).collect::<Vec<_>>();
    assert_eq!(names(run), ["1:t:0", "1:t:1"]);
    assert_eq!(json_lines(&run.join("episodes/index.jsonl")).len(), 2, "not even a word of it is left");
    assert!(!store.has(part) && !run.join("episodes").join(part.to_string()).exists());
    // its name may be used again
    write(&mut store, part, &[record(2, 0, &[4])]);
    assert_eq!(names(run), ["1:t:0", "1:t:1", "2:t:0"]);
    let bytes = store.bytes();
    drop(store);
    assert_eq!(EpisodeStore::open(run, Budget::UNLIMITED, |_| true).unwrap().bytes(), bytes);
}
