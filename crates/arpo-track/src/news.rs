//! What is new in a run folder: lines of metrics as named values, and a few episodes with a picture and their text.
//!
//! Of every evaluation and of every tenth iteration one success and one failure are shown; all of them would be more than
//! a tracker is made for (`arpo view` shows them).

use crate::TrackError;
use arpo_core::reward::RewardConfig;
use arpo_lines::{LineFile, line_at};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Episodes of every so many iterations are shown.
const SHOWN_EVERY: u64 = 10;

/// What is new.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct News {
    /// Lines of metrics, in order.
    pub metrics: Vec<Metrics>,
    /// Episodes to show.
    pub episodes: Vec<Episode>,
}

impl News {
    /// Nothing is new.
    pub fn is_empty(&self) -> bool {
        self.metrics.is_empty() && self.episodes.is_empty()
    }
}

/// A line of metrics.
#[derive(Debug, Clone, PartialEq)]
pub struct Metrics {
    /// The iteration; 0 before training.
    pub iteration: u64,
    /// When it ended, in Unix seconds.
    pub time: f64,
    /// Values by name, as in `metrics.jsonl`. Scores of single tasks are left out.
    pub values: Vec<(String, f64)>,
}

/// An episode to show.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// The iteration it was collected in, or after which it was evaluated.
    pub iteration: u64,
    /// When it was recorded, in Unix seconds.
    pub time: f64,
    /// `training`, or the set of tasks that was evaluated, and whether it succeeded: `evaluation/held_out/failure`.
    pub name: String,
    /// What was asked, what the agent answered, how it ended. Markdown.
    pub text: String,
    /// Its last screenshot, a PNG, if it is there.
    pub screen: Option<PathBuf>,
}

/// Follows a run folder.
#[derive(Debug)]
pub struct RunReader {
    run: PathBuf,
    metrics: LineFile,
    index: LineFile,
    /// Iterations up to this one were logged before.
    logged: Option<u64>,
    /// The last iteration that was read.
    last: Option<u64>,
    success_above: f64,
    /// The episodes that are chosen already: file, set and success.
    chosen: Vec<(String, String, bool)>,
}

impl RunReader {
    /// From the beginning, or after an iteration that was logged before.
    pub fn new(run: &Path, logged: Option<u64>) -> Self {
        Self {
            run: run.to_path_buf(),
            metrics: LineFile::new(&run.join("metrics.jsonl")),
            index: LineFile::new(&run.join("episodes/index.jsonl")),
            logged,
            last: logged,
            success_above: success_above(run),
            chosen: vec![],
        }
    }

    /// What is new.
    pub fn more(&mut self) -> Result<News, TrackError> {
        let mut news = News::default();
        // a run that resumes cuts its files: they come again, but nothing is passed on twice
        let (mut metrics_file, mut index) = (self.metrics.clone(), self.index.clone());
        // where a file cannot be read nothing moves on, or its news would be lost
        let (mut last, chosen) = (self.last, self.chosen.len());
        let read = metrics_file.follow(
            || {},
            |_, line| {
                let parsed = serde_json::from_slice(line);
                let metrics = parsed.as_ref().ok().and_then(metrics);
                // a run that resumed has repeated iterations that were logged before it was killed
                let new = metrics.filter(|one| last.is_none_or(|last| one.iteration > last));
                last = new.as_ref().map(|one| one.iteration).or(last);
                news.metrics.extend(new);
                parsed.is_ok()
            },
        );
        read.map_err(TrackError::io("metrics.jsonl"))?;
        let read = index.follow(
            || {},
            |_, line| {
                let parsed = serde_json::from_slice(line);
                news.episodes.extend(parsed.as_ref().ok().and_then(|line| self.chosen(line)));
                parsed.is_ok()
            },
        );
        if let Err(error) = read {
            self.chosen.truncate(chosen);
            return Err(TrackError::io("episodes/index.jsonl")(error));
        }
        (self.metrics, self.index, self.last) = (metrics_file, index, last);
        Ok(news)
    }

    /// Lines that could not be read.
    pub fn bad(&self) -> u64 {
        self.metrics.bad() + self.index.bad()
    }

    /// The episode of a line of the index, if it is to be shown.
    fn chosen(&mut self, line: &Value) -> Option<Episode> {
        let (file, score) = (line["file"].as_str()?, line["score"].as_f64()?);
        let iteration = line["iteration"].as_u64()?;
        if self.logged.is_some_and(|logged| iteration <= logged) {
            return None;
        }
        let set = match line["origin"].as_str()? {
            "evaluation" => format!("evaluation/{}", line["set"].as_str().unwrap_or("tasks")),
            "fresh" if iteration.is_multiple_of(SHOWN_EVERY) => "training".to_owned(),
            _ => return None,
        };
        if line["outcome"] == "environment_error" {
            return None;
        }
        let success = score > self.success_above;
        let key = (file.to_owned(), set, success);
        if self.chosen.contains(&key) {
            return None;
        }
        let trajectory = stored(&self.run, file, line["offset"].as_u64()?, line["length"].as_u64()?)?;
        let screen = trajectory["steps"].as_array()?.last().and_then(|step| {
            let digest = step["observation"]["screenshot"]["digest"].as_str()?;
            let plain = digest.len() > 2 && digest.bytes().all(|byte| byte.is_ascii_alphanumeric());
            let path = self.run.join("episodes/screens").join(digest.get(..2)?).join(format!("{digest}.png"));
            (plain && path.is_file()).then_some(path)
        });
        let name = format!("{}/{}", key.1, if success { "success" } else { "failure" });
        self.chosen.push(key);
        let time = line["time"].as_f64().unwrap_or(0.0);
        Some(Episode { iteration, time, name, text: told(line, &trajectory), screen })
    }
}

/// The threshold of success in the run's configuration.
fn success_above(run: &Path) -> f64 {
    let text = fs::read_to_string(run.join("config.toml")).unwrap_or_default();
    let config: toml::Table = text.parse().unwrap_or_default();
    config
        .get("reward")
        .and_then(|reward| reward.get("success_above")?.as_float())
        .unwrap_or(RewardConfig::default().success_above)
}

/// The values of a line; `None` if it has no iteration.
fn metrics(line: &Value) -> Option<Metrics> {
    let iteration = line["iteration"].as_u64()?;
    let numbers = line.as_object()?.iter().filter(|(name, _)| *name != "iteration" && *name != "time/wall");
    // numbers that are not finite are null in JSON
    let values = numbers.filter_map(|(name, value)| Some((name.clone(), value.as_f64()?))).collect();
    Some(Metrics { iteration, time: line["time/wall"].as_f64().unwrap_or(0.0), values })
}

/// A trajectory, if its file is still there.
fn stored(run: &Path, file: &str, offset: u64, length: u64) -> Option<Value> {
    // a name, not a path
    if file.contains(['/', '\\']) || file.starts_with('.') {
        return None;
    }
    serde_json::from_slice(&line_at(&run.join("episodes").join(file), offset, length).ok()?).ok()
}

/// An episode as Markdown. What the model wrote is indented, so that it is shown as it is.
fn told(line: &Value, trajectory: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().replace('\n', " ");
    let mut told = format!("**{}**", text(&line["task"]));
    if line["instruction"].is_string() {
        let _ = write!(told, "  \n{}", text(&line["instruction"]));
    }
    let score = line["score"].as_f64().unwrap_or(0.0);
    let _ = write!(told, "\n\nscore {score:.2}, {}", text(&line["outcome"]).replace('_', " "));
    if line["reason"].is_string() {
        let _ = write!(told, ": {}", text(&line["reason"]));
    }
    told.push('\n');
    for (number, step) in trajectory["steps"].as_array().into_iter().flatten().enumerate() {
        let _ = write!(told, "\nTurn {}\n\n", number + 1);
        for row in step["response"].as_str().unwrap_or_default().lines() {
            let _ = writeln!(told, "    {row}");
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn episode(iteration: u64, file: &str, score: f64, more: &Value) -> Value {
        let digest = "abcd";
        let trajectory = json!({"steps": [{"response": "Thought: <b>\nAction: wait()",
            "observation": {"screenshot": {"digest": digest}}}]});
        let mut line = json!({"iteration": iteration, "file": file, "score": score, "outcome": "finished",
            "task": "t", "instruction": "do it", "time": 5.0, "offset": 0,
            "length": trajectory.to_string().len()});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line["trajectory"] = trajectory;
        line
    }

    #[test]
    fn values_and_chosen_episodes_come_once() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path();
        fs::create_dir_all(run.join("episodes/screens/ab")).unwrap();
        fs::write(run.join("episodes/screens/ab/abcd.png"), "png").unwrap();
        fs::write(run.join("config.toml"), "[reward]\nsuccess_above = 0.6\n").unwrap();
        let fresh = json!({"origin": "fresh"});
        let evaluated = json!({"origin": "evaluation", "set": "held_out"});
        let lines = [
            episode(7, "iteration-000007.jsonl", 1.0, &fresh),
            episode(10, "iteration-000010.jsonl", 0.5, &fresh),
            episode(10, "iteration-000010.jsonl", 0.4, &fresh),
            episode(10, "iteration-000010.jsonl", 0.9, &fresh),
            episode(20, "evaluation-000020.jsonl", 1.0, &evaluated),
            episode(20, "../../secret", 1.0, &evaluated),
        ];
        let mut index = String::new();
        for line in &lines {
            let file = line["file"].as_str().unwrap();
            if !file.contains('/') {
                fs::write(run.join("episodes").join(file), line["trajectory"].to_string()).unwrap();
            }
            let _ = writeln!(index, "{line}");
        }
        fs::write(run.join("episodes/index.jsonl"), index).unwrap();
        let metrics = "{\"iteration\":0,\"evaluation/training\":0.25,\"time/wall\":4.0}\n\
                       {\"iteration\":1,\"loss/value\":null,\"reward/score\":1,\"tasks\":{\"t\":1.0},\"time/wall\":6.5}\n";
        fs::write(run.join("metrics.jsonl"), metrics).unwrap();

        let mut reader = RunReader::new(run, None);
        let News { metrics, episodes } = reader.more().unwrap();
        assert_eq!(metrics.len(), 2);
        assert_eq!(
            metrics[1],
            Metrics { iteration: 1, time: 6.5, values: vec![("reward/score".into(), 1.0)] }
        );
        let names: Vec<&str> = episodes.iter().map(|episode| episode.name.as_str()).collect();
        assert_eq!(names, ["training/failure", "training/success", "evaluation/held_out/success"]);
        assert!(episodes[0].text.contains("score 0.50, finished"), "{}", episodes[0].text);
        assert!(episodes[0].text.contains("    Thought: <b>\n    Action: wait()\n"), "{}", episodes[0].text);
        assert_eq!(episodes[0].screen.as_deref(), Some(&*run.join("episodes/screens/ab/abcd.png")));
        assert!(reader.more().unwrap().is_empty());
        // news that come while the index cannot be read come later
        let more = "{\"iteration\":2,\"loss/value\":1.0,\"time/wall\":8.0}\n";
        let path = run.join("metrics.jsonl");
        fs::write(&path, fs::read_to_string(&path).unwrap() + more).unwrap();
        let index = run.join("episodes/index.jsonl");
        fs::rename(&index, run.join("aside")).unwrap();
        fs::create_dir_all(index.join("in the way")).unwrap();
        assert!(reader.more().is_err());
        fs::remove_dir_all(&index).unwrap();
        fs::rename(run.join("aside"), &index).unwrap();
        assert_eq!(reader.more().unwrap().metrics.len(), 1);
        // one that continues after iteration 0
        assert_eq!(RunReader::new(run, Some(0)).more().unwrap().metrics.len(), 2);
    }
}
