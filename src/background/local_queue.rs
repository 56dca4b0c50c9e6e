//! Where threads of one client that want the same name queue up, first come first served.
//!
//! Only the head of a queue talks to the server: fifty threads cost it what one does. The role of the head passes on
//! when it is granted the lock or leaves, also by a panic.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::background::piggyback::{Relay, Relayed, TakenRelay};
use crate::base::deadline::Deadline;
use crate::base::error::Error;
use crate::base::event::Bell;
use crate::base::holder::Holder;
use crate::base::key::LockKeys;

/// Acquisitions in a row, with other clients waiting, before a wake-up of theirs is let pass. A client that releases
/// and takes again on the spot always beats one that a message has to reach first.
const FIRST_BOUND: u32 = 32;
/// A run is over after this long as well (times as much as the bound has grown), if it had a few turns.
const FIRST_SPAN: Duration = Duration::from_millis(4);
const SHORTEST_RUN: u32 = 4;
/// The bound doubles up to this when a turn that was offered was not taken: a subscription that only lingers.
const LAST_BOUND: u32 = 1024;
/// A turn is offered this long: a Java waiter needs up to 5.5 ms from the message to its try.
const OFFER: Duration = Duration::from_millis(10);
/// A place nobody uses keeps its memory of others for this long.
const MEMORY: Duration = Duration::from_secs(1);
/// Places beyond which unused ones are swept.
const SWEEP_AT: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Stations {
    map: Mutex<Map>,
    /// Those of waiters that queue in Redis, by holder.
    alone: Mutex<HashMap<Arc<str>, Arc<Station>>>,
}

#[derive(Debug, Default)]
struct Map {
    stations: HashMap<Arc<str>, Arc<Station>>,
    /// How many there were after the last sweep.
    after_sweep: usize,
}

impl Map {
    fn get(&self, name: &str) -> Option<&Arc<Station>> {
        self.stations.get(name)
    }

    /// The station of the name, made if there is none.
    fn entry(&mut self, name: &Arc<str>) -> &Arc<Station> {
        // Only once there are twice as many as the last sweep left: with many names in use each entry would look at all.
        if self.stations.len() >= SWEEP_AT.max(2 * self.after_sweep) {
            self.stations.retain(|_, station| {
                let line = station.line.lock();
                line.members > 0 || line.turns.last.is_some_and(|t| t.elapsed() < MEMORY)
            });
            self.after_sweep = self.stations.len();
        }
        self.stations.entry(name.clone()).or_default()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Station {
    pub(crate) bell: Arc<Bell>,
    line: Mutex<Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// Those behind the head.
    seats: VecDeque<Arc<Seat>>,
    /// Somebody is the head, or has been made it and is waking up.
    head: bool,
    /// The head's try, for whoever of this client frees the lock to send right behind the release.
    relay: Option<Arc<Relay>>,
    /// Threads that are in the line or about to enter it.
    members: usize,
    turns: Turns,
    /// Since when the server cannot be asked, as far as the heads of this line know, and what it said.
    outage: Option<(Instant, Error)>,
}

/// How often this client had the lock in a row while others waited.
#[derive(Debug)]
struct Turns {
    in_a_row: u32,
    bound: u32,
    /// Messages heard once the one of our own last release has arrived.
    heard: u64,
    /// When the run began.
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { in_a_row: 0, bound: FIRST_BOUND, heard: 0, first: None, last: None }
    }
}

impl Turns {
    fn is_owed(&self) -> bool {
        let span = FIRST_SPAN * (self.bound / FIRST_BOUND);
        let long = self.in_a_row >= SHORTEST_RUN && self.first.is_some_and(|first| first.elapsed() > span);
        (long || self.in_a_row >= self.bound) && self.last.is_some_and(|last| last.elapsed() < MEMORY)
    }
}

#[derive(Debug)]
struct Seat {
    /// Its owner's try, which goes out with the release before its turn even while the owner is still waking up.
    relay: Option<Arc<Relay>>,
    called: Mutex<Call>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Call {
    #[default]
    Wait,
    Head,
    Closed,
}

impl Seat {
    fn call(&self, call: Call) {
        let mut called = self.called.lock();
        if *called == Call::Wait {
            *called = call;
        }
        drop(called);
        self.changed.notify_one();
    }

    /// Until called, or until the deadline ([`Call::Wait`]).
    fn wait(&self, deadline: Deadline) -> Call {
        let mut called = self.called.lock();
        while *called == Call::Wait {
            match deadline {
                Deadline::Never => self.changed.wait(&mut called),
                Deadline::Now => break,
                Deadline::At(at) => {
                    if self.changed.wait_until(&mut called, at).timed_out() {
                        break;
                    }
                }
            }
        }
        *called
    }
}

/// A thread's presence at a station, which is kept while there is one.
#[derive(Debug)]
struct Member<'s> {
    stations: &'s Stations,
    station: Arc<Station>,
    /// The lock's; the holder's for one who queues in Redis and has a station of its own.
    name: Arc<str>,
    alone: bool,
}

impl Drop for Member<'_> {
    fn drop(&mut self) {
        if self.alone {
            self.stations.alone.lock().remove(&self.name);
        } else {
            self.stations.leave(&self.name, &self.station);
        }
    }
}

/// Being the head of a station's line. Dropped, the next one is.
#[derive(Debug)]
pub(crate) struct Head<'s> {
    member: Member<'s>,
    /// It stood in line before.
    pub(crate) stood: bool,
    /// The try it brought from there.
    relay: Option<Arc<Relay>>,
}

pub(crate) enum Queued<'s> {
    Head(Head<'s>),
    /// With the bell of the line, which knows how old its last answer is.
    TimedOut(Arc<Bell>),
    Closed,
    /// The head of the line could not ask the server when it tried last. Whoever comes now asks for itself and does not wait
    /// for the head's next try: a dead server is told at once, and a connection that was cut under the head says nothing
    /// about the server.
    Outage,
    /// No time is left, and nobody knows whether somebody else has it.
    Unknown(Error),
}

impl Stations {
    /// The head of a line of its own: for a waiter whose place is in a queue in Redis, so that the line may not decide.
    pub(crate) fn alone(&self, holder: &Holder) -> Head<'_> {
        let (station, name): (Arc<Station>, Arc<str>) = (Arc::default(), holder.as_str().into());
        self.alone.lock().insert(name.clone(), station.clone());
        let member = Member { stations: self, station, name, alone: true };
        Head { member, stood: false, relay: None }
    }

    /// Whether whoever comes queues up: a thread of this client waits for the name, or others are due a turn.
    pub(crate) fn has_line(&self, name: &str) -> bool {
        let map = self.map.lock();
        map.get(name).is_some_and(|station| {
            let line = station.line.lock();
            line.head || line.turns.is_owed()
        })
    }

    /// Blocks until the caller is the head of the line for the name. `try_of` is asked for a try to leave in the line, if
    /// there is one.
    pub(crate) fn queue(
        &self,
        keys: &LockKeys,
        deadline: Deadline,
        try_of: impl FnOnce() -> Option<Relay>,
    ) -> Queued<'_> {
        let member = self.enter(&keys.lock);
        let seat = {
            let mut line = member.station.line.lock();
            if !line.head {
                line.head = true;
                drop(line);
                return Queued::Head(Head { member, stood: false, relay: None });
            }
            if line.outage.is_some() {
                return Queued::Outage;
            }
            let relay = try_of().map(Arc::new);
            let seat = Arc::new(Seat { relay, called: Mutex::default(), changed: Condvar::new() });
            line.seats.push_back(seat.clone());
            seat
        };
        match seat.wait(deadline) {
            // A call that came meanwhile wins: the role must not be lost with a seat that is given up.
            Call::Wait if member.give_up(&seat) => match &member.station.line.lock().outage {
                // Nobody knows whether somebody else has it.
                Some((_, error)) => Queued::Unknown(error.clone()),
                None => Queued::TimedOut(member.station.bell.clone()),
            },
            Call::Closed if member.give_up(&seat) => Queued::Closed,
            _ => Queued::Head(Head { member, stood: true, relay: seat.relay.clone() }),
        }
    }

    fn enter(&self, name: &Arc<str>) -> Member<'_> {
        let mut map = self.map.lock();
        let station = map.entry(name).clone();
        station.line.lock().members += 1;
        drop(map);
        Member { stations: self, station, name: name.clone(), alone: false }
    }

    fn leave(&self, name: &Arc<str>, station: &Station) {
        let mut map = self.map.lock();
        let mut line = station.line.lock();
        line.members -= 1;
        if line.members == 0 && line.turns.last.is_none() {
            drop(line);
            map.stations.remove(name);
        }
    }

    /// The try of the head of the line, to be sent behind the release that is about to go out.
    pub(crate) fn take_relay(&self, name: &str) -> Option<TakenRelay> {
        let map = self.map.lock();
        let relay = map.get(name)?.take_relay()?;
        Some(TakenRelay::new(relay, None))
    }

    /// The try of a waiter that queues in Redis, if it is one of ours and sleeps.
    pub(crate) fn take_relay_of(&self, holder: &str) -> Option<TakenRelay> {
        let alone = self.alone.lock();
        let station = alone.get(holder)?;
        let relay = station.take_relay()?;
        Some(TakenRelay::new(relay, Some(station.bell.clone())))
    }

    /// The server has answered one who came: the head of the line need not wait to try again.
    pub(crate) fn outage_is_over(&self, name: &str) {
        let station = self.map.lock().get(name).cloned();
        if let Some(station) = station {
            station.line.lock().outage = None;
            station.bell.ring();
        }
    }

    /// How many messages the waiters of a name have heard; `None` when there never were any.
    pub(crate) fn messages(&self, name: &str) -> Option<u64> {
        self.map.lock().get(name).map(|station| station.bell.messages())
    }

    /// The lock was released by a thread of this client: its own head need not wait for the message. `others` is how
    /// many other clients listen (a hint: those that are reconnecting do not show), and `heard` the messages that will
    /// have been heard once that of this release is.
    pub(crate) fn released(&self, name: &Arc<str>, others: u64, heard: u64) {
        let mut map = self.map.lock();
        let station = match map.get(name) {
            Some(station) => station.clone(),
            None if others > 0 => map.entry(name).clone(),
            None => return,
        };
        let mut line = station.line.lock();
        if others == 0 {
            line.turns.in_a_row = 0;
            line.turns.last = None;
            if line.members == 0 {
                drop(line);
                map.stations.remove(name);
                return;
            }
        } else {
            if line.turns.in_a_row == 0 {
                line.turns.first = Some(Instant::now());
            }
            line.turns.in_a_row += 1;
            line.turns.heard = heard;
            line.turns.last = Some(Instant::now());
        }
        drop(line);
        drop(map);
        station.bell.ring();
    }

    /// A release of this client is over without its having freed the lock for sure: the head looks again.
    pub(crate) fn ring(&self, name: &str) {
        let station = self.map.lock().get(name).cloned();
        if let Some(station) = station {
            station.bell.ring();
        }
    }

    /// Wakes everybody, in line and at the head, for good: the client is closed.
    pub(crate) fn close(&self) {
        let all: Vec<_> = self.map.lock().stations.values().cloned().collect();
        for station in all {
            station.line.lock().seats.iter().for_each(|seat| seat.call(Call::Closed));
            station.bell.ring();
        }
    }
}

impl Station {
    fn take_relay(&self) -> Option<Arc<Relay>> {
        let relay = self.line.lock().relay.take()?;
        relay.take();
        Some(relay)
    }
}

impl Head<'_> {
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.member.station.bell
    }

    /// Leaves a try with the line and waits for a ring, at most for `patience`. `None`: nobody took the try.
    pub(crate) fn wait_with(&self, relay: &Arc<Relay>, patience: Duration) -> Option<Relayed> {
        self.member.station.line.lock().relay = Some(relay.clone());
        // Left first, looked second: a release before this has rung already, one after it takes the try along.
        self.member.station.bell.wait(patience);
        let untouched = self.member.station.line.lock().relay.take().is_some();
        // Whoever took it is bounded by the I/O timeouts.
        if untouched { None } else { Some(relay.wait()) }
    }

    /// What became of the try that this head left while it stood in line. `None`: nobody took it, and nobody will.
    pub(crate) fn collect(&mut self) -> Option<Relayed> {
        let relay = self.relay.take()?;
        // Either it is still there, or it was never put there because a turn is owed, or somebody took it.
        let mut line = self.member.station.line.lock();
        let untouched = line.relay.take().is_some();
        drop(line);
        if untouched || !relay.is_taken() { None } else { Some(relay.wait()) }
    }

    /// Since when the line has been in an outage, with this error the latest word of it.
    pub(crate) fn outage_goes_on(&self, error: &Error) -> Instant {
        let mut line = self.member.station.line.lock();
        let since = line.outage.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        line.outage = Some((since, error.clone()));
        since
    }

    pub(crate) fn outage_is_over(&self) {
        self.bell().answered();
        self.member.station.line.lock().outage = None;
    }

    /// True once this client has had the lock often enough in a row, with others waiting, that one of them is due.
    pub(crate) fn owes_a_turn(&self) -> bool {
        self.member.station.line.lock().turns.is_owed()
    }

    /// Lets others try first, until one of them has released the lock or [`OFFER`] is over.
    pub(crate) fn offer_a_turn(&self, patience: Duration) {
        let heard = self.member.station.line.lock().turns.heard;
        let taken = self.member.station.bell.wait_for_message(heard + 1, OFFER.min(patience));
        let mut line = self.member.station.line.lock();
        line.turns.in_a_row = 0;
        line.turns.bound = if taken { FIRST_BOUND } else { (line.turns.bound * 2).min(LAST_BOUND) };
    }
}

impl Drop for Head<'_> {
    fn drop(&mut self) {
        let mut line = self.member.station.line.lock();
        line.relay = None;
        match line.seats.pop_front() {
            Some(next) => {
                if !line.turns.is_owed() {
                    line.relay.clone_from(&next.relay);
                }
                next.call(Call::Head);
            }
            None => line.head = false,
        }
    }
}

impl Member<'_> {
    /// Leaves the line unless the role of the head was handed to this seat already (false).
    fn give_up(&self, seat: &Arc<Seat>) -> bool {
        let mut line = self.station.line.lock();
        let place = line.seats.iter().position(|other| Arc::ptr_eq(other, seat));
        place.map(|at| line.seats.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Acquire, TokenRule, Waiting};

    fn relay() -> Option<Relay> {
        let holder = crate::base::holder::ClientId::random(Duration::from_secs(5)).fresh_holder();
        let (lease, token, waiting) = (Duration::from_secs(1), TokenRule::Off, Waiting::No);
        Some(Relay::new(&Acquire { keys: &keys(), holder: &holder, lease, held: 0, token, waiting }))
    }

    fn keys() -> LockKeys {
        LockKeys::new("", "n", crate::base::key::Kind::Mutex).unwrap()
    }

    #[test]
    fn the_role_passes_in_order_and_the_station_goes_with_its_last_member() {
        let stations = Stations::default();
        let Queued::Head(first) = stations.queue(&keys(), Deadline::Never, relay) else { panic!() };
        assert!(!first.stood && stations.has_line("n"));
        std::thread::scope(|s| {
            let second = s.spawn(|| match stations.queue(&keys(), Deadline::Never, relay) {
                Queued::Head(head) => head.stood && head.relay.is_some(),
                _ => false,
            });
            while first.member.station.line.lock().seats.is_empty() {
                std::thread::yield_now();
            }
            let short = Deadline::after(Instant::now(), Duration::from_millis(1));
            assert!(matches!(stations.queue(&keys(), short, relay), Queued::TimedOut(_)));
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(stations.map.lock().stations.is_empty());
    }

    #[test]
    fn closing_wakes_those_in_line() {
        let stations = Stations::default();
        let Queued::Head(first) = stations.queue(&keys(), Deadline::Never, relay) else { panic!() };
        std::thread::scope(|s| {
            let second = s.spawn(|| matches!(stations.queue(&keys(), Deadline::Never, relay), Queued::Closed));
            while first.member.station.line.lock().seats.is_empty() {
                std::thread::yield_now();
            }
            stations.close();
            assert!(second.join().unwrap());
        });
    }

    #[test]
    fn unused_stations_are_swept_also_by_a_client_that_only_tries() {
        let stations = Stations::default();
        for n in 0..10_000 {
            stations.released(&format!("n{n}").into(), 1, 0);
            if n == 1_000 {
                let long_ago = Instant::now().checked_sub(2 * MEMORY);
                stations.map.lock().stations.values().for_each(|station| station.line.lock().turns.last = long_ago);
            }
        }
        let map = stations.map.lock();
        assert!(
            map.stations.len() < 9_900 && map.after_sweep >= SWEEP_AT,
            "{} and {}",
            map.stations.len(),
            map.after_sweep
        );
    }

    #[test]
    fn a_turn_is_owed_after_a_run_with_others_waiting() {
        let stations = Stations::default();
        let name: Arc<str> = "n".into();
        for _ in 0..FIRST_BOUND {
            stations.released(&name, 1, 0);
        }
        let Queued::Head(head) = stations.queue(&keys(), Deadline::Never, relay) else { panic!() };
        assert!(head.owes_a_turn());
        head.offer_a_turn(Duration::from_millis(1));
        assert!(!head.owes_a_turn());
        assert_eq!(head.member.station.line.lock().turns.bound, 2 * FIRST_BOUND);
        stations.released(&name, 0, 0);
        drop(head);
        assert!(stations.map.lock().stations.is_empty());
    }
}
