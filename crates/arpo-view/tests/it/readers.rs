//! Run folders of every age are read, and nothing in them is trusted.

use crate::fixture::plan;
use arpo_view::run::Run;
use arpo_view::run::info::State;
use arpo_view::run::tasks::{TaskQuery, TaskSort, matrix};
use arpo_view::testing::SyntheticRun;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

fn whole(folder: &Path) -> Run {
    SyntheticRun::whole(folder, plan(), 1).unwrap();
    Run::open(folder).unwrap()
}

fn append(path: &Path, text: &[u8]) {
    OpenOptions::new().append(true).create(true).open(path).unwrap().write_all(text).unwrap();
}

#[test]
fn a_whole_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = whole(folder.path());
    assert_eq!((run.metrics.rows(), run.state(), run.bad_lines()), (13, State::Finished, 0));
    assert_eq!(run.metrics.last_iteration(), Some(12.0));
    assert_eq!(run.index().rows.len(), 12 * 3 * 4);
    assert_eq!(run.evaluations.by_iteration.keys().copied().collect::<Vec<_>>(), [0, 5, 10]);
    // every row of the index leads to the episode that it names
    let rows: Vec<_> = run.index().rows.iter().step_by(17).cloned().collect();
    for row in rows {
        let file = run.index().file_of(&row).name.to_string();
        let (found, episode) = run.episode(&file, &row.id).unwrap();
        assert_eq!((found.id, episode.steps.len() as u32), (row.id, row.turns));
        let tokens = episode.steps[0].tokens.as_ref().unwrap();
        assert_eq!(tokens.pieces.concat(), episode.steps[0].response);
        assert_eq!(tokens.pieces.len(), tokens.logp.len());
        let digest = &episode.steps[0].screen.as_ref().unwrap().digest;
        assert!(run.screen_path(digest).unwrap().unwrap().is_file());
    }
    let line = arpo_view::runs::line(&run);
    assert_eq!((line.measure.as_str(), line.method.as_str()), ("training", "ARPO (GRPO with replay)"));
    assert!(line.best >= line.last && line.last > Some(0.2));
}

/// As the trainer selects the best model: by unseen tasks, if tasks are generated and it always evaluates on these.
#[test]
fn success_is_that_of_the_set_that_selects_the_best_model() {
    let folder = tempfile::tempdir().unwrap();
    let measure = |metrics: &str, tasks: &str, unseen: &str| {
        fs::write(folder.path().join("metrics.jsonl"), metrics.to_owned() + "\n").unwrap();
        let config = format!("[tasks]\n{tasks}\n[evaluation]\nunseen = \"{unseen}\"\n");
        fs::write(folder.path().join("config.toml"), config).unwrap();
        arpo_view::runs::line(&Run::open(folder.path()).unwrap()).measure
    };
    let both = r#"{"iteration":10,"evaluation/training":0.5,"evaluation/unseen":0.4}"#;
    let (generated, listed) = ("generated = 4096\nonly = []", "generated = 0\nonly = []");
    assert_eq!(measure(both, generated, "always"), "unseen");
    assert_eq!(measure(both, "endless = true", "always"), "unseen");
    assert_eq!(measure(both, generated, "ends"), "training");
    assert_eq!(measure(both, listed, "always"), "training");
    assert_eq!(measure(both, "generated = 64\nonly = [\"a-task\"]", "always"), "training");
    let held_out = r#"{"iteration":1,"evaluation/held_out":0.1}"#;
    assert_eq!(measure(held_out, generated, "always"), "held_out");
    assert_eq!(measure(r#"{"iteration":1,"reward/score":0.1}"#, listed, "always"), "reward/score");
}

#[test]
fn a_growing_run_is_read_line_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = SyntheticRun::start(folder.path(), plan(), 1).unwrap();
    let mut run = Run::open(folder.path()).unwrap();
    assert_eq!((run.metrics.rows(), run.index().rows.len(), run.state()), (0, 0, State::Running));
    for iteration in 0..3 {
        writer.iteration(iteration).unwrap();
        run.refresh().unwrap();
        assert_eq!(run.metrics.rows() as u64, iteration + 1);
        assert_eq!(run.index().rows.len() as u64, iteration * 12);
    }
    writer.failure(2, 5).unwrap();
    let before = run.progress();
    run.refresh().unwrap();
    assert_ne!(run.progress(), before);
    assert_eq!(run.failures().1, 1);
    // as a resumed run does: cut back, and other lines
    let metrics = folder.path().join("metrics.jsonl");
    let text = fs::read_to_string(&metrics).unwrap();
    let first = text.lines().next().unwrap();
    let before_cut = run.metrics.generation();
    fs::write(&metrics, format!("{first}\n")).unwrap();
    run.refresh().unwrap();
    assert_eq!(run.metrics.rows(), 1);
    assert_ne!(run.metrics.generation(), before_cut, "a page must ask for everything again");
}

#[test]
fn bad_and_half_written_lines_are_skipped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = whole(folder.path());
    let rows = run.index().rows.len();
    append(&folder.path().join("metrics.jsonl"), b"not json\n\xff\xfe\n{\"iteration\": 13");
    append(&folder.path().join("episodes/index.jsonl"), b"{\"id\": 3}\n[1]\n{\"half");
    append(&folder.path().join("failures.jsonl"), b"\"text\"\n");
    run.refresh().unwrap();
    assert_eq!((run.metrics.rows(), run.index().rows.len(), run.bad_lines()), (13, rows, 5));
    assert_eq!(run.metrics.unfinished_bytes(), 16);
    // the rest of the half-written line arrives
    append(&folder.path().join("metrics.jsonl"), b"}\n");
    run.refresh().unwrap();
    assert_eq!((run.metrics.rows(), run.metrics.unfinished_bytes()), (14, 0));
}

/// Runs of earlier versions have neither `run.json` nor an index, and episodes only if somebody asked for them.
#[test]
fn runs_of_earlier_versions() {
    let folder = tempfile::tempdir().unwrap();
    drop(whole(folder.path()));
    for name in ["run.json", "status.json", "episodes/index.jsonl"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    let mut run = Run::open(folder.path()).unwrap();
    assert_eq!((run.state(), run.index().rows.len()), (State::Finished, 12 * 12));
    let row = run.index().rows[5].clone();
    let file = run.index().file_of(&row).name.to_string();
    let (_, episode) = run.episode(&file, &row.id).unwrap();
    assert_eq!(episode.steps.len() as u32, row.turns);
    fs::remove_dir_all(folder.path().join("episodes")).unwrap();
    let bare = Run::open(folder.path()).unwrap();
    assert_eq!((bare.index().rows.len(), bare.metrics.rows()), (0, 13));
}

#[test]
fn removed_episodes_stay_in_the_index_and_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = whole(folder.path());
    let name = "iteration-000003.jsonl";
    fs::remove_file(folder.path().join("episodes").join(name)).unwrap();
    append(&folder.path().join("episodes/index.jsonl"), format!("{{\"dropped\":\"{name}\"}}\n").as_bytes());
    run.refresh().unwrap();
    let row = run.index().rows.iter().find(|row| row.iteration == 3).cloned().unwrap();
    assert!(!run.index().is_kept(&row));
    let error = run.episode(name, &row.id).unwrap_err().to_string();
    assert!(error.contains("removed to make room"), "{error}");
}

#[test]
fn the_matrix_of_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let run = whole(folder.path());
    let query = |source: Option<&str>, sort| TaskQuery {
        source: source.map(str::to_owned),
        columns: 4,
        limit: 5,
        search: String::new(),
        sort,
    };
    let hard = matrix(&run, &query(None, TaskSort::Difficulty));
    assert_eq!((hard.source.as_str(), hard.total, hard.rows.len()), ("collected", 8, 5));
    assert_eq!(hard.sources, ["collected", "held_out", "training"]);
    assert!(hard.rows.windows(2).all(|pair| pair[0].mean <= pair[1].mean));
    assert!(hard.columns.len() <= 4 && hard.rows.iter().all(|row| row.cells.len() == hard.columns.len()));
    let evaluated = matrix(&run, &query(Some("training"), TaskSort::Application));
    assert_eq!(evaluated.columns.iter().map(|column| column.from).collect::<Vec<_>>(), [0, 5, 10]);
    assert!(evaluated.rows[0].application <= evaluated.rows[4].application);
    // by hand: the score of a task in iteration 1 is the one in the metrics
    let (task, score) = run.metrics.tasks()[1].iter().next().unwrap();
    let all = TaskQuery { columns: 100, limit: 100, ..query(None, TaskSort::Task) };
    let all = matrix(&run, &all);
    let row = all.rows.iter().find(|row| row.task == *task).unwrap();
    assert_eq!(row.cells[0], Some(*score));
    assert_eq!(Some(row.first), row.cells[0]);
}

#[test]
fn folders_that_are_no_runs_are_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("notes.txt"), "x").unwrap();
    let error = Run::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("expected config.toml or metrics.jsonl"), "{error}");
    let none = folder.path().join("none");
    let error = arpo_view::viewer(&[none], None).unwrap_err().to_string();
    assert!(error.contains("no such folder"), "{error}");
    assert!(arpo_view::viewer(&[folder.path().to_path_buf()], None).is_err());
}

#[test]
fn runs_are_listed_newest_first() {
    let folder = tempfile::tempdir().unwrap();
    SyntheticRun::whole(&folder.path().join("old"), plan(), 1).unwrap();
    let mut live = SyntheticRun::start(&folder.path().join("live"), plan(), 2).unwrap();
    live.iteration(0).unwrap();
    live.iteration(1).unwrap();
    let (lines, problems) = arpo_view::runs::list(folder.path()).unwrap();
    assert!(problems.is_empty());
    assert_eq!(lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(), ["live", "old"]);
    let table = arpo_view::runs::table(&lines);
    assert!(table.lines().nth(1).unwrap().contains("running"), "{table}");
    assert!(table.lines().nth(2).unwrap().contains("finished") && table.contains("12/12"), "{table}");
}

/// The index of 100 000 episodes and the metrics of 1 000 iterations; the episodes themselves are not needed to open a run.
#[test]
fn a_run_of_100_000_episodes_opens_within_two_seconds() {
    let folder = tempfile::tempdir().unwrap();
    drop(whole(folder.path()));
    let repeat = |name: &str, from: usize, times: usize| {
        let path = folder.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().skip(from).collect();
        let many: Vec<&str> = lines.iter().copied().cycle().take(times).collect();
        fs::write(&path, many.join("\n") + "\n").unwrap();
    };
    repeat("episodes/index.jsonl", 0, 100_000);
    repeat("metrics.jsonl", 1, 1000);
    let began = std::time::Instant::now();
    let mut run = Run::open(folder.path()).unwrap();
    let opened = began.elapsed();
    assert_eq!((run.index().rows.len(), run.metrics.rows(), run.bad_lines()), (100_000, 1000, 0));
    let began = std::time::Instant::now();
    run.refresh().unwrap();
    println!("opened in {opened:?}, looked at again in {:?}", began.elapsed());
    assert!(opened.as_secs_f64() < 2.0, "{opened:?}");
    assert!(began.elapsed().as_secs_f64() < 0.2, "nothing is read twice");
}
