//! What the threads of a program believe, and what has happened to the things that they take. It
//! checks at each look that the beliefs go together.
//!
//! All threads are coroutines on one thread of the system, so this is a plain thread-local: guards
//! that are bound to a thread can be in it. It is never borrowed over a step of the scheduler.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use leasehold::os::{now, since};
use shuttle::current::{TaskId, me};

use super::guards::Guard;
use super::program::Client;
use super::text::name_of;

/// How long what a call has left behind may stay until it is removed in the background, and how
/// long the client may need to notify the holders that it has forced out itself.
pub(crate) const SOON: Duration = Duration::from_millis(100);

thread_local! {
    static LEDGER: RefCell<Ledger> = RefCell::default();
}

#[derive(Default)]
struct Ledger {
    believers: Vec<Rc<Believer>>,
    doubts: Vec<Doubt>,
    things: Vec<Traffic>,
    /// Their closes have begun: permits without leases are given back by them.
    closed: Vec<Client>,
    /// The threads on which a listener has blocked.
    blocked: Vec<TaskId>,
}

/// How a thing is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    Alone,
    Reader,
    /// So many of so many permits.
    Permits(u32, u32),
}

#[derive(Debug)]
pub(crate) struct Believer {
    pub(crate) things: Vec<usize>,
    pub(crate) share: Share,
    pub(crate) client: Client,
    /// When the call began that has taken it.
    pub(crate) began: Instant,
    /// How long it may believe after the store has lost the hold.
    pub(crate) lease: Duration,
    /// Whether the store has lost the hold, and no later call of the client could hide that.
    pub(crate) is_taken: Cell<bool>,
    pub(crate) guard: Guard,
}

/// The store has lost a hold, by force or by itself.
struct Doubt {
    thing: usize,
    /// The client that has forced it out, if that succeeded: its own threads know at once.
    by: Option<Client>,
    over: Option<Instant>,
}

/// Calls and holds of one thing.
#[derive(Default)]
struct Traffic {
    active: usize,
    last: Option<Instant>,
    last_token: u64,
}

fn with<T>(run: impl FnOnce(&mut Ledger) -> T) -> T {
    LEDGER.with(|ledger| run(&mut ledger.borrow_mut()))
}

pub(crate) fn begin(things: usize) {
    with(|ledger| {
        ledger.things = (0..things).map(|_| Traffic::default()).collect();
        ledger.doubts.clear();
        ledger.closed.clear();
        ledger.blocked.clear();
    });
}

/// After an execution that has failed: its guards must not be dropped outside of it.
pub(crate) fn forget() {
    std::mem::forget(LEDGER.with(RefCell::take));
}

/// A client is about to be closed.
pub(crate) fn closes(client: Client) {
    with(|ledger| ledger.closed.push(client));
}

/// A listener is about to block on this thread.
pub(crate) fn blocks() {
    with(|ledger| ledger.blocked.push(me()));
}

/// How often a listener has blocked on this thread.
pub(crate) fn blocked() -> u32 {
    with(|ledger| ledger.blocked.iter().filter(|thread| **thread == me()).count() as u32)
}

/// A call for these things begins.
pub(crate) fn call_begins(things: &[usize]) {
    with(|ledger| things.iter().for_each(|thing| ledger.things[*thing].active += 1));
}

/// A call, or the hold that it has taken, is over, and so is what it has left behind at `free`.
pub(crate) fn is_over(things: &[usize], free: Instant) {
    with(|ledger| {
        for thing in things {
            let traffic = &mut ledger.things[*thing];
            traffic.active -= 1;
            traffic.last = traffic.last.max(Some(free));
        }
    });
}

/// Since when nobody but the caller has asked for this thing or held it. `None`: somebody does now.
pub(crate) fn free_since(thing: usize) -> Option<Option<Instant>> {
    with(|ledger| (ledger.things[thing].active <= 1).then_some(ledger.things[thing].last))
}

/// The store is about to lose a hold of this thing.
pub(crate) fn doubt(thing: usize) -> usize {
    with(|ledger| {
        ledger.doubts.push(Doubt { thing, by: None, over: None });
        ledger.doubts.len() - 1
    })
}

/// The holds of this thing that are known now.
pub(crate) fn known(thing: usize) -> Vec<Rc<Believer>> {
    with(|ledger| {
        ledger.believers.iter().filter(|one| one.things.contains(&thing)).cloned().collect()
    })
}

pub(crate) fn doubt_is_over(doubt: usize, by: Option<Client>) {
    let over = now();
    with(|ledger| {
        let doubt = &mut ledger.doubts[doubt];
        (doubt.by, doubt.over) = (by, Some(over));
    });
}

impl Doubt {
    fn excuses(&self, one: &Believer) -> bool {
        let Some(over) = self.over else { return one.things.contains(&self.thing) };
        // A reader may join the lost hold for 4 ms, and a turn may pass on for 16 ms.
        let told = if self.by == Some(one.client) { SOON } else { one.lease + SOON };
        one.things.contains(&self.thing) && one.began <= over + SOON && since(over) < told
    }
}

fn is_excused(one: &Believer) -> bool {
    let was_given_back = |ledger: &Ledger| {
        matches!(one.guard, Guard::Counted(_)) && ledger.closed.contains(&one.client)
    };
    with(|ledger| was_given_back(ledger) || ledger.doubts.iter().any(|doubt| doubt.excuses(one)))
}

impl Believer {
    fn meets(&self, other: &Self) -> bool {
        let shares = self.things.iter().any(|thing| other.things.contains(thing));
        shares && !(self.share == Share::Reader && other.share == Share::Reader)
    }

    /// Enters a hold that was just granted, and looks.
    pub(crate) fn enter(self, token: Option<u64>) -> Rc<Self> {
        let believer = Rc::new(self);
        with(|ledger| ledger.believers.push(believer.clone()));
        if let (Some(token), [thing]) = (token, &*believer.things) {
            let last = with(|ledger| {
                let traffic = &mut ledger.things[*thing];
                let last = traffic.last_token;
                traffic.last_token = last.max(token);
                last
            });
            let is_late = token <= last && believer.guard.is_held() && !is_excused(&believer);
            assert!(!is_late, "{}: token {token} was granted after {last}", name_of(*thing));
        }
        believer.look();
        believer
    }

    /// Checks that no other guard believes while this one does.
    pub(crate) fn look(&self) {
        let met: Vec<_> = with(|ledger| {
            let others = ledger.believers.iter().filter(|other| !std::ptr::eq(&***other, self));
            others.filter(|other| self.meets(other)).cloned().collect()
        });
        // A guard that believes now has done so since it was returned, which was before the others
        // were asked.
        if let Share::Permits(own, most) = self.share {
            let taken = |other: &Rc<Self>| match other.share {
                Share::Permits(taken, _) if other.guard.is_held() && !is_excused(other) => taken,
                _ => 0,
            };
            let others: u32 = met.iter().map(taken).sum();
            let too_many = others + own > most && self.guard.is_held() && !is_excused(self);
            return assert!(!too_many, "more than {most} permits: {:?} beside {met:?}", self.guard);
        }
        for other in met {
            let both = other.guard.is_held() && self.guard.is_held();
            assert!(
                !both || is_excused(&other) || is_excused(self),
                "two believe: {:?} and {:?}",
                self.guard,
                other.guard
            );
        }
    }

    /// Takes the guard back.
    pub(crate) fn leave(self: Rc<Self>) -> Self {
        with(|ledger| ledger.believers.retain(|known| !Rc::ptr_eq(known, &self)));
        let mut believer = self;
        loop {
            match Rc::try_unwrap(believer) {
                Ok(alone) => return alone,
                // Another thread looks at it.
                Err(shared) => {
                    leasehold::os::thread::sleep(Duration::from_micros(20));
                    believer = shared;
                }
            }
        }
    }
}
