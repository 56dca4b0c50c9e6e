//! The hand-off of a lock from one client to another.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use leasehold::{CancelToken, LockClient, ReentrantMutex, Result};

use super::figures::Samples;

/// How long the other player has waited before the lock is unlocked: it has found the lock taken,
/// and then subscribes to the message of its release, with one or two round trips.
const SETTLED: Duration = Duration::from_millis(5);
/// A player that does not wait by then has failed, and reports why.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_micros(500);

/// A player is one of two clients. Each has the lock in turn while the other waits for it.
struct Player<'p> {
    mutex: ReentrantMutex,
    other: &'p LockClient,
    /// A message means that the other player has the lock, so it is time to wait for it.
    turns: Receiver<()>,
    to_other: Sender<()>,
    /// When the other player began to unlock it.
    unlocks: Receiver<Instant>,
    to_other_unlocked: Sender<Instant>,
}

/// Each player locks with a handle of its client. Ends when `time` is over, or with the error of a
/// player.
pub(super) fn hand_off(
    players: [(ReentrantMutex, &LockClient); 2],
    time: Duration,
    token: &CancelToken,
) -> Result<Samples> {
    let [(first, first_client), (second, second_client)] = players;
    let ((to_first, turns_of_first), (to_second, turns_of_second)) = (bounded(1), bounded(1));
    let ((tell_first, told_first), (tell_second, told_second)) = (bounded(1), bounded(1));
    // Nobody has the lock yet.
    let _ = to_first.send(());
    let end = Instant::now() + time;
    let first = Player {
        mutex: first,
        other: second_client,
        turns: turns_of_first,
        to_other: to_second,
        unlocks: told_first,
        to_other_unlocked: tell_second,
    };
    let second = Player {
        mutex: second,
        other: first_client,
        turns: turns_of_second,
        to_other: to_first,
        unlocks: told_second,
        to_other_unlocked: tell_first,
    };
    let play = |player: Player<'_>| player.play(end, token).inspect_err(|_| token.cancel());
    let outcomes = std::thread::scope(|scope| {
        let play = &play;
        [first, second]
            .map(|player| scope.spawn(move || play(player)))
            .map(|thread| thread.join().expect("a thread of the bench panicked"))
    });
    Samples::together(outcomes.into())
}

impl Player<'_> {
    /// Ends, and drops its senders, when the time is over or the other player has ended.
    fn play(self, end: Instant, token: &CancelToken) -> Result<Samples> {
        let mut samples = Samples::default();
        for () in &self.turns {
            let guard = self.mutex.lock()?;
            let locked = Instant::now();
            // The very first lock has no unlock before it.
            if let Ok(unlocked) = self.unlocks.try_recv() {
                samples.add(locked - unlocked);
            }
            if Instant::now() >= end || self.to_other.send(()).is_err() {
                guard.unlock()?;
                break;
            }
            self.wait_until_other_waits(token);
            let _ = self.to_other_unlocked.send(Instant::now());
            guard.unlock()?;
        }
        Ok(samples)
    }

    fn wait_until_other_waits(&self, token: &CancelToken) {
        let begin = Instant::now();
        let waits = || self.other.snapshot().waits().iter().any(|wait| wait.waited() >= SETTLED);
        while !waits() && !token.is_cancelled() && begin.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
    }
}
