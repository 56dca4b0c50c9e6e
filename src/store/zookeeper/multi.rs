//! Several locks as one. All queues are entered in one transaction, so two calls have the same
//! order in each queue that they share, and they cannot wait for each other in a circle.

use std::sync::Arc;

use super::ZooKeeperStore;
use super::client::Exchange;
use super::nodes::Node;
use super::queue::{Asked, Standing, TRIES, busy_directory, certain, is_refused, unsettled};
use super::wire::{Change, Code, Created, Request};
use crate::base::error::Result;
use crate::base::lease::SessionTerm;
use crate::store::{
    AcquireAll, AcquiredAll, HoldCounts, MultiStore, Part, Release, Released, TokenRule,
    UnknownOutcomes,
};

impl MultiStore for ZooKeeperStore {
    fn acquire_all(
        &self,
        acquire: &AcquireAll<'_>,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<AcquiredAll> {
        let outcome = self.repeated(unknowns, |unknowns| self.try_lock_all(acquire, unknowns));
        if is_refused(&outcome) || outcome.is_err() && !acquire.waits {
            self.leave_all_later(acquire);
        }
        self.note(outcome, unknowns)
    }

    fn release_all(
        &self,
        releases: &[Release<'_>],
        unknowns: &mut UnknownOutcomes,
    ) -> Result<Vec<Result<Released>>> {
        let together = self.repeated(unknowns, |unknowns| {
            if unknowns.is_empty() { self.release_together(releases) } else { Ok(None) }
        });
        match together {
            Ok(Some(outcomes)) => return self.note(Ok(outcomes), unknowns),
            Ok(None) => {}
            Err(failure) => return self.note(Err(failure), unknowns),
        }
        // One of them is gone, or this is a repeat: each is released separately.
        let before = unknowns.clone();
        let mut outcomes = Vec::with_capacity(releases.len());
        for release in releases {
            let mut own = before.clone();
            outcomes.push(self.release_lock(release, &mut own));
            if !own.is_empty() {
                *unknowns = own;
            }
        }
        if outcomes.iter().all(Result::is_ok) {
            unknowns.clear();
        }
        Ok(outcomes)
    }
}

impl ZooKeeperStore {
    /// Deletes all nodes in one transaction. `None`: one of them is gone, or there are fewer than
    /// two.
    fn release_together(&self, releases: &[Release<'_>]) -> Asked<Option<Vec<Result<Released>>>> {
        // The server does not know inner levels.
        let leaves = |release: &&Release<'_>| release.left == HoldCounts::NONE;
        let nodes: Vec<Option<Node>> = releases
            .iter()
            .map(|one| self.node_of(one.name, one.holder).filter(|_| leaves(&one)))
            .collect();
        let paths: Vec<String> = nodes.iter().flatten().map(|node| node.path.clone()).collect();
        let deletes: Vec<Request> = paths.iter().map(|path| Request::delete(path)).collect();
        if deletes.len() < 2 {
            return Ok(None);
        }
        // Before the requests are sent: the message about a node comes before the answer.
        self.client.unguard(&paths);
        let exchange = self.ask(&[Request::multi(&deletes)])?;
        let reply = &exchange.replies[0];
        let is_done = |change: &Change| *change == Change::Done;
        if !reply.code.is_ok() || !reply.changes(&deletes).map_err(certain)?.iter().all(is_done) {
            return Ok(None);
        }
        let outcome = |(one, node): (&Release<'_>, Option<Node>)| {
            if node.is_none() {
                return self.release_lock(one, &mut UnknownOutcomes::default());
            }
            self.forget_deleted(one.name, one.holder);
            Ok(Released::Freed { listeners: None, next: None })
        };
        Ok(Some(releases.iter().zip(nodes).map(outcome).collect()))
    }

    fn leave_all_later(&self, acquire: &AcquireAll<'_>) {
        acquire
            .parts
            .iter()
            .filter(|part| part.held == 0)
            .for_each(|part| self.leave_later(part.name, part.holder));
    }

    fn try_lock_all(
        &self,
        acquire: &AcquireAll<'_>,
        unknowns: &UnknownOutcomes,
    ) -> Asked<AcquiredAll> {
        let sent_at = self.client.now();
        let is_held =
            |part: &Part<'_>| self.node_of(part.name, part.holder).is_some_and(|node| node.granted);
        if let Some(at) = acquire.parts.iter().position(|part| part.held > 0 && !is_held(part)) {
            return Ok(AcquiredAll::Gone { at });
        }
        if !acquire.waits && unknowns.is_empty() {
            for (at, part) in acquire.parts.iter().enumerate().filter(|(_, part)| part.held == 0) {
                if self.is_still_busy(part.name)? {
                    return Ok(AcquiredAll::Busy { at, ttl: Some(self.lease()) });
                }
            }
        }
        let fresh: Vec<usize> =
            (0..acquire.parts.len()).filter(|&at| acquire.parts[at].held == 0).collect();
        for _ in 0..TRIES {
            self.enter_all(acquire, &fresh, unknowns)?;
            match self.first_blocked(acquire, &fresh)? {
                // Deleted by hand or by force. If only this part were entered again, it would be
                // behind another call that is behind this one elsewhere, and each would wait for
                // the other.
                Some((_, Standing::Gone)) => self.leave_all_later(acquire),
                Some((at, _)) if !acquire.waits => {
                    self.busy_names.note(acquire.parts[at].name, sent_at);
                    self.leave_all_later(acquire);
                    return Ok(AcquiredAll::Busy { at, ttl: Some(self.lease()) });
                }
                Some((at, Standing::Behind(before))) => {
                    let part = &acquire.parts[at];
                    if self.watch(part.name, part.holder, &before)? {
                        return Ok(AcquiredAll::Busy { at, ttl: Some(self.lease()) });
                    }
                }
                _ => {
                    if self.learn_all(acquire, &fresh)? {
                        return Ok(self.all_granted(acquire, sent_at));
                    }
                    self.leave_all_later(acquire);
                }
            }
        }
        Err(certain(busy_directory("one of the directories")))
    }

    /// Learns which changes made the nodes. False: one of them is gone.
    fn learn_all(&self, acquire: &AcquireAll<'_>, fresh: &[usize]) -> Asked<bool> {
        for Part { name, holder, .. } in fresh.iter().map(|&at| &acquire.parts[at]) {
            let node = self
                .node_of(name, holder)
                .map(|node| self.learn_czxid(name, holder, node))
                .transpose()?;
            if node.is_none_or(|node| node.czxid == 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Enters the queues of all fresh parts that have no place, in one transaction.
    fn enter_all(
        &self,
        acquire: &AcquireAll<'_>,
        fresh: &[usize],
        unknowns: &UnknownOutcomes,
    ) -> Asked<()> {
        let part = |at: usize| &acquire.parts[at];
        if let Some(unsettled) = unsettled(unknowns) {
            for &at in fresh {
                if self.node_of(part(at).name, part(at).holder).is_none() {
                    self.find(part(at).name, part(at).holder, unsettled)?;
                }
            }
        }
        let mut missing = Vec::new();
        for _ in 0..TRIES {
            let is_placeless =
                |at: &usize| self.node_of(part(*at).name, part(*at).holder).is_none();
            let mut placeless: Vec<usize> = fresh.iter().copied().filter(is_placeless).collect();
            if placeless.is_empty() {
                return Ok(());
            }
            if placeless.len() < fresh.len() {
                // Some of the places that were found again are gone. All are entered together,
                // because otherwise the order of the queues would not be the same everywhere.
                self.leave_all_later(acquire);
                placeless = fresh.to_vec();
            }
            let directory = |at: usize| &*self.paths(part(at).name).base;
            // The directories that are missing come first, in the same transaction.
            let mut requests: Vec<Request> = std::mem::take(&mut missing);
            let directories = requests.len();
            requests.extend(
                placeless.iter().map(|&at| self.enter_request(part(at).name, part(at).holder)),
            );
            let exchange = self.ask(&[Request::multi(&requests)])?;
            let reply = &exchange.replies[0];
            if !reply.code.is_ok() {
                return Err(certain(reply.code.to_error(&part(placeless[0]).name.name)));
            }
            let outcomes = reply.changes(&requests).map_err(certain)?;
            let failed = outcomes.iter().enumerate().find_map(|(place, outcome)| match outcome {
                Change::Failed(code) if !code.is_ok() => Some((place, *code)),
                _ => None,
            });
            match failed {
                None => {
                    return self.all_entered(
                        acquire,
                        &exchange,
                        placeless.iter(),
                        &outcomes[directories..],
                    );
                }
                // Another client has made it in the meantime.
                Some((place, Code::NODE_EXISTS)) if place < directories => {}
                Some((_, Code::NO_NODE)) => {
                    missing = self.missing(placeless.iter().map(|&at| directory(at)))?;
                }
                Some((place, code)) => {
                    let at = placeless[place.saturating_sub(directories)];
                    return Err(certain(code.to_error(directory(at))));
                }
            }
        }
        Err(certain(busy_directory("one of the directories")))
    }

    fn all_entered<'p>(
        &self,
        acquire: &AcquireAll<'_>,
        exchange: &Exchange,
        places: impl Iterator<Item = &'p usize>,
        outcomes: &[Change],
    ) -> Asked<()> {
        let mut all = Ok(());
        for (&at, outcome) in places.zip(outcomes) {
            if let Change::Created(created) = outcome {
                let part = &acquire.parts[at];
                // All are noted, even those after a refused one: the others have to be left.
                all = self
                    .entered(part.name, part.holder, exchange, Created::clone(created))
                    .map(drop)
                    .and(all);
            }
        }
        all
    }

    /// The first part, in order, whose turn has not come yet.
    fn first_blocked(
        &self,
        acquire: &AcquireAll<'_>,
        fresh: &[usize],
    ) -> Asked<Option<(usize, Standing)>> {
        let part = |at: usize| &acquire.parts[at];
        if fresh.is_empty() {
            return Ok(None);
        }
        let mut requests = Vec::with_capacity(fresh.len() + 1);
        requests.extend(self.grants_need_a_majority().then(|| self.client.quorum_check()));
        let before = requests.len();
        requests.extend(
            fresh.iter().map(|&at| Request::children(&self.paths(part(at).name).base, false)),
        );
        let exchange = self.ask(&requests)?;
        let (check, lists) = exchange.replies.split_at(before);
        check.iter().try_for_each(|reply| self.agreed_in(reply))?;
        let mut blocked = None;
        for (&at, reply) in fresh.iter().zip(lists) {
            let Part { name, holder, .. } = *part(at);
            let node = self.node_of(name, holder);
            let list = if reply.code == Code::NO_NODE { Ok(Vec::new()) } else { reply.children() };
            let list = match (reply.code, list) {
                (Code::OK | Code::NO_NODE, list) => list.map_err(certain)?,
                (code, _) => return Err(certain(code.to_error(&name.name))),
            };
            match node.map(|node| self.standing(name.kind, list, &node)) {
                Some(Standing::First) => {}
                Some(Standing::Gone) | None => return Ok(Some((at, Standing::Gone))),
                Some(behind) => blocked = blocked.or(Some((at, behind))),
            }
        }
        Ok(blocked)
    }

    fn all_granted(
        &self,
        acquire: &AcquireAll<'_>,
        sent_at: crate::base::lease::Moment,
    ) -> AcquiredAll {
        let mut tokens = Vec::with_capacity(acquire.parts.len());
        let mut session: Option<Arc<SessionTerm>> = None;
        for part in &acquire.parts {
            let node = self.nodes.get(part.name, part.holder);
            let draws = part.held == 0 && acquire.token != TokenRule::Off;
            tokens
                .push(node.as_ref().filter(|_| draws).map_or(0, |node| self.token_of(node.czxid)));
            session = session.or(node.map(|node| node.session.term));
            self.has_its_turn(part.name, part.holder);
        }
        AcquiredAll::Granted { tokens, sent_at, session }
    }
}
