//! Runs that differ in nothing but their seed are one experiment: their results are given as a mean with its interval over seeds.

use crate::run::Run;
use crate::runs::{line, success_metric};
use arpo_chart::{Point, Series};
use serde::Serialize;

/// Runs of one experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Experiment {
    /// Its name: the method, and what tells it from others.
    pub name: String,
    /// Its runs, by number.
    pub runs: Vec<usize>,
}

/// A result of an experiment on a set of tasks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetResult {
    /// The experiment.
    pub experiment: String,
    /// The number of seeds.
    pub seeds: usize,
    /// The set of tasks.
    pub set: String,
    /// At the first evaluation.
    pub first: Estimate,
    /// At the last one.
    pub last: Estimate,
    /// At the best one of each run.
    pub best: Estimate,
    /// The iteration of the last evaluation that all runs have.
    pub iteration: f64,
}

/// A value, and its 95 % interval if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Its interval.
    pub interval: Option<(f64, f64)>,
}

/// The experiments of some runs, in the order of their first run.
pub fn experiments(runs: &[Run]) -> Vec<Experiment> {
    let mut found: Vec<(String, Experiment)> = vec![];
    for (number, run) in runs.iter().enumerate() {
        let mut config = run.info.config.clone();
        config.remove("seed");
        let key = config.to_string();
        match found.iter_mut().find(|(known, _)| *known == key && !config.is_empty()) {
            Some((_, experiment)) => experiment.runs.push(number),
            None => found.push((key, Experiment { name: String::new(), runs: vec![number] })),
        }
    }
    let method = |run: &Run| {
        let method = run.info.method();
        method.split(' ').next().unwrap_or("").to_owned()
    };
    let methods: Vec<String> = found.iter().map(|(_, one)| method(&runs[one.runs[0]])).collect();
    for ((_, experiment), name) in found.iter_mut().zip(&methods) {
        let unique = !name.is_empty() && methods.iter().filter(|other| *other == name).count() == 1;
        let first = line(&runs[experiment.runs[0]]).name;
        experiment.name = if unique { name.clone() } else { format!("{name} {first}").trim().to_owned() };
    }
    found.into_iter().map(|(_, experiment)| experiment).collect()
}

/// A metric of a run, with the interval beside it, if it has one.
fn series(run: &Run, metric: &str) -> Series {
    let metrics = &run.metrics;
    let column = |name: &str| metrics.column(name).unwrap_or(&[]);
    let (low, high) = (column(&format!("{metric}/low")), column(&format!("{metric}/high")));
    let points = column(metric).iter().enumerate().filter(|(_, value)| !value.is_nan()).map(|(row, &y)| {
        let band = low.get(row).zip(high.get(row)).map(|(&low, &high)| (low, high));
        Point {
            x: metrics.iteration(row),
            y,
            band: band.filter(|(low, high)| !low.is_nan() && !high.is_nan()),
        }
    });
    Series { name: String::new(), points: points.collect() }
}

impl Experiment {
    /// A metric over its runs.
    fn over_seeds(&self, runs: &[Run], metric: &str) -> Series {
        let each: Vec<Series> = self.runs.iter().map(|&number| series(&runs[number], metric)).collect();
        match each.as_slice() {
            [one] => Series { name: self.name.clone(), points: one.points.clone() },
            each => Series::mean_of(&self.name, each),
        }
    }

    /// Its success over iterations; `None` without a value.
    pub fn success(&self, runs: &[Run]) -> Option<Series> {
        let metric = success_metric(&runs[self.runs[0]])?;
        Some(self.over_seeds(runs, metric)).filter(|series| !series.points.is_empty())
    }

    /// Its results on every set that it was evaluated on; on the collected episodes, if it was not evaluated.
    pub fn results(&self, runs: &[Run]) -> Vec<SetResult> {
        let names = runs[self.runs[0]].metrics.names();
        let sets = names.iter().filter_map(|name| name.strip_prefix("evaluation/"));
        let mut sets: Vec<String> = sets
            .filter(|set| !set.contains('/') && *set != "lost")
            .map(|set| format!("evaluation/{set}"))
            .collect();
        if sets.is_empty() && names.iter().any(|name| name == "reward/score") {
            sets.push("reward/score".into());
        }
        sets.iter().filter_map(|metric| self.result(runs, metric)).collect()
    }

    fn result(&self, runs: &[Run], metric: &str) -> Option<SetResult> {
        let over = self.over_seeds(runs, metric);
        let estimate = |point: &Point| Estimate { mean: point.y, interval: point.band };
        let (first, last) = (over.points.first()?, over.points.last()?);
        // the best evaluation of each run, as a curve of one point, so that the interval over seeds is the same one
        let best: Vec<Series> = self
            .runs
            .iter()
            .filter_map(|&number| {
                let best =
                    series(&runs[number], metric).points.into_iter().max_by(|a, b| a.y.total_cmp(&b.y))?;
                Some(Series { name: String::new(), points: vec![Point { x: 0.0, ..best }] })
            })
            .collect();
        let best = if let [one] = best.as_slice() { one.clone() } else { Series::mean_of("", &best) };
        Some(SetResult {
            experiment: self.name.clone(),
            seeds: self.runs.len(),
            set: metric.trim_start_matches("evaluation/").replace("reward/score", "collected"),
            first: estimate(first),
            last: estimate(last),
            best: estimate(best.points.first()?),
            iteration: last.x,
        })
    }
}
