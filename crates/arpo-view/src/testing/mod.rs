//! Run folders that are made up, in the format of a real run. The numbers look like training, and mean nothing.
//!
//! In the library, and not beside its tests, because `arpo bench view` measures the pages of such a run too. Nothing else of
//! the program uses this.

mod episode;
mod picture;

use episode::{Draft, Facts};
use picture::{picture, screen_digest};
use serde_json::{Map, Value, json};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What a made-up run holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Planned iterations.
    pub iterations: u64,
    /// Tasks.
    pub tasks: usize,
    /// Groups of an iteration.
    pub groups: usize,
    /// Episodes of a group.
    pub group_size: usize,
    /// Turns of an episode at most.
    pub turns: usize,
    /// Desktops.
    pub desktops: usize,
    /// Different screenshots.
    pub screens: usize,
    /// Width and height of a screenshot.
    pub screen: (u32, u32),
    /// Iterations between two evaluations.
    pub evaluate_every: u64,
    /// Tasks of each evaluated set whose episodes are kept.
    pub evaluated: usize,
    /// Whether tokens are recorded.
    pub tokens: bool,
    /// Success at the end; 0.3 at the start.
    pub final_success: f64,
    /// The name of the method.
    pub method: &'static str,
    /// Unix time of the start.
    pub started: f64,
    /// A text in the first response of every episode.
    pub injected: &'static str,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            iterations: 40,
            tasks: 24,
            groups: 4,
            group_size: 4,
            turns: 5,
            desktops: 8,
            screens: 12,
            screen: (640, 400),
            evaluate_every: 5,
            evaluated: 0,
            tokens: true,
            final_success: 0.85,
            method: "ARPO (GRPO with replay)",
            started: 1_790_000_000.0,
            injected: "",
        }
    }
}

/// The names of evaluation episodes begin with a number from here on.
const EVALUATIONS: u64 = 1 << 40;

const APPLICATIONS: [&str; 4] = ["files", "settings", "mail", "notes"];

/// A run folder that is being written.
#[derive(Debug)]
pub struct SyntheticRun {
    folder: PathBuf,
    plan: Plan,
    random: u64,
    pictures: Vec<Vec<u8>>,
}

impl SyntheticRun {
    /// Starts a run: everything but its iterations.
    pub fn start(folder: &Path, plan: Plan, seed: u64) -> io::Result<Self> {
        let screens = folder.join("episodes/screens");
        fs::create_dir_all(&screens)?;
        fs::create_dir_all(folder.join("evaluations"))?;
        fs::create_dir_all(folder.join("live"))?;
        let config = format!(
            "seed = {seed}\niterations = {}\n\n[agent]\nstyle = \"uitars\"\nmin_pixels = 784\nmax_pixels = 4000000\n\n\
             [collect]\ngroup_size = {}\n\n[replay]\nenabled = {}\n",
            plan.iterations,
            plan.group_size,
            plan.method.starts_with("ARPO")
        );
        fs::write(folder.join("config.toml"), config)?;
        let mut run = Self {
            folder: folder.to_path_buf(),
            random: seed.wrapping_mul(0x9E37_79B9) + 1,
            pictures: vec![],
            plan,
        };
        for number in 0..run.plan.screens {
            let digest = screen_digest(number);
            fs::create_dir_all(screens.join(&digest[..2]))?;
            let picture = picture(number, run.plan.screen)?;
            fs::write(screens.join(&digest[..2]).join(format!("{digest}.png")), &picture)?;
            run.pictures.push(picture);
        }
        run.describe(seed, None)?;
        Ok(run)
    }

    /// A whole run of all iterations.
    pub fn whole(folder: &Path, plan: Plan, seed: u64) -> io::Result<()> {
        let iterations = plan.iterations;
        let mut run = Self::start(folder, plan, seed)?;
        for iteration in 0..=iterations {
            run.iteration(iteration)?;
        }
        run.describe(seed, Some("finished"))
    }

    /// Writes `run.json`.
    pub fn describe(&self, seed: u64, ending: Option<&str>) -> io::Result<()> {
        let ended = ending.map(|_| self.time_of(self.plan.iterations));
        let run = json!({
            "arpo": env!("CARGO_PKG_VERSION"), "started": self.plan.started, "resumed": [], "ended": ended, "ending": ending,
            "iterations": self.plan.iterations, "method": self.plan.method, "parameters": 1_900_000, "device": "cpu",
            "machine": {"host": "example", "cpu": "made up", "cores": 2, "memory_gib": 24, "gpu": null},
            "seed": seed, "pid": 1, "view": null,
        });
        self.replace("run.json", run.to_string().as_bytes())
    }

    /// The next random number in [0, 1).
    fn next(&mut self) -> f64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn time_of(&self, iteration: u64) -> f64 {
        self.plan.started + 2.5 * iteration as f64
    }

    /// The probability that a task is solved at an iteration.
    fn ability(&self, task: usize, iteration: u64) -> f64 {
        let progress = iteration as f64 / self.plan.iterations.max(1) as f64;
        let learnt = 0.3 + (self.plan.final_success - 0.3) * (1.0 - (-4.0 * progress).exp());
        let difficulty = (task * 7919 % 100) as f64 / 100.0;
        (learnt + 0.5 - difficulty).clamp(0.02, 0.98)
    }

    fn task_name(task: usize) -> (String, &'static str) {
        let application = APPLICATIONS[task % APPLICATIONS.len()];
        (format!("pocket-{application}-open-{task}"), application)
    }

    /// Writes an iteration: its episodes, their index, its evaluation, its line of metrics, and the live state after it. Iteration
    /// 0 is the evaluation before training.
    pub fn iteration(&mut self, iteration: u64) -> io::Result<()> {
        let mut line = Map::new();
        line.insert("iteration".into(), json!(iteration));
        if iteration > 0 {
            self.episodes(iteration, &mut line)?;
        }
        if iteration.is_multiple_of(self.plan.evaluate_every) {
            self.evaluation(iteration, &mut line)?;
        }
        line.insert("time/wall".into(), json!(self.time_of(iteration)));
        self.append("metrics.jsonl", &[Value::Object(line)])?;
        self.status(iteration)
    }

    fn episodes(&mut self, iteration: u64, line: &mut Map<String, Value>) -> io::Result<()> {
        let mut draft = Draft::new(format!("iteration-{iteration:06}.jsonl"));
        let (mut means, mut sum, mut replayed) = (Map::new(), 0.0, 0);
        for group in 0..self.plan.groups {
            let task = (iteration as usize * self.plan.groups + group) % self.plan.tasks;
            let (task_name, _) = Self::task_name(task);
            let mut scores: Vec<f64> = vec![];
            for _ in 0..self.plan.group_size {
                let solved = self.next() < self.ability(task, iteration);
                scores.push(f64::from(u8::from(solved)));
            }
            let fresh = scores.iter().sum::<f64>() / scores.len() as f64;
            let is_replayed = fresh < 0.01 && iteration > 3 && self.plan.method.starts_with("ARPO");
            if is_replayed {
                scores[0] = 1.0;
                replayed += 1;
            }
            let mean = scores.iter().sum::<f64>() / scores.len() as f64;
            means.insert(task_name, json!(fresh));
            sum += fresh;
            for (member, &score) in scores.iter().enumerate() {
                let from_replay = is_replayed && member == 0;
                let version = if from_replay { iteration - 3 } else { iteration - 1 };
                let more = json!({
                    "iteration": iteration, "origin": if from_replay { "replayed" } else { "fresh" }, "set": null,
                    "group": group, "reward": score, "advantage": score - mean, "time": self.time_of(iteration) - 1.0,
                });
                self.add(&mut draft, &Facts { step: version, task, attempt: member, version, score, more });
            }
        }
        self.finish(draft)?;
        let success = sum / self.plan.groups.max(1) as f64;
        self.numbers(success, replayed, line);
        line.insert("tasks".into(), Value::Object(means));
        Ok(())
    }

    /// The other metrics of an iteration.
    fn numbers(&mut self, success: f64, replayed: usize, line: &mut Map<String, Value>) {
        let (groups, size) = (self.plan.groups, self.plan.group_size);
        let mut put = |name: &str, value: f64| line.insert(name.to_owned(), json!(value));
        put("reward/score", success);
        put("reward/mean", success * 0.95 + 0.02);
        put("reward/std", (success * (1.0 - success)).sqrt());
        put("groups/all", groups as f64);
        put("groups/informative", (groups as f64 * 0.7).round());
        put("groups/all_failed", replayed as f64);
        put("replay/injected", replayed as f64);
        put("replay/stored", groups as f64 * 3.0);
        put("collect/episodes", (groups * size) as f64);
        let mut noisy = |scale: f64| scale * (0.6 + 0.8 * self.next());
        put("policy/entropy", noisy(0.4 * (1.1 - success)));
        put("policy/mismatch", noisy(1e-4));
        put("policy/mismatch_largest", noisy(0.02));
        put("loss/kl", noisy(0.004));
        put("loss/value", noisy(0.05) - 0.05);
        put("loss/clip_fraction", noisy(0.01));
        put("update/gradient_norm", noisy(0.8));
        put("update/learning_rate", 2e-4);
        put("episode/turns", 1.0 + noisy(2.0));
        put("episode/tokens", noisy(900.0));
        put("replay/age", noisy(6.0));
        let (collect, learn) = (noisy(1.5), noisy(0.9));
        put("time/collect", collect);
        put("time/learn", learn);
        put("time/iteration", collect + learn);
        put("time/desktop_utilisation", (0.5 + noisy(0.3)).min(1.0));
        put("time/policy_utilisation", (0.3 + noisy(0.3)).min(1.0));
        put("time/sampled_tokens_per_second", noisy(2000.0));
        put("failures/overrun", f64::from(u8::from(noisy(1.0) > 1.3)));
    }

    fn evaluation(&mut self, iteration: u64, line: &mut Map<String, Value>) -> io::Result<()> {
        let mut sets = vec![];
        let mut draft = Draft::new(format!("evaluation-{iteration:06}.jsonl"));
        for (number, (set, gain)) in [("training", 0.0), ("held_out", -0.25)].into_iter().enumerate() {
            let (mut all, mut tasks) = (vec![], vec![]);
            for task in 0..self.plan.tasks {
                let chance = self.ability(task, iteration) + gain;
                let scores: Vec<f64> = (0..4).map(|_| f64::from(u8::from(self.next() < chance))).collect();
                all.extend(scores.iter().copied());
                let kept = if task < self.plan.evaluated { scores.len() } else { 0 };
                for (attempt, &score) in scores.iter().take(kept).enumerate() {
                    let step = EVALUATIONS + iteration * 2 + number as u64;
                    let more = json!({
                        "iteration": iteration, "origin": "evaluation", "set": set, "group": task, "reward": null,
                        "advantage": null, "time": self.time_of(iteration),
                    });
                    self.add(&mut draft, &Facts { step, task, attempt, version: iteration, score, more });
                }
                let (name, application) = Self::task_name(task);
                tasks.push(json!({"task": name, "application": application, "scores": scores}));
            }
            let success = arpo_core::statistics::success(&all);
            line.insert(format!("evaluation/{set}"), json!(success.mean));
            line.insert(format!("evaluation/{set}/low"), json!(success.low));
            line.insert(format!("evaluation/{set}/high"), json!(success.high));
            sets.push(json!({"name": set, "success": success, "tasks": tasks}));
        }
        self.finish(draft)?;
        let file = json!({"iteration": iteration, "sets": sets});
        self.replace(&format!("evaluations/{iteration:06}.json"), file.to_string().as_bytes())
    }

    /// Writes the live state of a run that collects after an iteration.
    pub fn status(&mut self, iteration: u64) -> io::Result<()> {
        const STATES: [&str; 7] =
            ["acting", "waiting", "acting", "resetting", "evaluating", "idle", "failed"];
        let now = crate::run::info::now();
        let mut desktops = vec![];
        for number in 0..self.plan.desktops {
            let (task, _) = Self::task_name((iteration as usize + number) % self.plan.tasks);
            let screen = screen_digest((iteration as usize + number) % self.plan.screens);
            desktops.push(json!({
                "desktop": number, "host": null, "state": STATES[(number + iteration as usize) % STATES.len()],
                "task": task, "episode": format!("{iteration}:{task}:{number}"), "turn": 1 + number % 5,
                "since": now - number as f64, "screen": screen,
            }));
            let picture = &self.pictures[(iteration as usize + number) % self.plan.screens];
            self.replace(&format!("live/desktop-{number:03}.png"), picture)?;
        }
        let total = self.plan.groups * self.plan.group_size;
        let status = json!({
            "time": now, "phase": "collect", "iteration": iteration + 1, "of": self.plan.iterations,
            "finished": total / 2, "total": total, "successes": total / 3, "desktops": desktops,
        });
        self.replace("status.json", status.to_string().as_bytes())
    }

    /// Writes a failure of a desktop.
    pub fn failure(&mut self, iteration: u64, desktop: usize) -> io::Result<()> {
        let (task, _) = Self::task_name(desktop);
        let failure = json!({
            "time": crate::run::info::now(), "iteration": iteration, "desktop": desktop, "host": null, "kind": "overrun",
            "task": task, "message": "step took longer than 30 s", "action": "replaced",
        });
        self.append("failures.jsonl", &[failure])
    }

    fn append(&self, name: &str, lines: &[Value]) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(self.folder.join(name))?;
        let mut text = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
        text.push('\n');
        // one write, so that a reader never sees half of it
        if lines.is_empty() { Ok(()) } else { file.write_all(text.as_bytes()) }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let (path, hidden) = (self.folder.join(name), self.folder.join(".writing"));
        fs::write(&hidden, bytes)?;
        fs::rename(hidden, path)
    }
}
