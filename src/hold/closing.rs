//! Closing a client: its holds are released, its threads end, and the error lists what may still be
//! held at the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::{Error, ErrorKind, Result};
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::hold::guarded::Hold;
use crate::hold::leaving::Leaving;
use crate::hold::permits;
use crate::os;
use crate::report::spans::HoldEnd;
use crate::store::Undo;
use crate::wait::client_state::ClientState;

impl ClientState {
    /// See [`LockClient::stop_waiting`](crate::LockClient::stop_waiting).
    pub(crate) fn stop_waiting(&self) {
        if self.is_forked() {
            return;
        }
        // Set first: whoever is woken, or begins to wait, sees it.
        self.life.stop_waiting();
        self.local_queues.end_waits();
    }

    /// See [`LockClient::close`](crate::LockClient::close).
    pub(crate) fn close(self: &Arc<Self>, timeout: Duration) -> Result<()> {
        if self.is_forked() {
            return self.check_usable();
        }
        let deadline = os::now()
            .checked_add(timeout)
            .unwrap_or_else(|| os::now() + Duration::from_secs(86_400));
        self.life.close(deadline, || self.close_until(deadline))
    }

    fn close_until(self: &Arc<Self>, deadline: Instant) -> Result<()> {
        self.local_queues.end_waits();
        let holds = self.holds.live();
        let (closed, mut unconfirmed) = self.release_holds(deadline);
        unconfirmed.extend(self.give_back_permits(deadline));
        let mut also = Vec::new();
        // Before the watchdog is stopped: these calls return what they are granted from now on, and
        // hand their unknown outcomes to it.
        if !self.life.calls_are_over(deadline) {
            also.push(
                "a lock call or a release still waits for the server, and what it leaves there ends with its lease"
                    .to_owned(),
            );
        }
        let watchdog_ended = self.watchdog.stop(deadline);
        if watchdog_ended && os::now() < deadline {
            let answers = holds > 0 && unconfirmed.is_empty() && self.watchdog.open_undos() == 0;
            self.watchdog.withdraw(answers);
        }
        let subscriber_ended = self.notifications.stop(deadline);
        self.loss_callbacks.stop(deadline);
        self.store.close();
        self.tell_ends(closed, deadline);
        if !watchdog_ended || !subscriber_ended {
            also.push("a thread is still blocked in I/O and ends afterwards".to_owned());
        }
        let left = self.watchdog.unresolved();
        let now = self.clock.now();
        let dropped_until = self.watchdog.dropped_until().filter(|until| *until > now);
        if dropped_until.is_some() {
            also.push(
                "there were too many unknown outcomes, and some were left as they are".into(),
            );
        }
        if watchdog_ended {
            // All others were released in the background after all, or their leases have ended.
            let stands = |one: &Unconfirmed| left.iter().any(|undo| one.is_of(undo));
            unconfirmed.retain(|one| stands(one) || (!one.has_lease && now >= one.expires));
        }
        for undo in left {
            if !unconfirmed.iter().any(|one| one.is_of(&undo)) {
                unconfirmed.push(Unconfirmed::of(&undo, "an unknown outcome is not resolved"));
            }
        }
        if unconfirmed.is_empty() && also.is_empty() {
            return Ok(());
        }
        let ends = unconfirmed
            .iter()
            .filter(|one| one.has_lease)
            .map(|one| one.expires)
            .chain(dropped_until.filter(|until| *until != Moment::NEVER))
            .max();
        Err(not_all_released(&unconfirmed, also, ends.map(|ends| ends.since(now))))
    }

    /// Ends every hold here before the first release is sent: each holder is notified before
    /// another can get its lock. Returns all holds, and those that may still be taken.
    fn release_holds(self: &Arc<Self>, deadline: Instant) -> (Vec<Hold>, Vec<Unconfirmed>) {
        let holds = self.holds.take_all();
        let closed: Vec<Hold> = holds
            .iter()
            .flat_map(|hold| hold.tenures())
            .map(|tenure| Hold::of(self, tenure))
            .collect();
        // An error means that the hold was lost before; it is undone in the background.
        let leaving: Vec<Leaving> =
            closed.iter().filter_map(|hold| hold.close().ok().flatten()).collect();
        let mut unconfirmed = Vec::new();
        for leaving in leaving {
            let hold = leaving.hold.clone();
            let why = if os::now() >= deadline {
                // It is released in the background.
                drop(leaving);
                "the timeout has passed".to_owned()
            } else {
                match leaving.send() {
                    // `Lost`: the server does not know the hold, so the lock is free.
                    Err(e) if e.kind() != ErrorKind::Lost => e.message().to_owned(),
                    _ => continue,
                }
            };
            let (name, holder) =
                (hold.tenure.lock_name().name.clone(), hold.tenure.store_hold.asked.holder.clone());
            unconfirmed.push(Unconfirmed {
                name,
                holder,
                why,
                expires: hold.tenure.store_hold.stands_until(),
                has_lease: true,
            });
        }
        (closed, unconfirmed)
    }

    /// Last of all: a listener or a tracer that blocks must neither keep a lock from others nor use
    /// up the time that the threads need to end. And on threads for callbacks: nor may it keep this
    /// call beyond its deadline (only if no thread can be started, it may: they are called here).
    fn tell_ends(&self, mut closed: Vec<Hold>, deadline: Instant) {
        let observer = &self.seen.observer;
        closed.retain(|hold| observer.has_listener() || hold.tenure.has_span());
        self.loss_callbacks.call_user_until(
            closed.into_iter().map(|hold| move || hold.tell_end(HoldEnd::Released)),
            deadline,
        );
    }

    fn give_back_permits(&self, deadline: Instant) -> Vec<Unconfirmed> {
        let left_to_undo = permits::give_back_all(self, deadline).map(|(undo, why)| {
            let unconfirmed = Unconfirmed::of(&undo, &why);
            self.watchdog.undo(undo);
            unconfirmed
        });
        left_to_undo.collect()
    }
}

/// What a close could not release by itself, and left to the watchdog.
struct Unconfirmed {
    name: Arc<str>,
    holder: Holder,
    why: String,
    expires: Moment,
    has_lease: bool,
}

impl Unconfirmed {
    fn of(undo: &Undo, why: &str) -> Self {
        let has_lease = undo.name.kind.has_lease();
        let why =
            if has_lease { why.to_owned() } else { format!("{why} (these permits have no lease)") };
        Self {
            name: undo.name.name.clone(),
            holder: undo.holder.clone(),
            why,
            expires: undo.expires,
            has_lease,
        }
    }

    fn is_of(&self, undo: &Undo) -> bool {
        self.holder == undo.holder && self.name == undo.name.name
    }
}

#[cold]
fn not_all_released(
    unconfirmed: &[Unconfirmed],
    also: Vec<String>,
    stands_for: Option<Duration>,
) -> Error {
    const SHOWN: usize = 10;
    let mut parts: Vec<String> =
        unconfirmed.iter().take(SHOWN).map(|one| format!("{:?}: {}", one.name, one.why)).collect();
    if unconfirmed.len() > SHOWN {
        parts.push(format!("{} more", unconfirmed.len() - SHOWN));
    }
    parts.extend(also);
    let stands = stands_for.map(|time| {
        let seconds = (time.as_secs_f64() * 10.0).ceil() / 10.0;
        format!(" (it can stay locked until its lease ends, for {seconds} s at most)")
    });
    let stands = stands.unwrap_or_default();
    let why = format!(
        "closed, but not everything is confirmed to be released{stands}: {}",
        parts.join("; ")
    );
    Error::new(ErrorKind::Unreachable, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::holder::ClientId;

    fn error(locks: usize, stands_for: Option<Duration>) -> String {
        let holder = ClientId::random(Duration::from_secs(5)).fresh_holder();
        let unconfirmed = |n: usize| Unconfirmed {
            name: format!("lock {n}").into(),
            holder: holder.clone(),
            why: "no answer".to_owned(),
            expires: Moment::NEVER,
            has_lease: true,
        };
        let unconfirmed: Vec<_> = (1..=locks).map(unconfirmed).collect();
        not_all_released(&unconfirmed, vec!["a thread is left".to_owned()], stands_for).to_string()
    }

    #[test]
    fn the_error_of_a_close_names_ten_locks_and_counts_the_others() {
        let ten = error(10, None);
        assert!(ten.contains("\"lock 10\": no answer; a thread is left"), "{ten}");
        let more = error(12, None);
        assert!(more.contains("\"lock 10\": no answer; 2 more; a thread is left"), "{more}");
    }

    #[test]
    fn the_error_of_a_close_says_when_the_last_lease_ends() {
        let error = error(1, Some(Duration::from_millis(2_340)));
        assert!(error.contains("for 2.4 s at most"), "{error}");
    }
}
