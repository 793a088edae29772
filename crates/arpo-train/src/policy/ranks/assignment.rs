//! Which rank samples which episode. Pure.
//!
//! An episode stays with its rank, which has its prefix and the features of its screenshots in the cache. New ones go where
//! the fewest are, but those of one task together as far as shares stay equal: the episodes of a group begin with the same
//! screenshot.

use arpo_core::task::TaskId;
use arpo_core::trajectory::EpisodeId;
use std::collections::HashMap;

/// The ranks of the live episodes: those that have begun and may request further responses. Ranks are numbered from 0 among
/// those that sample.
#[derive(Debug)]
pub(super) struct Assignment {
    ranks: usize,
    episodes: HashMap<EpisodeId, Assigned>,
}

#[derive(Debug)]
struct Assigned {
    rank: usize,
    task: TaskId,
}

impl Assignment {
    pub(super) fn new(ranks: usize) -> Self {
        Self { ranks, episodes: HashMap::new() }
    }

    /// The ranks of episodes that make requests at the same time, in their order. The same requests in the same order always
    /// get the same ranks.
    pub(super) fn of<'e>(
        &mut self,
        episodes: impl Iterator<Item = (&'e EpisodeId, &'e TaskId)> + Clone,
    ) -> Vec<usize> {
        let new = episodes.clone().filter(|(id, _)| !self.episodes.contains_key(*id)).count();
        let share = (self.episodes.len() + new).div_ceil(self.ranks);
        episodes.map(|(id, task)| self.assign(id, task, share)).collect()
    }

    /// The rank of an episode. A new one gets a rank that has fewer than a share of them.
    fn assign(&mut self, id: &EpisodeId, task: &TaskId, share: usize) -> usize {
        if let Some(assigned) = self.episodes.get(id) {
            return assigned.rank;
        }
        let (mut live, mut of_task) = (vec![0; self.ranks], vec![0; self.ranks]);
        for assigned in self.episodes.values() {
            live[assigned.rank] += 1;
            of_task[assigned.rank] += usize::from(assigned.task == *task);
        }
        let fewest = |ranks: &mut dyn Iterator<Item = usize>| ranks.min_by_key(|&rank| live[rank]);
        let known = fewest(&mut (0..self.ranks).filter(|&rank| of_task[rank] > 0 && live[rank] < share));
        let rank = known.or_else(|| fewest(&mut (0..self.ranks))).unwrap_or(0);
        self.episodes.insert(id.clone(), Assigned { rank, task: task.clone() });
        rank
    }

    /// An episode has ended.
    pub(super) fn remove(&mut self, id: &EpisodeId) {
        self.episodes.remove(id);
    }

    /// Forgets all episodes.
    pub(super) fn clear(&mut self) {
        self.episodes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Episodes of groups: the number of each group's episodes, task by task.
    fn groups(sizes: &[usize]) -> Vec<(EpisodeId, TaskId)> {
        let group = |(number, &size): (usize, &usize)| {
            let task = TaskId::new(format!("task-{number}"));
            (0..size).map(move |index| (EpisodeId::new(0, &task, index), task.clone())).collect::<Vec<_>>()
        };
        sizes.iter().enumerate().flat_map(group).collect()
    }

    fn of(assignment: &mut Assignment, episodes: &[(EpisodeId, TaskId)]) -> Vec<usize> {
        assignment.of(episodes.iter().map(|(id, task)| (id, task)))
    }

    fn counts(ranks: &[usize], of: usize) -> Vec<usize> {
        (0..of).map(|rank| ranks.iter().filter(|&&other| other == rank).count()).collect()
    }

    #[test]
    fn groups_stay_together_where_shares_are_equal() {
        let ranks = of(&mut Assignment::new(4), &groups(&[8; 4]));
        assert_eq!(ranks, [[0; 8], [1; 8], [2; 8], [3; 8]].concat());
        let ranks = of(&mut Assignment::new(2), &groups(&[8; 4]));
        assert_eq!(counts(&ranks, 2), [16, 16]);
        for group in ranks.chunks(8) {
            assert!(group.iter().all(|rank| *rank == group[0]), "{ranks:?}");
        }
    }

    #[test]
    fn shares_are_balanced_before_groups_stay_together() {
        assert_eq!(of(&mut Assignment::new(4), &groups(&[4])), [0, 1, 2, 3]);
        for sizes in [&[8][..], &[5, 9], &[1; 7], &[16, 1, 1]] {
            for ranks in 1..=5 {
                let found = counts(&of(&mut Assignment::new(ranks), &groups(sizes)), ranks);
                let all: usize = sizes.iter().sum();
                assert!(found.iter().all(|&count| count <= all.div_ceil(ranks)), "{sizes:?}: {found:?}");
                assert_eq!(found.iter().sum::<usize>(), all);
            }
        }
    }

    #[test]
    fn an_episode_stays_with_its_rank_and_new_ones_go_where_places_are_free() {
        let (mut assignment, episodes) = (Assignment::new(3), groups(&[3, 3, 3]));
        let first = of(&mut assignment, &episodes);
        // in any order, and in smaller batches
        let again: Vec<usize> =
            episodes.iter().rev().flat_map(|one| of(&mut assignment, std::slice::from_ref(one))).collect();
        assert_eq!(again, first.iter().rev().copied().collect::<Vec<_>>());
        assignment.remove(&episodes[4].0);
        let new = (EpisodeId::new(1, &episodes[0].1, 0), episodes[0].1.clone());
        assert_eq!(of(&mut assignment, &[new]), [first[4]], "its task's rank has its share already");
        assignment.clear();
        assert_eq!(of(&mut assignment, &episodes[8..]), [0]);
    }
}
