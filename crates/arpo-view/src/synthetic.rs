//! Run folders that are made up, in the format of a real run: for `arpo bench view`, and for tests of the pages.
//!
//! The numbers look like training, and mean nothing.

use image::{ImageFormat, Rgb, RgbImage};
use serde_json::{Map, Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Cursor, Write};
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
            tokens: true,
            final_success: 0.85,
            method: "ARPO (GRPO with replay)",
            started: 1_790_000_000.0,
            injected: "",
        }
    }
}

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
            let picture = run.picture(number)?;
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
        let name = format!("iteration-{iteration:06}.jsonl");
        let path = self.folder.join("episodes").join(&name);
        let mut file = BufWriter::new(File::create(&path)?);
        let (mut index, mut tokens, mut offset) = (vec![], vec![], 0_u64);
        let (mut means, mut sum, mut replayed) = (Map::new(), 0.0, 0);
        for group in 0..self.plan.groups {
            let task = (iteration as usize * self.plan.groups + group) % self.plan.tasks;
            let (task_name, application) = Self::task_name(task);
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
            means.insert(task_name.clone(), json!(fresh));
            sum += fresh;
            for (member, &score) in scores.iter().enumerate() {
                let from_replay = is_replayed && member == 0;
                let of = if from_replay { iteration - 2 } else { iteration };
                let id = format!("{of}:{task_name}:{member}");
                let (trajectory, token_line, turns) =
                    self.trajectory(&id, &task_name, of, score, task + member);
                let text = trajectory.to_string();
                writeln!(file, "{text}")?;
                let outcome = &trajectory["outcome"];
                index.push(json!({
                    "id": id, "iteration": iteration, "origin": if from_replay { "replayed" } else { "fresh" }, "set": null,
                    "task": task_name, "instruction": format!("Open {application} and press button {task}."),
                    "application": application, "group": group, "version": of - 1, "turns": turns, "tokens": turns * 9,
                    "score": score, "reward": score, "advantage": score - mean, "outcome": outcome["type"],
                    "reason": outcome["reason"], "time": self.time_of(iteration) - 1.0,
                    "first_screen": trajectory["steps"][0]["observation"]["screenshot"]["digest"], "file": name,
                    "offset": offset, "length": text.len(),
                }));
                offset += text.len() as u64 + 1;
                tokens.push(token_line);
            }
        }
        file.flush()?;
        if self.plan.tokens {
            let mut file = BufWriter::new(File::create(path.with_extension("tokens.jsonl"))?);
            for line in &tokens {
                writeln!(file, "{line}")?;
            }
            file.flush()?;
        }
        self.append("episodes/index.jsonl", &index)?;
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

    /// A trajectory as a run stores it, its line of tokens, and its number of turns.
    fn trajectory(
        &mut self,
        id: &str,
        task: &str,
        version: u64,
        score: f64,
        start: usize,
    ) -> (Value, Value, usize) {
        let turns = 1 + (self.next() * self.plan.turns as f64) as usize;
        let (width, height) = self.plan.screen;
        let (mut steps, mut token_steps, mut logps, mut position) = (vec![], vec![], vec![], 20);
        for turn in 0..turns {
            let last = turn + 1 == turns;
            let x = (self.next() * f64::from(width)).floor();
            let y = (self.next() * f64::from(height)).floor();
            let place = |x: f64, y: f64| json!({"x1": x, "y1": y, "x2": x, "y2": y});
            let kind = if last && score > 0.5 { 9 } else { (self.next() * 5.0) as usize };
            let (written, action) = match kind {
                0 => (
                    "type(content='hello world')".to_owned(),
                    json!({"type": "type", "content": "hello world"}),
                ),
                1 => (
                    format!("drag(start_box='({x},{y})', end_box='({y},{x})')"),
                    json!({"type": "drag", "start_box": place(x, y), "end_box": place((x + 90.0).min(f64::from(width) - 1.0), (y + 60.0).min(f64::from(height) - 1.0))}),
                ),
                2 => ("hotkey(key='ctrl s')".to_owned(), json!({"type": "hotkey", "keys": ["ctrl", "s"]})),
                9 => ("finished(content='')".to_owned(), json!({"type": "finished", "content": ""})),
                _ => (
                    format!("click(start_box='({x},{y})')"),
                    json!({"type": "click", "start_box": place(x, y)}),
                ),
            };
            let thought = if turn == 0 { self.plan.injected } else { "" };
            let response = format!(
                "Thought: {thought}turn {} needs the button at the right.\nAction: {written}",
                turn + 1
            );
            let pieces: Vec<String> = pieces(&response);
            let logp: Vec<f64> = pieces.iter().map(|_| -2.5 * self.next().powi(4)).collect();
            let ratio: Vec<f64> = pieces.iter().map(|_| 0.8 + 0.4 * self.next()).collect();
            steps.push(json!({
                "observation": {"screenshot": {
                    "digest": screen_digest((start + turn) % self.plan.screens), "width": width, "height": height,
                }},
                "response": response, "actions": [action],
                "span": {"start": position, "end": position + pieces.len()},
            }));
            position += pieces.len() + 5;
            logps.extend(logp.iter().copied());
            token_steps.push(json!({"pieces": pieces, "logp": logp, "ratio": ratio}));
        }
        let outcome = match (score > 0.5, turns == self.plan.turns, turns % 3) {
            (false, true, _) => json!({"type": "step_limit"}),
            (false, false, 0) => json!({"type": "unparsable", "reason": "the response has no \"Action:\""}),
            _ => json!({"type": "finished"}),
        };
        let trajectory = json!({
            "id": id, "task": task, "policy_version": version.saturating_sub(1),
            "slices": [{"tokens": [[1, position]], "first_live": 0, "end": turns}], "steps": steps,
            "sampler_logp": logps, "score": score, "well_formed": true, "outcome": outcome,
        });
        (trajectory, json!({"id": id, "steps": token_steps}), turns)
    }

    fn evaluation(&mut self, iteration: u64, line: &mut Map<String, Value>) -> io::Result<()> {
        let mut sets = vec![];
        for (set, gain) in [("training", 0.0), ("held_out", -0.25)] {
            let (mut all, mut tasks) = (vec![], vec![]);
            for task in 0..self.plan.tasks {
                let chance = self.ability(task, iteration) + gain;
                let scores: Vec<f64> = (0..4).map(|_| f64::from(u8::from(self.next() < chance))).collect();
                all.extend(scores.iter().copied());
                let (name, application) = Self::task_name(task);
                tasks.push(json!({"task": name, "application": application, "scores": scores}));
            }
            let success = arpo_core::statistics::success(&all);
            line.insert(format!("evaluation/{set}"), json!(success.mean));
            line.insert(format!("evaluation/{set}/low"), json!(success.low));
            line.insert(format!("evaluation/{set}/high"), json!(success.high));
            sets.push(json!({"name": set, "success": success, "tasks": tasks}));
        }
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
                "task": task, "episode": format!("{}:{task}:{number}", iteration + 1), "turn": 1 + number % 5,
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

    /// A screenshot: a desktop with a window and some buttons.
    fn picture(&self, number: usize) -> io::Result<Vec<u8>> {
        let (width, height) = self.plan.screen;
        let mut image = RgbImage::from_pixel(width, height, Rgb([44, 62, 92]));
        let mut fill = |left: u32, top: u32, right: u32, bottom: u32, colour: [u8; 3]| {
            for y in top.min(height)..bottom.min(height) {
                for x in left.min(width)..right.min(width) {
                    image.put_pixel(x, y, Rgb(colour));
                }
            }
        };
        let shift = (number as u32 * 37) % (width / 4).max(1);
        fill(0, height - height / 14, width, height, [24, 30, 44]);
        fill(width / 10 + shift, height / 10, width * 6 / 10 + shift, height * 8 / 10, [238, 240, 244]);
        fill(
            width / 10 + shift,
            height / 10,
            width * 6 / 10 + shift,
            height / 10 + height / 16,
            [200, 90, 60],
        );
        for row in 0..5 {
            let (top, left) = (height / 5 + row * height / 9, width / 8 + shift);
            let shade = (number as u32 * 53 + row * 31) % 120;
            fill(
                left,
                top,
                left + width / 6 + shade.min(width / 6),
                top + height / 24,
                [90, 120, 60 + shade as u8],
            );
        }
        let mut bytes = Vec::new();
        image.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).map_err(io::Error::other)?;
        Ok(bytes)
    }
}

fn screen_digest(number: usize) -> String {
    format!("{:08x}{number:08x}", number.wrapping_mul(2_654_435_761) & 0xffff_ffff)
}

/// Pieces of a text, as a tokenizer would cut it.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = vec![];
    for letter in text.chars() {
        match pieces.last_mut() {
            Some(piece) if letter.is_alphanumeric() && piece.len() < 5 => piece.push(letter),
            _ => pieces.push(letter.to_string()),
        }
    }
    pieces
}
