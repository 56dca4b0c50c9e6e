//! Several locks as one. All queues are entered in one transaction, so two calls have the same
//! order in each queue that they share, and they cannot wait for each other in a circle.

use super::ZooKeeperStore;
use super::nodes::Node;
use super::queue::{Place, Turns, ZooKeeperResult, is_kept, transacted};
use super::wire::{Request, Transacted};
use crate::base::error::Result;
use crate::base::lease::Moment;
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
        let sent_at = self.client.now();
        let is_held =
            |part: &Part<'_>| self.node_of(part.name, part.holder).is_some_and(|node| node.granted);
        if let Some(at) = acquire.parts.iter().position(|part| part.held > 0 && !is_held(part)) {
            return Ok(AcquiredAll::Gone { at });
        }
        let is_fresh = |at: &usize| acquire.parts[*at].held == 0;
        let fresh: Vec<usize> = (0..acquire.parts.len()).filter(is_fresh).collect();
        let place = |&at: &usize| (acquire.parts[at].name, acquire.parts[at].holder);
        let places: Vec<Place<'_>> = fresh.iter().map(place).collect();
        let outcome =
            self.repeated(unknowns, |unknowns| self.take_turns(&places, acquire.waits, unknowns));
        if !is_kept(&outcome, acquire.waits) {
            self.leave_all_later(&places);
        }
        Ok(match self.note(outcome, unknowns)? {
            Turns::Come(nodes) => self.grant_all(acquire, nodes, sent_at),
            Turns::Behind { at } => AcquiredAll::Busy { at: fresh[at], ttl: Some(self.lease()) },
        })
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
    fn release_together(
        &self,
        releases: &[Release<'_>],
    ) -> ZooKeeperResult<Option<Vec<Result<Released>>>> {
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
        let exchange = self.change(&[Request::multi(&deletes)])?;
        let outcome = transacted(&exchange.replies[0], &deletes, &paths[0]);
        if !matches!(outcome, Ok(Transacted::Made(_))) {
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

    /// `nodes`: those of the parts that were not held before.
    fn grant_all(
        &self,
        acquire: &AcquireAll<'_>,
        nodes: Vec<Node>,
        sent_at: Moment,
    ) -> AcquiredAll {
        let mut nodes = nodes.into_iter();
        let mut tokens = Vec::with_capacity(acquire.parts.len());
        let mut session = None;
        for Part { name, holder, held } in &acquire.parts {
            let node = if *held > 0 { self.nodes.get(name, holder) } else { nodes.next() };
            let draws = *held == 0 && acquire.token != TokenRule::Off;
            let drawn = node.as_ref().filter(|_| draws);
            tokens.push(drawn.map_or(0, |node| self.token_of(node.czxid)));
            session = session.or(node.map(|node| node.session.term));
            self.begin_hold(name, holder);
        }
        AcquiredAll::Granted { tokens, sent_at, session }
    }
}
