//! The printed lines, at 80 columns and less.

use super::paint::Paint;
use super::{Mode, SharedShow, Show, ShowArguments, bars, lines, table};
use arpo_core::statistics::Success;
use arpo_core::task::TaskId;
use arpo_train::collect::{DesktopFailure, FailureKind, Remedy};
use arpo_train::run::events::{
    Best, CollectProgress, Evaluation, IterationDone, Notice, RunEnded, RunEvent, RunStarted,
};
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn success(mean: f64) -> Success {
    Success { mean, low: mean - 0.04, high: mean + 0.05, rollouts: 128 }
}

fn done(iteration: u64) -> IterationDone {
    IterationDone {
        iteration,
        of: 100,
        seconds: 1.26,
        success: 0.531,
        reward: 0.614,
        entropy: 0.42,
        kl: 0.0123,
        gradient_norm: Some(0.5),
        episodes: 64,
        informative: (6, 8),
        informative_per_second: 4.76,
        replayed: 2,
        ..IterationDone::default()
    }
}

fn evaluated(iteration: u64) -> IterationDone {
    let suites = vec![("training".to_owned(), success(0.83)), ("held-out".to_owned(), success(0.61))];
    IterationDone {
        evaluation: Some(Evaluation { suites, best: true, lost: 0 }),
        environment_errors: 3,
        ..done(iteration)
    }
}

fn ended() -> RunEnded {
    RunEnded {
        iterations: 60,
        of: 100,
        seconds: 131.4,
        interrupted: true,
        first: vec![("training".into(), success(0.45))],
        last: vec![("training".into(), success(0.83)), ("held-out".into(), success(0.61))],
        best: Some(Best { iteration: 50, suites: vec![("training".into(), success(0.87))] }),
        episodes: 3840,
        environment_errors: 3,
        unplayable: vec![],
        written: vec![
            ("best model".into(), "runs/a/best/model".into()),
            ("metrics".into(), "runs/a/metrics.jsonl".into()),
        ],
    }
}

#[test]
fn an_iteration_is_one_line_of_80_columns() {
    let line = |done: &IterationDone| lines::iteration(done, 80, Paint::NONE);
    assert_eq!(
        line(&done(7)),
        "  7/100  success 0.53  reward  0.61  entropy 0.42  groups 6/8  replay 2  1.3 s"
    );
    assert_eq!(
        line(&evaluated(100)),
        "100/100  success 0.53  training 0.83 ±0.05 best  held-out 0.61 ±0.05  1.3 s"
    );
    let extreme = IterationDone {
        iteration: 99_999,
        of: 100_000,
        seconds: 12_345.6,
        reward: -1.0,
        replayed: 1000,
        informative: (512, 512),
        ..evaluated(1)
    };
    for columns in [40, 60, 80, 120] {
        for done in [done(7), evaluated(100), extreme.clone()] {
            let line = lines::iteration(&done, columns, Paint::NONE);
            assert!(line.chars().count() <= columns, "{columns}: {line}");
            assert!(line.contains("success 0.53"), "{columns}: {line}");
        }
    }
    assert!(lines::iteration(&evaluated(9), 120, Paint::NONE).contains("errors 3"));
    assert!(lines::iteration(&done(9), 100, Paint::NONE).contains("groups 6/8  informative/s 4.8  replay 2"));
}

/// Three sets of tasks fit: intervals are dropped first, from the last set to the first.
#[test]
fn three_sets_fit_into_80_columns() {
    let sets = [("training", 0.83), ("unseen", 0.71), ("held_out", 0.1)];
    let suites = sets.map(|(name, mean)| (name.to_owned(), success(mean))).to_vec();
    let done = |best| IterationDone {
        evaluation: Some(Evaluation { suites: suites.clone(), best, lost: 0 }),
        ..done(100)
    };
    let line = |columns, best| lines::iteration(&done(best), columns, Paint::NONE);
    assert_eq!(
        line(80, false),
        "100/100  success 0.53  training 0.83 ±0.05  unseen 0.71 ±0.05  held_out 0.10"
    );
    assert_eq!(line(80, true), "100/100  success 0.53  training 0.83 ±0.05 best  unseen 0.71  held_out 0.10");
    assert_eq!(line(66, true), "100/100  success 0.53  training 0.83 best  unseen 0.71");
    assert!(line(120, false).contains("unseen 0.71 ±0.05  held_out 0.10 ±0.05"));
}

#[test]
fn colours_change_nothing_but_colours() {
    let painted = lines::iteration(&evaluated(100), 80, Paint::COLOURS);
    assert!(painted.contains("\u{1b}[1;32m0.83 ±0.05 best\u{1b}[0m"), "{painted:?}");
    let mut plain = String::new();
    for (number, part) in painted.split('\u{1b}').enumerate() {
        plain += if number == 0 { part } else { part.split_once('m').unwrap().1 };
    }
    assert_eq!(plain, lines::iteration(&evaluated(100), 80, Paint::NONE));
}

#[test]
fn the_beginning_and_the_end() {
    let started = RunStarted {
        folder: "runs/a".into(),
        resumed_at: None,
        iterations: 100,
        method: "ARPO".into(),
        parameters: 1_234_567,
        device: "cpu".into(),
        tasks: 64,
        desktops: 32,
        seed: 7,
    };
    let printed = lines::started(&started, Paint::NONE);
    assert_eq!(
        printed,
        ["ARPO  100 iterations, seed 7", "1.2 M parameters on cpu, 64 tasks, 32 desktops", "in runs/a",]
    );
    let endless = RunStarted { tasks: 0, ..started.clone() };
    assert_eq!(
        lines::started(&endless, Paint::NONE)[1],
        "1.2 M parameters on cpu, endless tasks, 32 desktops"
    );
    let resumed = RunStarted { resumed_at: Some(40), ..started };
    assert_eq!(lines::started(&resumed, Paint::NONE)[0], "ARPO  resumed after iteration 40 of 100, seed 7");
    assert_eq!(
        table::ended(&ended(), Paint::NONE),
        [
            "success            first            last     best, at 50",
            "training      0.45 ±0.05      0.83 ±0.05      0.87 ±0.05",
            "held-out               -      0.61 ±0.05               -",
            "60 of 100 iterations in 2 min 11 s, stopped on request",
            "3840 episodes, 3 ended by environment errors",
            "best model  runs/a/best/model",
            "metrics     runs/a/metrics.jsonl",
        ]
    );
    assert_eq!(table::ended(&RunEnded::default(), Paint::NONE).len(), 2, "no table without evaluations");
}

#[test]
fn bars_show_the_time_left() {
    let progress = CollectProgress {
        iteration: 3,
        running: 24,
        finished: 40,
        total: 64,
        successes: 21,
        ..Default::default()
    };
    assert_eq!(bars::episodes_message(&progress), "24 running, success 0.53");
    let none = CollectProgress { finished: 0, successes: 0, ..progress };
    assert_eq!(bars::episodes_message(&none), "24 running");
    assert_eq!(bars::time_left(26.0, 20, 80), "1 min 44 s left");
    assert_eq!(bars::time_left(3600.0, 1, 2), "2 h 00 min left");
    assert_eq!(bars::time_left(5.0, 0, 80), "");
}

/// A writer whose contents can be inspected afterwards.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SharedBuffer {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn show(mode: Mode, out: impl Write + Send + 'static, log: impl Write + Send + 'static) -> Show {
    Show {
        mode,
        out: Box::new(out),
        log: Box::new(log),
        result_paint: Paint::NONE,
        log_paint: Paint::NONE,
        columns: 80,
        bars: None,
        failed: None,
    }
}

/// The output of a run: stdout and stderr.
fn shown(mode: Mode) -> (Vec<String>, Vec<String>) {
    let (out, log) = (SharedBuffer::default(), SharedBuffer::default());
    let mut show = show(mode, out.clone(), log.clone());
    show.event(&RunEvent::RunStarted(RunStarted { folder: "runs/a".into(), ..RunStarted::default() }));
    show.event(&RunEvent::CollectProgress(CollectProgress::default()));
    show.event(&RunEvent::IterationDone(evaluated(1)));
    show.event(&RunEvent::Notice(Notice { message: "a desktop was given up".into() }));
    show.event(&RunEvent::RunEnded(ended()));
    show.finish().unwrap();
    (out.lines(), log.lines())
}

#[test]
fn without_a_terminal_there_are_plain_lines() {
    let (out, log) = shown(Mode::Lines);
    assert_eq!(out, table::ended(&ended(), Paint::NONE));
    assert_eq!(log.len(), 5);
    assert!(log[3].starts_with("  1/100  success 0.53"));
    assert_eq!(log[4], "note: a desktop was given up");
    assert!(!format!("{out:?}{log:?}").contains("\\u{1b}"));
}

#[test]
fn quiet_shows_problems_and_the_result() {
    let (out, log) = shown(Mode::Quiet);
    assert_eq!(out, table::ended(&ended(), Paint::NONE));
    assert_eq!(log, ["note: a desktop was given up"]);
}

#[test]
fn scripts_get_an_object_per_line() {
    let (out, log) = shown(Mode::Json);
    assert!(log.is_empty());
    let objects: Vec<serde_json::Value> =
        out.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = objects.iter().map(|object| object["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["run_started", "iteration_done", "notice", "run_ended"]);
    assert_eq!(objects[1]["evaluation"]["suites"]["training"]["mean"], 0.83);
    assert_eq!(objects[3]["written"]["metrics"], "runs/a/metrics.jsonl");
    assert_eq!(objects[3]["best"]["iteration"], 50);
}

/// Those of other threads come as those of the run do, in the order in which they arise; Ctrl-C is for a terminal.
#[test]
fn lines_of_any_thread_come_between_the_events() {
    let shown = |mode| {
        let (out, log) = (SharedBuffer::default(), SharedBuffer::default());
        let show = SharedShow::of(show(mode, out.clone(), log.clone()));
        let (notices, signals) = (show.notices(), show.signals());
        show.event(&RunEvent::IterationDone(done(1)));
        let elsewhere = std::thread::spawn(move || {
            notices.say("a server was lost");
            signals.say("stopping");
        });
        elsewhere.join().unwrap();
        show.event(&RunEvent::IterationDone(done(2)));
        show.finish().unwrap();
        (out.lines(), log.lines())
    };
    let (out, log) = shown(Mode::Lines);
    assert!(out.is_empty());
    assert_eq!(log[1..3], ["note: a server was lost", "stopping"]);
    assert_eq!(log.len(), 4);
    let (out, log) = shown(Mode::Json);
    assert_eq!(log, ["stopping"]);
    assert_eq!(out[1], r#"{"event":"notice","message":"a server was lost"}"#);
    assert_eq!(out.len(), 3);
}

/// A closed pipe does not stop the run.
#[test]
fn a_closed_pipe_is_reported_at_the_end() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut show = show(Mode::Json, Closed, io::sink());
    show.event(&RunEvent::IterationDone(done(1)));
    show.event(&RunEvent::IterationDone(done(2)));
    assert_eq!(show.finish().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
}

/// A simulated run in real time, to look at the bars: run it with `--ignored --nocapture` in a terminal.
#[test]
#[ignore = "for manual inspection"]
fn a_run_for_manual_inspection() {
    let mut show = Show::new(ShowArguments::default());
    let started = RunStarted { iterations: 100, method: "ARPO".into(), ..RunStarted::default() };
    show.event(&RunEvent::RunStarted(started));
    for iteration in 1..=6 {
        for finished in 0..=64 {
            let running = 32.min(64 - finished);
            let progress = CollectProgress {
                iteration,
                running,
                finished,
                total: 64,
                successes: finished / 2,
                ..Default::default()
            };
            show.event(&RunEvent::CollectProgress(progress));
            std::thread::sleep(Duration::from_millis(10));
        }
        show.event(&RunEvent::IterationDone(if iteration == 3 { evaluated(3) } else { done(iteration) }));
    }
    show.event(&RunEvent::Notice(Notice { message: "stopping after this iteration".into() }));
    show.event(&RunEvent::RunEnded(ended()));
    assert!(show.finish().is_ok());
}

#[test]
fn a_failure_is_one_line_with_its_remedy() {
    let failure = |kind, task: Option<&str>, remedy| DesktopFailure {
        desktop: 3,
        task: task.map(TaskId::new),
        kind,
        reason: "no answer\nwithin 30 s".into(),
        remedy,
    };
    let printed = |failure: DesktopFailure| lines::failure(&failure, Paint::NONE);
    let later = Remedy::Replaced { after_seconds: 4.0 };
    assert_eq!(
        printed(failure(FailureKind::Overrun, Some("mail"), later)),
        "desktop 3 on mail: overrun: no answer within 30 s; replaced in 4 s"
    );
    assert_eq!(
        printed(failure(FailureKind::Start, None, Remedy::Quarantined)),
        "desktop 3: start: no answer within 30 s; quarantined for the rest of this collection"
    );
    assert_eq!(
        printed(failure(FailureKind::BadTask, Some("mail"), Remedy::TaskSkipped)),
        "task mail: bad_task: no answer within 30 s; the task is skipped"
    );
    let failures = [(FailureKind::Start, 1), (FailureKind::Overrun, 2)].into();
    let progress = CollectProgress { running: 5, failures, ..CollectProgress::default() };
    assert_eq!(bars::episodes_message(&progress), "5 running, 1 start, 2 overrun");
}
