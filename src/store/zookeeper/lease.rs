//! The session as a lease: until when it is known to live, from the instants of requests and
//! answers. Pure: time comes in as an argument.
//!
//! Only the leader ends a session, one session timeout after it has last heard of it. A server that
//! is cut off from the leader goes on answering pings and reads, so such an answer proves nothing.
//! What proves something is the answer to a request that went *through the leader* (`sync`, a
//! change): the link from server to leader is one ordered stream, and on it the server reports,
//! within the *lag*, which sessions it has heard of. So if a request `k` that was sent at least the
//! lag after the answer to an earlier request `j` came back from the leader, the leader knew of `j`
//! when it answered `k`, and the session lives for a timeout from `j` on.
//!
//! Assumed: the leader asks for those reports within the lag while it answers `sync`.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::lease::{Moment, valid_until};

/// The slack in the lag for a leader that asks a little late.
const SLACK: Duration = Duration::from_millis(100);

/// The rhythms of a session, all parts of its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rhythm {
    pub(super) timeout: Duration,
    /// How long a server may keep to itself that it has heard of the session.
    pub(super) lag: Duration,
    /// How often a request goes through the leader while something is held or waited for.
    pub(super) heartbeat: Duration,
    /// How long the connection may be silent otherwise.
    pub(super) ping: Duration,
    /// How long an answer may take before the connection counts as dead.
    pub(super) silence: Duration,
}

impl Rhythm {
    /// `tick`: the `tickTime` of the servers, if the user says it. Without it: servers grant no
    /// shorter session than two ticks by default, so half a tick is at most a quarter of it.
    pub(super) fn of(timeout: Duration, tick: Option<Duration>) -> Self {
        let (lag, heartbeat) = match tick {
            Some(tick) => (tick / 2 + SLACK, timeout / 6),
            None => (timeout / 4, timeout / 12),
        };
        Self { timeout, lag, heartbeat, ping: timeout / 3, silence: timeout / 3 }
    }
}

/// What one connection of a session has shown. A new connection begins anew: what the server of the
/// old one had heard may never have reached the leader.
#[derive(Debug)]
pub(super) struct SessionLease {
    rhythm: Rhythm,
    /// Requests that were answered, oldest first.
    heard: VecDeque<Heard>,
    until: Moment,
}

#[derive(Debug, Clone, Copy)]
struct Heard {
    sent_at: Moment,
    answered_at: Moment,
}

impl SessionLease {
    /// The leader has accepted a connection, which was asked for at `sent_at`. `until`: what an
    /// earlier connection of the same session has shown.
    pub(super) fn connected(rhythm: Rhythm, sent_at: Moment, until: Moment) -> Self {
        let until = until.max(valid_until(sent_at, rhythm.timeout));
        Self { rhythm, heard: VecDeque::new(), until }
    }

    /// The server has answered a request, whatever it was.
    pub(super) fn answered(&mut self, sent_at: Moment, answered_at: Moment) {
        // Not all of many: the list has no more than a few dozen for each lag.
        let is_news = self.heard.back().is_none_or(|last| sent_at.since(last.sent_at) >= self.rhythm.timeout / 96);
        if is_news {
            // Older ones could show nothing any more.
            while self.heard.front().is_some_and(|first| first.sent_at.plus(self.rhythm.timeout) < sent_at) {
                self.heard.pop_front();
            }
            self.heard.push_back(Heard { sent_at, answered_at });
        }
    }

    /// The answer to a request that went through the leader. Returns until when the session lives.
    pub(super) fn confirmed(&mut self, sent_at: Moment) -> Moment {
        let reported = |heard: &Heard| heard.answered_at.plus(self.rhythm.lag) <= sent_at;
        let known = self.heard.iter().rposition(reported);
        if let Some(known) = known {
            self.heard.drain(..known);
            self.until = self.until.max(valid_until(self.heard[0].sent_at, self.rhythm.timeout));
        }
        self.until
    }

    pub(super) fn until(&self) -> Moment {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(12);

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    /// Without the margin of 1 % and 2 ms.
    fn lives_from(ms: u64) -> Moment {
        valid_until(at(ms), T)
    }

    fn begun() -> SessionLease {
        SessionLease::connected(Rhythm::of(T, None), at(0), at(0))
    }

    /// Answers of which each goes through the leader.
    fn heartbeat(lease: &mut SessionLease, sent: u64, answered: u64) -> Moment {
        let until = lease.confirmed(at(sent));
        lease.answered(at(sent), at(answered));
        until
    }

    #[test]
    fn a_connection_counts_from_its_request() {
        assert_eq!(begun().until(), lives_from(0));
        let again = SessionLease::connected(Rhythm::of(T, None), at(5), at(50_000));
        assert_eq!(again.until(), at(50_000), "it never shortens what was shown before");
    }

    #[test]
    fn an_answer_alone_proves_nothing() {
        let mut lease = begun();
        for n in 1..100 {
            lease.answered(at(n * 1000), at(n * 1000 + 1));
        }
        assert_eq!(lease.until(), lives_from(0));
    }

    #[test]
    fn a_heartbeat_counts_once_a_later_one_went_through_the_leader() {
        let mut lease = begun();
        // A quarter of 12 s.
        assert_eq!(heartbeat(&mut lease, 1000, 1010), lives_from(0));
        assert_eq!(heartbeat(&mut lease, 4009, 4019), lives_from(0), "one millisecond too soon");
        assert_eq!(heartbeat(&mut lease, 4010, 4030), lives_from(1000));
        assert_eq!(heartbeat(&mut lease, 7018, 7020), lives_from(1000));
        assert_eq!(heartbeat(&mut lease, 7019, 7021), lives_from(4009));
        assert_eq!(heartbeat(&mut lease, 7030, 7040), lives_from(4009));
    }

    /// A slow answer: the server may have heard of the request just before.
    #[test]
    fn the_lag_counts_from_the_answer_and_the_lease_from_the_request() {
        let mut lease = begun();
        lease.answered(at(1000), at(3500));
        assert_eq!(lease.confirmed(at(6499)), lives_from(0));
        assert_eq!(lease.confirmed(at(6500)), lives_from(1000));
    }

    #[test]
    fn a_lost_heartbeat_is_made_up_for_by_any_other_answer() {
        let mut lease = begun();
        lease.answered(at(2000), at(2001));
        lease.answered(at(3000), at(3001));
        // No heartbeat for long; then one.
        assert_eq!(lease.confirmed(at(20_000)), lives_from(3000));
        assert_eq!(lease.confirmed(at(20_000)), lives_from(3000), "again");
        assert_eq!(lease.confirmed(at(5_500)), lives_from(3000), "answers of earlier requests change nothing");
    }

    /// Every order and gap of eight requests, each answered or not, each through the leader or not.
    #[test]
    fn no_sequence_shows_more_than_was_answered_a_lag_before() {
        let gaps = [1, 700, 1500, 3000, 3100];
        for shape in 0..5_u32.pow(4) {
            for mask in 0..256_u32 {
                let (mut lease, mut now, mut known) = (begun(), 0, vec![(0, 0)]);
                let mut shown = 0;
                for n in 0..4 {
                    now += gaps[(shape / 5_u32.pow(n) % 5) as usize];
                    let (answers, through) = (mask >> n & 1 == 1, mask >> (n + 4) & 1 == 1);
                    if !answers {
                        continue;
                    }
                    if through {
                        let reported = known.iter().filter(|(_, answered)| answered + 3000 <= now || *answered == 0);
                        shown = reported.map(|(sent, _)| *sent).max().unwrap_or(0).max(shown);
                        assert!(lease.confirmed(at(now)) <= lives_from(shown), "{shape} {mask}");
                    }
                    lease.answered(at(now), at(now + 5));
                    known.push((now, now + 5));
                    now += 5;
                }
            }
        }
    }

    #[test]
    fn more_than_half_remains_after_each_heartbeat() {
        let rhythm = Rhythm::of(T, None);
        let mut lease = begun();
        let mut now = at(0);
        for beat in 1..200 {
            now = now.plus(rhythm.heartbeat);
            let until = lease.confirmed(now);
            lease.answered(now, now.plus(Duration::from_millis(50)));
            let least = T - rhythm.lag - rhythm.heartbeat * 2 - Duration::from_millis(50) - T / 50;
            assert!(until.since(now) >= least, "{beat}: {:?}", until.since(now));
            assert!(lease.heard.len() < 100, "{}", lease.heard.len());
        }
    }

    #[test]
    fn with_the_tick_of_the_servers_it_needs_fewer_heartbeats() {
        let rhythm = Rhythm::of(T, Some(Duration::from_secs(2)));
        assert_eq!((rhythm.lag, rhythm.heartbeat), (Duration::from_millis(1100), Duration::from_secs(2)));
        assert_eq!(Rhythm::of(T, None).heartbeat, Duration::from_secs(1));
    }

    #[test]
    fn many_requests_are_few_entries() {
        let mut lease = begun();
        for n in 0..10_000_000 {
            lease.answered(Moment::from_nanos(n * 10_000), Moment::from_nanos(n * 10_000 + 5));
        }
        assert!(lease.heard.len() < 100);
    }
}
