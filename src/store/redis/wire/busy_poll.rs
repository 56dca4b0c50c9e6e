//! Looking for a reply for a short while before falling asleep for it.
//!
//! On an idle machine a round trip over loopback is 8 µs of work and 70 µs of falling asleep and
//! waking up. A thread that looks again and again for the reply is awake when it comes. But it uses
//! a core meanwhile, so it looks only where that pays: for one call at a time, while replies come
//! within the [window](WINDOW), and while no other thread wants the core. Both are seen by trying,
//! and a try that fails is not repeated for a while, which grows with every failure.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a reply is looked for. One that takes longer is waited for asleep: waking up adds
/// little to it.
const WINDOW: Duration = Duration::from_micros(50);
/// A thread that could not look for this long was not on a core.
const INTERRUPTED: Duration = Duration::from_micros(300);
/// The first pause after a reply that did not come within the window. It costs a window of CPU time.
const AFTER_A_MISS: Duration = Duration::from_millis(1);
/// The first pause after an interruption: another thread wanted the core, and a thread that has
/// used its share gets it back only after the other's turn, which is some milliseconds.
const AFTER_AN_INTERRUPTION: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A failure this many pauses after the last one is the first of a new row.
const ROW: u64 = 16;
/// What a miss counts for, where a reply within the window counts for one: with fewer than a fourth
/// of misses, looking saves more than it costs.
const MISS: u32 = 3;
/// This many misses in a row lead to a pause; after a pause, the first one does.
const MOST_MISSES: u32 = 3;

/// Whether threads of one client look for their replies now. All of it is advice: threads that read
/// it at the same time as others write it do no harm.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    /// `None`: never.
    since: Option<Instant>,
    /// Calls of the client under way.
    calls: AtomicUsize,
    /// When the pause ends, in nanoseconds since `since`.
    resume_at: AtomicU64,
    /// The last pause, in nanoseconds.
    pause: AtomicU64,
    /// How much looking has been in vain lately.
    in_vain: AtomicU32,
}

/// A call under way.
#[derive(Debug)]
pub(super) struct CallUnderWay<'p>(&'p BusyPoll);

impl Drop for CallUnderWay<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BusyPoll {
    /// `allowed`: whether the user lets threads use a core while they wait.
    pub(crate) fn new(allowed: bool) -> Self {
        Self {
            since: allowed.then(Instant::now),
            calls: AtomicUsize::new(0),
            resume_at: AtomicU64::new(0),
            pause: AtomicU64::new(0),
            in_vain: AtomicU32::new(0),
        }
    }

    /// Counts a call until the returned value is dropped. While there are two, no thread looks:
    /// the other caller can use the core.
    pub(super) fn begin_call(&self) -> CallUnderWay<'_> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        CallUnderWay(self)
    }

    /// What `look` finds, if that is soon. `None`: the caller is to wait asleep.
    pub(super) fn poll<T>(&self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let since = self.since?;
        let began = Instant::now();
        if self.calls.load(Ordering::Relaxed) > 1 || nanos(began - since) < self.resume_at.load(Ordering::Relaxed) {
            return None;
        }
        let mut last = began;
        loop {
            let found = look();
            let now = Instant::now();
            if now - last >= INTERRUPTED {
                self.pause_from(now - since, AFTER_AN_INTERRUPTION);
                return found;
            }
            if found.is_some() {
                self.note_success();
                return found;
            }
            if self.calls.load(Ordering::Relaxed) > 1 {
                return None;
            }
            if now - began >= WINDOW {
                self.note_miss(now - since);
                return None;
            }
            last = now;
            std::hint::spin_loop();
        }
    }

    fn note_success(&self) {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if in_vain > 0 {
            self.in_vain.store(in_vain - 1, Ordering::Relaxed);
        }
    }

    fn note_miss(&self, now: Duration) {
        let in_vain = self.in_vain.load(Ordering::Relaxed) + MISS;
        if in_vain < MOST_MISSES * MISS {
            self.in_vain.store(in_vain, Ordering::Relaxed);
            return;
        }
        self.in_vain.store((MOST_MISSES - 1) * MISS, Ordering::Relaxed);
        self.pause_from(now, AFTER_A_MISS);
    }

    /// `now`: since `since`.
    #[cold]
    fn pause_from(&self, now: Duration, first: Duration) {
        let (now, before) = (nanos(now), self.pause.load(Ordering::Relaxed));
        let ran = now.saturating_sub(self.resume_at.load(Ordering::Relaxed));
        let pause = if ran < ROW.saturating_mul(before) { 2 * before } else { 0 };
        let pause = pause.clamp(nanos(first), nanos(LONGEST_PAUSE));
        self.pause.store(pause, Ordering::Relaxed);
        self.resume_at.store(now + pause, Ordering::Relaxed);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    /// How often a call that never gets its reply looks for it.
    fn looks(busy_poll: &BusyPoll) -> u32 {
        let mut looks = 0;
        let found: Option<()> = busy_poll.poll(|| {
            looks += 1;
            None
        });
        assert_eq!(found, None);
        looks
    }

    fn pause(busy_poll: &BusyPoll) -> Duration {
        Duration::from_nanos(busy_poll.pause.load(Ordering::Relaxed))
    }

    #[test]
    fn a_reply_within_the_window_is_found() {
        let busy_poll = BusyPoll::new(true);
        let mut looks = 0;
        let found = busy_poll.poll(|| {
            looks += 1;
            (looks == 2).then_some(looks)
        });
        // On a busy machine the window may be over after the first look.
        assert!(found == Some(2) || pause(&busy_poll) > Duration::ZERO);
    }

    #[test]
    fn nobody_looks_where_it_is_forbidden_or_while_another_call_is_under_way() {
        assert_eq!(looks(&BusyPoll::new(false)), 0);
        let busy_poll = BusyPoll::new(true);
        let _own = busy_poll.begin_call();
        let other = busy_poll.begin_call();
        assert_eq!(looks(&busy_poll), 0);
        drop(other);
        assert!(looks(&busy_poll) > 0);
    }

    #[test]
    fn a_call_that_begins_meanwhile_ends_the_looking() {
        let busy_poll = BusyPoll::new(true);
        let _own = busy_poll.begin_call();
        let (mut other, mut looks) = (None, 0);
        let found: Option<()> = busy_poll.poll(|| {
            other.get_or_insert_with(|| busy_poll.begin_call());
            looks += 1;
            None
        });
        assert_eq!((found, looks), (None, 1));
    }

    #[test]
    fn misses_are_retried_ever_more_rarely() {
        let busy_poll = BusyPoll::new(true);
        // One in vain between many that are not is no reason to stop.
        for _ in 0..100 {
            busy_poll.note_miss(Duration::ZERO);
            (0..4).for_each(|_| busy_poll.note_success());
        }
        assert_eq!(pause(&busy_poll), Duration::ZERO);
        for _ in 0..MOST_MISSES {
            assert!(looks(&busy_poll) > 0);
        }
        let first = pause(&busy_poll);
        assert!(first >= AFTER_A_MISS);
        assert_eq!(looks(&busy_poll), 0, "during the pause");
        let mut before = first;
        while before < LONGEST_PAUSE {
            busy_poll.resume_at.store(nanos(busy_poll.since.unwrap().elapsed()), Ordering::Relaxed);
            looks(&busy_poll);
            assert!(pause(&busy_poll) >= (2 * before).min(LONGEST_PAUSE));
            before = pause(&busy_poll);
        }
        // It has worked for long before this one.
        busy_poll.resume_at.store(0, Ordering::Relaxed);
        busy_poll.pause.store(1, Ordering::Relaxed);
        looks(&busy_poll);
        assert!(pause(&busy_poll) < LONGEST_PAUSE);
    }

    #[test]
    fn a_thread_that_lost_its_core_keeps_what_it_found_and_pauses_for_long() {
        let busy_poll = BusyPoll::new(true);
        let found = busy_poll.poll(|| {
            sleep(2 * INTERRUPTED);
            Some(())
        });
        assert!(found.is_some() && pause(&busy_poll) >= AFTER_AN_INTERRUPTION);
        assert_eq!(looks(&busy_poll), 0);
    }
}
