//! Undos of the watchdog at several primaries, side by side: one that is dead or slow must keep
//! neither the others from being settled nor the watchdog from its renewals.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::nodes::Cluster;
use crate::base::error::Error;
use crate::store::Undo;
use crate::store::redis::background::Resolution;
use crate::store::redis::keys::RedisKeys;
use crate::store::redis::script;
use crate::store::redis::unknowns::unknowns_of;
use crate::store::redis::wire::{Redirect, ask_all};

impl Cluster {
    /// How far each of the undos has come, in order.
    pub(crate) fn resolve_all(self: &Arc<Self>, undos: &[Undo]) -> Vec<Resolution> {
        // By the primary, as far as it is known: what is wrong with one shows with its first undo.
        let mut groups: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (place, undo) in undos.iter().enumerate() {
            groups.entry(self.address_of_slot(RedisKeys::of(&undo.name).slot)).or_default().push(place);
        }
        let groups: Vec<Vec<usize>> = groups.into_values().collect();
        let targets = groups.iter().map(|places| places.iter().map(|&place| undos[place].clone()).collect()).collect();
        let cluster = self.clone();
        let resolve = move |group: Vec<Undo>| Ok(cluster.resolve_group(&group));
        // One that has not answered by then may have run all the same.
        let mut resolved: Vec<Resolution> = undos.iter().map(|_| Resolution::MayHaveRun).collect();
        let timeout = 2 * self.background.io_timeout;
        for (group, outcomes) in ask_all("lh-renew-node", targets, resolve, timeout, |_| false) {
            let outcomes = outcomes.into_iter().flatten();
            groups[group].iter().zip(outcomes).for_each(|(&place, outcome)| resolved[place] = outcome);
        }
        resolved
    }

    /// One after the other, because each may be redirected. After one that cannot be settled, and
    /// after an I/O timeout, the others wait for the next round.
    fn resolve_group(&self, group: &[Undo]) -> Vec<Resolution> {
        let until = Instant::now() + self.background.io_timeout;
        let mut goes_on = true;
        let resolve = |undo: &Undo| {
            if !goes_on {
                return Resolution::NotTried;
            }
            let resolution = self.resolve_one(undo);
            goes_on = !matches!(resolution, Resolution::NotYet | Resolution::MayHaveRun) && Instant::now() < until;
            resolution
        };
        group.iter().map(resolve).collect()
    }

    fn resolve_one(&self, undo: &Undo) -> Resolution {
        let (mut unknowns, before) = (undo.unknowns.clone(), unknowns_of(&undo.unknowns).len());
        let request = || script::release(&undo.release());
        let asked = self.follow(RedisKeys::of(&undo.name).slot, |route| {
            route.server().ask_in_background(request().asking(route.is_asking()), &mut unknowns)
        });
        let not_yet = |sent: bool, e: &Error| {
            log::debug!("an unknown outcome cannot be resolved yet: {}", e.chain());
            if sent { Resolution::MayHaveRun } else { Resolution::NotYet }
        };
        match asked {
            Ok(answered) => match answered.reply.redirect() {
                Some(redirect) => not_yet(redirect == Redirect::Partly, &super::still_redirected(answered.reply)),
                None if script::release_answer(answered.reply).is_ok() => Resolution::Done,
                None => Resolution::NothingUnderWay,
            },
            Err(e) => not_yet(unknowns_of(&unknowns).len() > before, &e),
        }
    }
}
