//! The fair lock: a lock with a queue of waiters.

use std::sync::Arc;
use std::time::Duration;

use super::entry::Entry;
use super::queue::{FairPlace, Queue, is_before};
use super::state::MemoryState;
use crate::base::error::Result;
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::lock_name::{Kind, LockName};
use crate::store::{
    Acquire, Acquired, HoldCounts, NextUp, Release, Released, TokenRule, Topic, Waiting,
};

/// A shorter place is not given the lock: its waiter is told that it is free.
const SHORTEST_GRANT: Duration = Duration::from_secs(2);

impl MemoryState {
    pub(super) fn acquire_fair(
        &mut self,
        acquire: &Acquire<'_>,
        place: Duration,
        now: Moment,
    ) -> Result<Acquired> {
        let Acquire { name, holder, held, .. } = *acquire;
        let standing = match self.typed(&name.key, now, Entry::lock) {
            Ok(Some(current)) if current.holder == *holder => {
                if held == 0 {
                    // A release may have granted it for as long as its place lasts, which may be
                    // longer than its lease.
                    current.until = now;
                }
                return Ok(self.grant_lock(acquire, None, now));
            }
            _ if held > 0 => return Ok(Acquired::Gone),
            Ok(current) => current.map(|current| current.until),
            Err(e) => return Err(e),
        };
        let queue = self.queues.entry(name.key.clone()).or_default();
        let swept = queue.sweep(Some(holder), now);
        let is_head = queue.head().is_some_and(|head| head.holder == *holder);
        if standing.is_none() && (is_head || queue.0.is_empty()) {
            return Ok(self.grant_fair(acquire, now));
        }
        // It was enqueued, and its place has expired. Only places at the front are removed, so all
        // waiters now in the queue came later.
        let is_new = queue.place_of(holder).is_none();
        let is_first = acquire.waiting == Waiting::Again && is_new;
        let head = queue.head().map(|head| (head.holder.clone(), head.deadline));
        if let (None, Some((head, _)), true) = (standing, &head, is_first)
            && !is_before(head, holder)
        {
            return Ok(self.grant_fair(acquire, now));
        }
        let ttl = match standing {
            Some(until) => Some(until.since(now)),
            None => head
                .as_ref()
                .and_then(|(_, deadline)| (*deadline > now).then(|| deadline.since(now))),
        };
        let waits = acquire.waiting != Waiting::No;
        if waits {
            queue.enqueue(holder, (now, place), is_first);
        }
        if let (true, None, Some((head, _))) = (swept, standing, &head) {
            // The waiter that was notified is dead, and the new first one may sleep until its
            // deadline.
            self.notify_turn(name, head);
        }
        self.forget_empty(&name.key);
        if !waits {
            return Ok(Acquired::Busy { ttl });
        }
        // Soon enough for the waiter to keep its place.
        let ttl = Some(ttl.map_or(place / 3, |ttl| ttl.min(place / 3)));
        Ok(Acquired::Queued { ttl, is_new })
    }

    /// The lock is free, and it is this holder's turn.
    fn grant_fair(&mut self, acquire: &Acquire<'_>, now: Moment) -> Acquired {
        let key = &acquire.name.key;
        let queue = self.queues.entry(key.clone()).or_default();
        queue.leave(acquire.holder);
        let next = queue.head().map(|head| head.holder.as_str().to_owned());
        self.forget_empty(key);
        self.grant_lock(acquire, next, now)
    }

    fn forget_empty(&mut self, key: &str) {
        if self.queues.get(key).is_some_and(|queue| queue.0.is_empty()) {
            self.queues.remove(key);
        }
    }

    pub(super) fn release_fair(&mut self, release: &Release<'_>, now: Moment) -> Released {
        let Release { name, holder, left, .. } = *release;
        let outcome = self.leave_lock(release, now);
        if left != HoldCounts::NONE {
            return outcome;
        }
        let freed = matches!(outcome, Released::Freed { .. });
        let Some(queue) = self.queues.get_mut(&name.key) else { return freed_to(freed, 0, None) };
        // A holder is no longer in the queue.
        let left_at = if freed { None } else { queue.leave(holder) };
        if !freed && left_at.is_none() {
            return Released::NotHeld;
        }
        let swept = self.entry(&name.key, now).is_none() && self.sweep_queue(&name.key, now);
        let is_free = self.entry(&name.key, now).is_none();
        if freed
            && is_free
            && let Some(released) = self.grant_head(release, now)
        {
            return released;
        }
        let head = self.queues.get(&name.key).and_then(Queue::head).map(|head| head.holder.clone());
        self.forget_empty(&name.key);
        // A release notifies only the first waiter. If that waiter leaves, or is dead, its
        // notification is lost, so the next one is notified.
        match head {
            Some(head) if is_free && (freed || left_at == Some(0) || swept) => {
                let listeners = self.notify_turn(name, &head);
                let next = NextUp { holder: head.as_str().to_owned(), grant: None };
                freed_to(freed, listeners, Some(next))
            }
            _ => freed_to(freed, 0, None),
        }
    }

    /// Gives the lock to the first waiter for as long as its place lasts, from now: the waiter
    /// counts from its last request, which was before. `None`: there is none, or it is dead, or its
    /// place could end before it wakes up.
    fn grant_head(&mut self, release: &Release<'_>, now: Moment) -> Option<Released> {
        let name = release.name;
        let first = self.queues.get(&name.key)?.head()?;
        if first.deadline <= now || first.lasts < SHORTEST_GRANT {
            return None;
        }
        let head = first.holder.clone();
        let until = now.plus(first.lasts);
        self.queues.get_mut(&name.key)?.leave(&head);
        self.forget_empty(&name.key);
        let rule = if release.has_token { TokenRule::On } else { TokenRule::Off };
        let token = self.tokens(rule, 0, 1);
        self.take_lock(name, &head, 0, until, now);
        let topic = Topic::turn(name, head.as_str());
        let listeners = self.subscriptions.grant(&topic, token);
        let next = NextUp { holder: head.as_str().to_owned(), grant: Some(token) };
        Some(freed_to(true, listeners, Some(next)))
    }

    fn sweep_queue(&mut self, key: &str, now: Moment) -> bool {
        self.queues.get_mut(key).is_some_and(|queue| queue.sweep(None, now))
    }

    pub(super) fn notify_turn(&mut self, name: &LockName, head: &Holder) -> u64 {
        self.subscriptions.publish(&Topic::turn(name, head.as_str()))
    }

    /// The lock came free without a release: notifies the first waiter.
    pub(super) fn notify_head(&mut self, key: &Arc<str>, now: Moment) {
        self.sweep_queue(key, now);
        if let Some(head) = self.queues.get(key).and_then(Queue::head) {
            let turn_of = Some(head.holder.as_str().into());
            self.subscriptions.publish(&Topic { kind: Kind::Fair, key: key.clone(), turn_of });
        }
        self.forget_empty(key);
    }

    /// The length of the queue, and how many waiters are before the first one of a client.
    pub(super) fn queue_of(&self, key: &str, client: &str) -> (usize, Option<usize>) {
        let Some(Queue(places)) = self.queues.get(key) else { return (0, None) };
        let is_own = |place: &FairPlace| place.holder.as_str().split(':').next() == Some(client);
        (places.len(), places.iter().position(is_own))
    }
}

/// A waiter that leaves the queue frees nothing.
fn freed_to(freed: bool, listeners: u64, next: Option<NextUp>) -> Released {
    if freed { Released::Freed { listeners: Some(listeners), next } } else { Released::NotHeld }
}

#[cfg(test)]
#[path = "fair_tests.rs"]
mod tests;
