//! Several plain locks as one: one script if their keys are in one slot; in a cluster, one script
//! per slot.
//!
//! Over several slots it is still all or none: a call that finds one lock taken gives back what it
//! has taken before it returns, and holds nothing while it waits, so that no two calls can wait for
//! each other. The difference from one slot: for a short time some of the locks are taken, and
//! another caller can find them taken. While one of the nodes cannot be asked, nothing is taken at
//! the others: see [`Cluster::away`](super::cluster::Cluster::away).

use std::cell::Cell;

use super::keys::RedisKeys;
use super::keys::Slot;
use super::wire::{Answer, UnknownOutcome};
use super::{RedisStore, script};
use crate::base::error::{Error, Result};
use crate::base::lock_name::LockName;
use crate::store::{
    AcquireAll, AcquiredAll, HoldCounts, MultiStore, Part, Release, Released, Spent,
    UnknownOutcomes,
};

impl MultiStore for RedisStore {
    fn acquire_all(
        &self,
        acquire: &AcquireAll<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<AcquiredAll> {
        let groups = self.in_groups(acquire.parts.iter().map(|part| RedisKeys::of(part.name).slot));
        if groups.len() > 1 {
            return self
                .acquire_groups(acquire, groups, unknowns)
                .map_err(|e| if e.kind().is_outage() { e.of_a_part() } else { e });
        }
        let acquired = self.acquire_in_one_slot(acquire, unknowns)?;
        // Not after an error: earlier attempts may still have taken the locks.
        unknowns.clear();
        Ok(acquired)
    }

    fn release_all(
        &self,
        releases: &[Release<'_>],
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Vec<Result<Released>>> {
        let groups =
            self.in_groups(releases.iter().map(|release| RedisKeys::of(release.name).slot));
        if groups.len() > 1 {
            return Ok(self.release_groups(releases, groups, unknowns));
        }
        let released = self.release_in_one_slot(releases, unknowns)?;
        unknowns.clear();
        Ok(released)
    }
}

impl RedisStore {
    /// The indexes of the parts that one script can serve together, grouped and ordered by their
    /// first part.
    fn in_groups(&self, slots: impl Iterator<Item = Slot>) -> Vec<Vec<usize>> {
        let is_cluster = self.servers.as_cluster().is_some();
        let mut groups: Vec<(Slot, Vec<usize>)> = Vec::new();
        for (place, slot) in slots.enumerate() {
            match groups.iter_mut().find(|(known, _)| !is_cluster || *known == slot) {
                Some((_, places)) => places.push(place),
                None => groups.push((slot, vec![place])),
            }
        }
        groups.into_iter().map(|(_, places)| places).collect()
    }

    fn acquire_in_one_slot(
        &self,
        acquire: &AcquireAll<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<AcquiredAll> {
        let asked = Cell::new(!unknowns.is_empty());
        let request =
            || script::acquire_all(acquire, asked.replace(true)).acknowledged_by(self.replicas);
        let Answer { reply, sent_at, .. } =
            self.servers.ask(RedisKeys::of(acquire.parts[0].name).slot, request, unknowns)?;
        script::acquire_all_answer(reply, acquire, sent_at).inspect_err(|_| self.spend(unknowns))
    }

    fn release_in_one_slot(
        &self,
        releases: &[Release<'_>],
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Vec<Result<Released>>> {
        let asked = self.servers.ask(
            RedisKeys::of(releases[0].name).slot,
            || script::release_all(releases, || self.clock.now()),
            unknowns,
        );
        let Answer { reply, repeated, .. } = asked?;
        let answers = script::release_all_answer(reply, releases.len())?;
        let outcome = |(answer, one): (Result<Released>, &Release<'_>)| {
            let may_be_freed = repeated && one.left == HoldCounts::NONE;
            if may_be_freed { answer.map(super::or_freed_before) } else { answer }
        };
        Ok(answers.into_iter().zip(releases).map(outcome).collect())
    }

    /// Why the slot cannot be asked, as far as is known.
    fn away(&self, name: &LockName) -> Option<Error> {
        self.servers.as_cluster().and_then(|cluster| cluster.away(RedisKeys::of(name).slot))
    }

    /// Sends a request for one group, of which this name is one.
    fn ask_group<T>(&self, name: &LockName, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.servers.as_cluster() {
            Some(cluster) => cluster.ask_part(RedisKeys::of(name).slot, ask),
            None => ask(),
        }
    }

    /// One group after the other, in the order of the names; but first those at nodes that could
    /// not be asked the last time. Whatever were taken before one of them would be taken from
    /// everybody until its request has failed. `unknowns` is cleared only when the outcome of every
    /// group is known.
    fn acquire_groups(
        &self,
        acquire: &AcquireAll<'_>,
        mut groups: Vec<Vec<usize>>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<AcquiredAll> {
        let name_of = |places: &[usize]| acquire.parts[places[0]].name;
        if acquire.leads
            && let Some(error) = groups.iter().find_map(|places| self.away(name_of(places)))
        {
            return Err(error);
        }
        groups.sort_by_cached_key(|places| self.away(name_of(places)).is_none());
        let mut tokens = vec![0; acquire.parts.len()];
        let mut began = None;
        let is_repeat = !unknowns.is_empty();
        for (done, places) in groups.iter().enumerate() {
            let parts = places.iter().map(|&place| acquire.parts[place].clone()).collect();
            let group = AcquireAll { parts, ..acquire.clone() };
            let asked =
                self.ask_group(name_of(places), || self.acquire_in_one_slot(&group, unknowns));
            let acquired = match asked {
                Ok(AcquiredAll::Granted { tokens: granted, sent_at, .. }) => {
                    for (&place, token) in places.iter().zip(granted) {
                        tokens[place] = token;
                    }
                    began.get_or_insert(sent_at);
                    continue;
                }
                Ok(AcquiredAll::Busy { at, ttl }) => Ok(AcquiredAll::Busy { at: places[at], ttl }),
                Ok(AcquiredAll::Gone { at }) => Ok(AcquiredAll::Gone { at: places[at] }),
                Err(e) => Err(e),
            };
            self.give_back(acquire, &groups[..done], unknowns)?;
            if acquired.is_ok() {
                if is_repeat {
                    // An earlier attempt whose reply was lost may have taken the later groups. (The
                    // group that refused takes that back in its script.)
                    self.give_back(acquire, &groups[done + 1..], unknowns)?;
                }
                unknowns.clear();
            }
            return acquired;
        }
        unknowns.clear();
        // All leases count from the first request.
        Ok(AcquiredAll::Granted {
            tokens,
            sent_at: began.expect("there is a group"),
            session: None,
        })
    }

    /// Releases what some groups have taken, after another one was refused.
    ///
    /// # Errors
    /// Something may still be taken; it is then among the unknown outcomes.
    fn give_back(
        &self,
        acquire: &AcquireAll<'_>,
        taken: &[Vec<usize>],
        unknowns: &mut UnknownOutcomes,
    ) -> Result<()> {
        for places in taken {
            let parts = places.iter().map(|&place| &acquire.parts[place]);
            let releases: Vec<_> = fresh_releases(parts).collect();
            if releases.is_empty() {
                continue;
            }
            unknowns.spend(Spent::Released);
            let released =
                self.ask_group(releases[0].name, || self.release_in_one_slot(&releases, unknowns));
            let refused = released.map(|answers| answers.into_iter().find_map(Result::err));
            if let Err(e) | Ok(Some(e)) = refused {
                unknowns.push(UnknownOutcome::partly(self.clock.now()));
                return Err(e);
            }
        }
        Ok(())
    }

    /// Last those at nodes that could not be asked the last time: the others become free at once.
    fn release_groups(
        &self,
        releases: &[Release<'_>],
        mut groups: Vec<Vec<usize>>,
        unknowns: &mut UnknownOutcomes,
    ) -> Vec<Result<Released>> {
        groups.sort_by_cached_key(|places| self.away(releases[places[0]].name).is_some());
        let mut outcomes: Vec<Option<Result<Released>>> = releases.iter().map(|_| None).collect();
        let earlier = unknowns.clone();
        let mut all_known = true;
        for places in &groups {
            let group: Vec<Release<'_>> =
                places.iter().map(|&place| releases[place].clone()).collect();
            let mut own = earlier.clone();
            let released =
                self.ask_group(group[0].name, || self.release_in_one_slot(&group, &mut own));
            if let Err(e) = &released {
                all_known = false;
                let added = own
                    .list::<UnknownOutcome>()
                    .iter()
                    .skip(earlier.list::<UnknownOutcome>().len());
                for unknown in added {
                    unknowns.push(unknown.clone());
                }
                for &place in places {
                    outcomes[place] = Some(Err(e.clone()));
                }
            }
            let answers = released.into_iter().flatten();
            for (&place, answer) in places.iter().zip(answers) {
                outcomes[place] = Some(answer);
            }
        }
        if all_known {
            unknowns.clear();
        }
        outcomes.into_iter().map(|outcome| outcome.expect("each release is in one group")).collect()
    }
}

fn fresh_releases<'a>(
    parts: impl Iterator<Item = &'a Part<'a>>,
) -> impl Iterator<Item = Release<'a>> {
    parts.filter(|part| part.held == 0).map(|part| Release::of_attempt(part.name, part.holder, 1))
}
