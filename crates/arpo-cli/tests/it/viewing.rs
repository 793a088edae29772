//! What the trainer writes, the viewer and the trackers read: a real run, watched while it goes on and afterwards.

use crate::training::{scratch, train};
use arpo_view::run::Run;
use arpo_view::run::index::Origin;
use arpo_view::run::info::State;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const ITERATIONS: usize = 30;
const DEADLINE: Duration = Duration::from_mins(3);

fn log(run: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_arpo"));
    command.arg("log").arg(run).args(["--to", "tensorboard"]).output().unwrap()
}

#[test]
fn a_run_is_watched_while_it_goes_on_and_afterwards() {
    let run = scratch("viewed").join("run");
    let settings = ["iterations=30", "evaluation.every=10", "logging.to=[\"tensorboard\"]"];
    let mut arguments = vec!["--quiet", "--view=0"];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    let mut child = train(&run, &arguments).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = said.next().unwrap().unwrap();
    let page = first.strip_prefix("view: ").unwrap_or_else(|| panic!("{first}")).to_owned();
    // nobody else reads the rest
    let rest = std::thread::spawn(move || said.map_while(Result::ok).collect::<Vec<_>>().join("\n"));
    let client = ureq::Agent::config_builder().timeout_global(Some(DEADLINE)).proxy(None).build().new_agent();
    let get = |path: &str| -> Value {
        let text = client.get(format!("{page}{path}")).call().unwrap().body_mut().read_to_string().unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let began = Instant::now();
    while get("api/runs")["runs"][0]["iteration"].as_f64() < Some(1.0) {
        assert!(began.elapsed() < DEADLINE, "no iteration");
        std::thread::sleep(Duration::from_millis(50));
    }
    let status = get("api/runs/run/status");
    assert_eq!(
        (&status["state"], &status["status"]["desktops"][7]["desktop"]),
        (&"running".into(), &7.into())
    );
    // a second process would send everything again
    let refused = log(&run);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(child.try_wait().unwrap().is_none(), "the run ended before it could be sent");
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains("is running and logs to tensorboard itself"), "{message}");
    assert!(child.wait().unwrap().success(), "{}", rest.join().unwrap());
    let sent = log(&run);
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));

    let mut run = Run::open(&run).unwrap();
    assert_eq!((run.state(), run.metrics.rows(), run.bad_lines()), (State::Finished, ITERATIONS + 1, 0));
    let rows = run.index().rows.clone();
    assert!(rows.len() > ITERATIONS * 8, "{}", rows.len());
    let (mut evaluated, mut with_tokens) = (0, 0);
    for row in rows.iter().step_by(5) {
        let file = run.index().file_of(row).name.to_string();
        let (_, episode) = run.episode(&file, &row.id).unwrap();
        assert_eq!(episode.steps.len(), row.turns as usize, "{}", row.id);
        for step in &episode.steps {
            assert!(run.screen_path(&step.screen.as_ref().unwrap().digest).unwrap().is_some(), "{}", row.id);
            let tokens = step.tokens.as_ref().filter(|tokens| !tokens.pieces.is_empty());
            with_tokens += usize::from(tokens.is_some());
            assert!(tokens.is_none_or(|tokens| tokens.pieces.concat().starts_with(&step.response)));
        }
        // by this the pages tell the names of evaluation episodes from the others
        let step: u64 = row.id.split(':').next().unwrap().parse().unwrap();
        assert_eq!(step >= 1 << 40, row.origin == Origin::Evaluation, "{}", row.id);
        evaluated += usize::from(row.origin == Origin::Evaluation);
    }
    assert!(evaluated > 0 && with_tokens > 0, "{evaluated} {with_tokens}");
}
