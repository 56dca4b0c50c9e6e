//! What several threads want at the same time, as one request.
//!
//! A server reads about one frame of a connection in a round over all connections, and each change
//! costs it a log entry of its own. So a connection that many threads use is the limit long before
//! the server is. Once [`MOST_UNDER_WAY`] changes have no answer yet, further ones queue; when an
//! answer comes, those that have queued go as one transaction, and behind it what each of them
//! wants to read, also as one request if the server is known to have that (3.7 or later).
//!
//! | in between | what happens |
//! |---|---|
//! | the server refuses one of the changes | none has run. Each is sent again alone, and what was read behind them is not used. For a moment nothing else is joined |
//! | the server refuses to read for several | each is read again alone, and from then on always |
//! | no answer comes for [`LONGEST_QUEUED`] | a caller that queues sends all that queue |
//! | the connection ends, or an answer is overdue | the outcome of all is unknown, also of those that queue: nothing of them is sent on the next connection. If it ended in a joint look, none is sent again: the server may not know it, or its answer was too long |
//! | the session has ended | no change of the transaction has run, and each call learns of it |
//! | the client is closed | what queues is not sent |
//! | two of them make a node in the same directory | the second one stays in the queue: nodes of one transaction have the same number, and two holders of a name would have the same token |
//!
//! Each call counts its lease from the instant at which it queued, which is earlier than that of
//! the write.

use std::collections::{HashSet, VecDeque};
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use super::state::{Link, Pending, Slot, Then};
use crate::base::error::{Error, Result};
use crate::base::lease::Moment;
use crate::store::zookeeper::wire::{Reply, Request, Shape};

/// How many changes may be under way before further ones queue. Fewer threads never queue.
const MOST_UNDER_WAY: usize = 8;

/// How long a change queues at most.
pub(super) const LONGEST_QUEUED: Duration = Duration::from_millis(100);

/// How many bytes the changes of one transaction have at most: a quarter of what servers take.
const LONGEST: usize = 256 * 1024;

/// How long nothing is joined after a refusal: calls that are refused again and again (there is no
/// directory yet, for example) would cost all others a second request.
const APART: Duration = Duration::from_millis(50);

/// What a call asks: a change, and what it wants to read behind it.
#[derive(Debug)]
pub(super) struct Change {
    requests: Vec<Request>,
    slot: Arc<Slot>,
}

impl Change {
    /// Nothing was sent.
    pub(super) fn answer_all(self, reply: &Reply) {
        for place in 0..self.requests.len() {
            self.slot.answer(place, reply.clone());
        }
    }

    pub(super) fn fail(&self, why: &Error) {
        self.slot.fail(why);
    }
}

/// Changes that are one transaction.
#[derive(Debug)]
pub(super) struct Together {
    changes: Vec<Change>,
    /// How many requests behind it read for them.
    looks: usize,
}

impl Together {
    pub(super) fn refuse(self, reply: &Reply) {
        for change in self.changes {
            change.slot.answer(0, reply.clone());
        }
    }

    pub(super) fn fail(&self, why: &Error) {
        for change in &self.changes {
            change.fail(why);
        }
    }
}

/// What a call wants to read behind its change.
#[derive(Debug)]
pub(super) struct Look {
    request: Request,
    pub(super) slot: Arc<Slot>,
    pub(super) place: usize,
}

/// A reply for a call.
pub(super) struct Answer {
    slot: Arc<Slot>,
    place: usize,
    reply: Reply,
}

impl Answer {
    pub(super) fn give(self) {
        self.slot.answer(self.place, self.reply);
    }
}

/// How a server reads for several calls.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Looking {
    /// It may not know the request for it, and would end the connection.
    #[default]
    Unknown,
    Together,
    /// One request for each.
    Apart,
}

/// The changes of a connection.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// In order of arrival. While there are any, others are under way, whose answers let them go.
    pub(super) queue: VecDeque<Change>,
    /// How many have no answer yet.
    under_way: usize,
    apart_until: Option<Moment>,
    looking: Looking,
}

impl Changes {
    /// `apart`: an earlier connection has ended in a joint look.
    pub(super) fn look_apart(&mut self, apart: bool) {
        if apart {
            self.looking = Looking::Apart;
        }
    }

    fn is_apart(&self, now: Moment) -> bool {
        self.apart_until.is_some_and(|until| now < until)
    }

    fn may_be_sent(&self, now: Moment) -> bool {
        self.under_way < MOST_UNDER_WAY || self.is_apart(now)
    }

    /// Takes those that can be one transaction from the queue, in order.
    fn take_together(&mut self, now: Moment) -> Vec<Change> {
        let most = if self.is_apart(now) { 1 } else { usize::MAX };
        let mut together = Vec::new();
        let mut directories = HashSet::new();
        let mut length = 0;
        let mut at = 0;
        while let Some(Change { requests, .. }) = self.queue.get(at)
            && together.len() < most
        {
            let change = &requests[0];
            length += change.length();
            if length > LONGEST && !together.is_empty() {
                break;
            }
            if change.makes_in().iter().any(|directory| directories.contains(directory)) {
                at += 1;
                continue;
            }
            directories.extend(change.makes_in().iter().cloned());
            together.extend(self.queue.remove(at));
        }
        together
    }
}

impl Link {
    /// Sends a change and what is read behind it, or queues it.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(super) fn change(
        &mut self,
        requests: &[Request],
        slot: &Arc<Slot>,
        now: Moment,
    ) -> Result<()> {
        if self.changes.may_be_sent(now) {
            return self.send_alone(requests, slot, now);
        }
        self.changes.queue.push_back(Change { requests: requests.to_vec(), slot: slot.clone() });
        Ok(())
    }

    /// Sends the changes that queue, if few enough are under way.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(super) fn send_queued(&mut self, now: Moment) -> Result<()> {
        while !self.changes.queue.is_empty() && self.changes.may_be_sent(now) {
            self.send_next(now)?;
        }
        Ok(())
    }

    /// Sends all changes that queue.
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    pub(super) fn send_all_queued(&mut self, now: Moment) -> Result<()> {
        while !self.changes.queue.is_empty() {
            self.send_next(now)?;
        }
        Ok(())
    }

    fn send_next(&mut self, now: Moment) -> Result<()> {
        let together = self.changes.take_together(now);
        match &together[..] {
            [Change { requests, slot }] => self.send_alone(requests, slot, now),
            _ => self.send_together(together, now),
        }
    }

    fn send_alone(&mut self, requests: &[Request], slot: &Arc<Slot>, now: Moment) -> Result<()> {
        self.changes.under_way += 1;
        let looks = (1..requests.len()).map(|place| Then::Answer(slot.clone(), place));
        let thens = iter::once(Then::Changed(slot.clone())).chain(looks);
        self.send(requests.iter().zip(thens), now)
    }

    fn send_together(&mut self, changes: Vec<Change>, now: Moment) -> Result<()> {
        self.changes.under_way += 1;
        let mut looks = Vec::new();
        for Change { requests, slot } in &changes {
            for (place, request) in requests.iter().enumerate().skip(1) {
                looks.push(Look { request: request.clone(), slot: slot.clone(), place });
            }
        }
        let all = Request::multi(changes.iter().map(|change| &change.requests[0]));
        let joins_looks = self.changes.looking == Looking::Together && looks.len() > 1;
        let requests = if joins_looks { 1 } else { looks.len() };
        let together = Together { changes, looks: requests };
        self.send_one(&all, Then::ChangedTogether(together), now)?;
        if joins_looks {
            let all = Request::multi_read(looks.iter().map(|look| &look.request));
            return self.send_one(&all, Then::LookedTogether(looks), now);
        }
        self.look_alone(looks, now)
    }

    fn look_alone(&mut self, looks: Vec<Look>, now: Moment) -> Result<()> {
        let looks = looks.into_iter();
        let (requests, thens): (Vec<_>, Vec<_>) =
            looks.map(|look| (look.request, Then::Answer(look.slot, look.place))).unzip();
        if requests.is_empty() { Ok(()) } else { self.send(requests.iter().zip(thens), now) }
    }

    /// A change, or several as one, has its answer.
    pub(super) fn change_answered(&mut self, reply: &Reply, shape: &Shape) {
        self.changes.under_way -= 1;
        // What reports numbers is newer than what looks for several.
        if self.changes.looking == Looking::Unknown && reply.reports_numbers(shape) {
            self.changes.looking = Looking::Together;
        }
    }

    /// Several changes have their answer. Returns that of each call; none if one was refused: then
    /// each is sent again.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and a reply that does not match the changes.
    pub(super) fn changed_together(
        &mut self,
        together: Together,
        reply: &Reply,
        now: Moment,
    ) -> Result<Vec<Answer>> {
        let Together { changes, looks } = together;
        let replies = if reply.code.is_ok() {
            reply.split(changes.iter().map(|change| &change.requests[0].shape))
        } else {
            Ok(Some(vec![reply.clone(); changes.len()]))
        };
        if let Ok(Some(replies)) = replies {
            let all = changes.into_iter().zip(replies);
            let answer =
                |(change, reply): (Change, _)| Answer { slot: change.slot, place: 0, reply };
            return Ok(all.map(answer).collect());
        }
        // Their replies come next.
        for pending in self.pending.iter_mut().take(looks) {
            pending.then = Then::Nothing;
        }
        // In the queue they are answered, too, when the connection ends now.
        for change in changes.into_iter().rev() {
            self.changes.queue.push_front(change);
        }
        self.changes.apart_until = Some(now.plus(APART));
        replies?;
        self.send_queued(now)?;
        Ok(Vec::new())
    }

    /// A joint look has its answer. Returns that of each call; none if it was refused: then each is
    /// sent again.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), and a reply that does not match the looks.
    pub(super) fn looked_together(
        &mut self,
        looks: Vec<Look>,
        reply: &Reply,
        now: Moment,
    ) -> Result<Vec<Answer>> {
        if !reply.code.is_ok() {
            self.changes.looking = Looking::Apart;
            self.look_alone(looks, now)?;
            return Ok(Vec::new());
        }
        let replies = reply.split_looks(looks.len()).inspect_err(|why| {
            for look in &looks {
                look.slot.fail(why);
            }
        })?;
        let all = looks.into_iter().zip(replies);
        let answer =
            |(look, reply): (Look, _)| Answer { slot: look.slot, place: look.place, reply };
        Ok(all.map(answer).collect())
    }

    /// Whether later connections may not look for several calls at once.
    pub(super) fn has_to_look_apart(&self) -> bool {
        let is_joint = |pending: &Pending| matches!(pending.then, Then::LookedTogether(_));
        self.changes.looking == Looking::Apart || self.pending.iter().any(is_joint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::zookeeper::wire::{Acl, Mode};

    fn make(directory: &str, bytes: usize) -> Request {
        let path = format!("{directory}/n-");
        Request::create(&path, &vec![0; bytes], Acl::Open, Mode::EphemeralSequential)
    }

    fn queue(changes: impl IntoIterator<Item = Request>) -> Changes {
        let slot = || Arc::new(Slot::new(1));
        let change = |change| Change { requests: vec![Request::multi([&change])], slot: slot() };
        Changes { queue: changes.into_iter().map(change).collect(), ..Changes::default() }
    }

    /// How many are taken each time, until none is left.
    fn taken(mut changes: Changes, now: Moment) -> Vec<usize> {
        let next = || Some(changes.take_together(now).len());
        iter::from_fn(next).take_while(|taken| *taken > 0).collect()
    }

    const NOW: Moment = Moment::from_nanos(1_000_000_000);

    #[test]
    fn all_that_queue_go_together() {
        let changes = ["/a", "/b", "/c"].map(|directory| make(directory, 0));
        assert_eq!(taken(queue([]), NOW), [0; 0]);
        assert_eq!(
            taken(queue(changes.iter().chain([&Request::delete("/a/n")]).cloned()), NOW),
            [4]
        );
    }

    #[test]
    fn two_nodes_of_one_directory_are_made_one_after_the_other() {
        let directories = ["/a", "/b", "/a", "/c", "/a", "/b"];
        let mut changes = queue(directories.map(|directory| make(directory, 0)));
        let made_in = |taken: Vec<Change>| -> Vec<String> {
            taken.iter().flat_map(|change| change.requests[0].makes_in()).cloned().collect()
        };
        assert_eq!(made_in(changes.take_together(NOW)), ["/a", "/b", "/c"]);
        assert_eq!(made_in(changes.take_together(NOW)), ["/a", "/b"]);
        assert_eq!(made_in(changes.take_together(NOW)), ["/a"]);
    }

    #[test]
    fn a_transaction_has_a_greatest_length() {
        let changes = ["/a", "/b", "/c"].map(|directory| make(directory, LONGEST / 2));
        assert_eq!(taken(queue(changes), NOW), [1, 1, 1]);
        let changes = ["/a", "/b", "/c"].map(|directory| make(directory, LONGEST / 2 - 100));
        assert_eq!(taken(queue(changes), NOW), [2, 1]);
        assert_eq!(taken(queue([make("/a", 3 * LONGEST)]), NOW), [1], "it goes all the same");
    }

    #[test]
    fn after_a_refusal_each_goes_alone_for_a_moment() {
        let changes = || {
            let changes = queue(["/a", "/b", "/c"].map(|directory| make(directory, 0)));
            let apart_until = Some(NOW.plus(APART));
            Changes { under_way: 2 * MOST_UNDER_WAY, apart_until, ..changes }
        };
        assert_eq!(taken(changes(), NOW), [1, 1, 1]);
        assert!(changes().may_be_sent(NOW), "as many as there are");
        assert_eq!(taken(changes(), NOW.plus(APART)), [3]);
        assert!(!changes().may_be_sent(NOW.plus(APART)));
    }
}
