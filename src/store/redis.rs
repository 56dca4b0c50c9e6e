//! Leases on one Redis server.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Acquire, Acquired, Doubts, HandedOver, LeaseStore, Released, Renewal, Renewed, Undo};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::holder::Holder;
use crate::key::LockKeys;
use crate::lease::Moment;
use crate::script::{self, AcquireAnswer, FenceAnswer, ReleaseAnswer, RenewAnswer, Standing};
use crate::wire::{Dialer, Doubt, Ear, Failure, Link, Mouth, Pool, Reply, Request};

/// Holds renewed by one run of the script: a script keeps the server from everybody else while it runs.
const RENEW_CHUNK: usize = 200;
/// Undos settled in one write.
const SETTLE_CHUNK: usize = 200;

#[derive(Debug)]
pub(crate) struct RedisStore {
    pool: Pool,
    background: Background,
    clock: Arc<dyn Clock>,
}

/// The connection of the watchdog thread: renewals must not queue behind the locks' own traffic.
struct Background {
    dialer: Dialer,
    link: Mutex<Option<Link>>,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background").field("endpoint", &self.dialer.endpoint).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// `background` may have a shorter I/O timeout than `foreground`.
    pub(crate) fn new(foreground: Dialer, connections: usize, background: Dialer) -> Self {
        let clock = foreground.clock.clone();
        Self {
            pool: Pool::new(foreground, connections),
            background: Background { dialer: background, link: Mutex::new(None) },
            clock,
        }
    }

    /// Connects once, which also checks the server and what the user may do there.
    pub(crate) fn check(&self) -> Result<()> {
        let link = self.pool.dial()?;
        self.pool.adopt(link);
        Ok(())
    }

    /// The connections that serve a key. One server has one pool; a cluster will choose by slot.
    fn pool_of(&self, _keys: &LockKeys) -> &Pool {
        &self.pool
    }

    /// One repeatable request. Without doubts it goes through the pool; with doubts it follows their settlement on a
    /// connection of its own, so that nothing in doubt can run after it.
    fn ask(&self, keys: &LockKeys, request: impl Fn() -> Request, doubts: &mut Doubts) -> Result<Answered> {
        self.ask_through(self.pool_of(keys), request, doubts)
    }

    fn ask_through(&self, pool: &Pool, request: impl Fn() -> Request, doubts: &mut Doubts) -> Result<Answered> {
        if doubts.is_empty() {
            match pool.call(request()) {
                Ok(answer) => return Ok(Answered { reply: answer.reply, sent_at: answer.sent_at, repeated: false }),
                Err(Failure::NotSent(error)) => return Err(error),
                Err(Failure::InDoubt { error, doubt, stale }) => {
                    doubts.push(doubt);
                    if !stale {
                        return Err(error);
                    }
                    // The connection had ended in its sleep (a restart, an idle timeout of the server): that says
                    // nothing about the server now, and the repeat below cannot meet the first attempt.
                }
            }
        }
        self.ask_again(pool, request(), doubts)
    }

    fn ask_again(&self, pool: &Pool, request: Request, doubts: &mut Doubts) -> Result<Answered> {
        let mut link = pool.dial()?;
        if let Err(wait) = link.kills_for(doubts.iter()) {
            // After an I/O timeout the earlier attempt is refused by its not-after; it is longer only if the server's clock
            // was stepped back, and for that no caller waits.
            std::thread::sleep(wait.min(pool.io_timeout()));
        }
        let mut requests = link.kills_for(doubts.iter()).map_err(not_yet)?;
        let kills = requests.len();
        requests.push(request);
        let repeated = doubts.iter().any(|doubt| link.may_have_run(doubt));
        match link.exchange(&requests) {
            Ok((mut replies, flight)) => {
                let reply = replies.pop().expect("a reply for every request");
                pool.adopt(link);
                // With a kill refused, what is in doubt can still run: as if this attempt had not been answered.
                for kill in replies.into_iter().take(kills) {
                    script::fail_on_error(kill)?;
                }
                Ok(Answered { reply, sent_at: flight.sent_at, repeated })
            }
            Err(Failure::NotSent(error)) => Err(error),
            Err(Failure::InDoubt { error, doubt, .. }) => {
                doubts.push(doubt);
                Err(error)
            }
        }
    }

    /// What changes nothing that a later run of it would spoil: no doubt has to be remembered.
    fn ask_freely(&self, keys: &LockKeys, request: impl Fn() -> Request) -> Result<Answered> {
        self.ask(keys, request, &mut Doubts::default())
    }
}

struct Answered {
    reply: Reply,
    sent_at: Moment,
    /// An earlier attempt may have run as well, on the data that answered now.
    repeated: bool,
}

/// An earlier attempt may still run at the server, and we may not kill its connection.
#[cold]
fn not_yet(wait: Duration) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("an earlier attempt can still reach the server for {wait:?}, and CLIENT KILL is not permitted"),
    )
}

impl LeaseStore for RedisStore {
    fn acquire(&self, acquire: &Acquire<'_>, doubts: &mut Doubts) -> Result<Acquired> {
        let Acquire { keys, holder, lease, held, token } = *acquire;
        let answered = self.ask(keys, || script::acquire(keys, holder, lease, held, token), doubts)?;
        let outcome = acquired(answered.reply, answered.sent_at);
        // Only an answer about the lock settles the earlier attempts: with an error (a full server, say) what they did
        // still stands.
        if outcome.is_ok() {
            doubts.clear();
        }
        outcome
    }

    fn release(&self, keys: &LockKeys, holder: &Holder, held: u32, doubts: &mut Doubts) -> Result<Released> {
        let Answered { reply, repeated, .. } = self.ask(keys, || script::release(keys, holder, held), doubts)?;
        // Inner levels leave the field where it is: if it is not there, no earlier attempt took it.
        let outcome = released(reply, repeated && held == 1);
        if outcome.is_ok() {
            doubts.clear();
        }
        outcome
    }

    fn hand_over(&self, holder: &Holder, doubts: &mut Doubts, next: &Acquire<'_>) -> Option<HandedOver> {
        let keys = next.keys;
        let release = script::release(keys, holder, 1);
        let acquire = script::acquire(keys, next.holder, next.lease, next.held, next.token);
        let (first, second) = self.pool_of(keys).call_two(&release, &acquire)?;
        let mut next_doubts = Doubts::default();
        let acquired = match second {
            Ok(answer) => acquired(answer.reply, answer.sent_at),
            Err(Failure::NotSent(error)) => Err(error),
            Err(Failure::InDoubt { error, doubt, .. }) => {
                next_doubts.push(doubt);
                Err(error)
            }
        };
        let released = match first {
            Ok(answer) => released(answer.reply, false),
            Err(Failure::NotSent(error)) => Err(error),
            Err(Failure::InDoubt { error, doubt, stale }) => {
                doubts.push(doubt);
                if stale { self.release(keys, holder, 1, doubts) } else { Err(error) }
            }
        };
        Some(HandedOver { released, acquired, doubts: next_doubts })
    }

    fn renew(&self, batch: &[Renewal]) -> Vec<Renewed> {
        let requests: Vec<Request> = batch.chunks(RENEW_CHUNK).map(renewal_request).collect();
        let mut outcomes = Vec::with_capacity(batch.len());
        match self.background.exchange(&requests) {
            Ok((replies, sent_at)) => {
                for (chunk, reply) in batch.chunks(RENEW_CHUNK).zip(replies) {
                    extend_outcomes(&mut outcomes, chunk.len(), script::renew_answers(reply), sent_at);
                }
            }
            Err(error) => outcomes.extend(batch.iter().map(|_| Renewed::Failed(error.clone()))),
        }
        outcomes
    }

    fn settle(&self, undos: &mut Vec<Undo>) {
        let mut kept = Vec::new();
        let chunk: Vec<Undo> = undos.drain(..undos.len().min(SETTLE_CHUNK)).collect();
        match self.background.settle(&chunk) {
            Ok(done) => {
                for (mut undo, settled) in chunk.into_iter().zip(done) {
                    match settled {
                        Settled::Done => continue,
                        // Refused, for want of permission, say: from here on its lease ends it.
                        Settled::NothingUnderWay => undo.doubts.clear(),
                        Settled::NotYet => {}
                    }
                    kept.push(undo);
                }
            }
            Err(error) => {
                log::debug!("{} unknown outcomes cannot be settled yet: {error}", chunk.len() + undos.len());
                kept.extend(chunk);
            }
        }
        kept.append(undos);
        let now = self.clock.now();
        // Without a doubt the lease has ended by itself. With one, the request may still lie in the buffer of a
        // stalled server, however long that takes.
        kept.retain(|undo| !undo.doubts.is_empty() || now < undo.expires);
        *undos = kept;
    }

    fn extend(&self, renewal: &Renewal) -> Result<Renewed> {
        let request = || renewal_request(std::slice::from_ref(renewal));
        let Answered { reply, sent_at, .. } = self.ask_freely(&renewal.keys, request)?;
        match script::renew_answers(reply)?.pop() {
            Some(RenewAnswer::Held) => Ok(Renewed::Held { sent_at }),
            Some(RenewAnswer::Gone) => Ok(Renewed::Gone),
            Some(RenewAnswer::Failed(error)) => Err(error),
            None => Err(Error::new(ErrorKind::Protocol, "an empty answer to a renewal")),
        }
    }

    fn inspect(&self, keys: &LockKeys) -> Result<Option<Standing>> {
        script::inspect_answer(self.ask_freely(keys, || script::inspect(keys))?.reply)
    }

    fn force_unlock(&self, keys: &LockKeys) -> Result<bool> {
        match self.pool_of(keys).call(script::force_unlock(keys)) {
            Ok(answer) => script::force_unlock_answer(answer.reply),
            Err(Failure::NotSent(error) | Failure::InDoubt { error, .. }) => Err(error),
        }
    }

    fn listen(&self, read_timeout: Duration) -> Result<(Ear, Mouth)> {
        self.background.dialer.listen(read_timeout)
    }

    fn fence_claim(&self, key: &str, token: u64) -> Result<FenceAnswer> {
        let request = || script::fence_claim(key, token);
        script::fence_answer(self.ask_through(&self.pool, request, &mut Doubts::default())?.reply)
    }

    fn fence_write(&self, key: &str, token: u64, value: &[u8], doubts: &mut Doubts) -> Result<FenceAnswer> {
        let request = || script::fence_write(key, token, value);
        let answer = script::fence_answer(self.ask_through(&self.pool, request, doubts)?.reply);
        if answer.is_ok() {
            doubts.clear();
        }
        answer
    }

    fn close(&self) {
        self.pool.close();
        // A renewal under way keeps its connection until it is answered; the thread that waits for it drops it.
        if let Some(mut link) = self.background.link.try_lock() {
            *link = None;
        }
    }
}

fn acquired(reply: Reply, sent_at: Moment) -> Result<Acquired> {
    match script::acquire_answer(reply)? {
        AcquireAnswer::Granted { token } => Ok(Acquired::Granted { token, sent_at }),
        AcquireAnswer::Busy { ttl } => Ok(Acquired::Busy { ttl }),
        AcquireAnswer::Gone => Ok(Acquired::Gone),
        AcquireAnswer::TooLate => {
            Err(Error::new(ErrorKind::Unreachable, "the request reached the server after the I/O timeout"))
        }
    }
}

/// `repeated`: an earlier attempt of the same release may have run on the data that answered now.
fn released(reply: Reply, repeated: bool) -> Result<Released> {
    match script::release_answer(reply)? {
        // The attempt whose reply was lost did it. After a restart one cannot say that: the hold may have been lost with
        // the data, and a false alarm is better than none.
        ReleaseAnswer::NotHeld if repeated => Ok(Released::Freed { listeners: 0 }),
        ReleaseAnswer::NotHeld => Ok(Released::NotHeld),
        ReleaseAnswer::Level => Ok(Released::Level),
        ReleaseAnswer::Freed { receivers } => Ok(Released::Freed { listeners: receivers }),
    }
}

fn renewal_request(chunk: &[Renewal]) -> Request {
    script::renew(chunk.iter().map(|r| (&*r.keys, &r.holder, r.lease)))
}

fn extend_outcomes(outcomes: &mut Vec<Renewed>, count: usize, answers: Result<Vec<RenewAnswer>>, sent_at: Moment) {
    let due = outcomes.len() + count;
    match answers {
        Ok(answers) => outcomes.extend(answers.into_iter().take(count).map(|answer| match answer {
            RenewAnswer::Held => Renewed::Held { sent_at },
            RenewAnswer::Gone => Renewed::Gone,
            RenewAnswer::Failed(error) => Renewed::Failed(error),
        })),
        Err(error) => outcomes.extend((0..count).map(|_| Renewed::Failed(error.clone()))),
    }
    while outcomes.len() < due {
        outcomes.push(Renewed::Failed(Error::new(ErrorKind::Protocol, "an answer to a renewal is missing")));
    }
}

impl Background {
    fn exchange(&self, requests: &[Request]) -> Result<(Vec<Reply>, Moment)> {
        let mut place = self.link.lock();
        let mut link = self.take_or_dial(&mut place)?;
        match self.send(&mut link, requests) {
            Ok((replies, sent_at)) => {
                if !replies.iter().any(Reply::is_demotion) {
                    *place = Some(link);
                }
                Ok((replies, sent_at))
            }
            Err(Failure::NotSent(error) | Failure::InDoubt { error, .. }) => Err(error),
        }
    }

    fn take_or_dial(&self, place: &mut Option<Link>) -> Result<Link> {
        match place.take() {
            Some(link) => Ok(link),
            None => self.dialer.dial(),
        }
    }

    /// A connection that ended in its sleep gets one successor: everything sent here may be repeated at any time.
    fn send(&self, link: &mut Link, requests: &[Request]) -> std::result::Result<(Vec<Reply>, Moment), Failure> {
        link.mark_idle();
        let outcome = match link.exchange(requests) {
            Err(Failure::InDoubt { stale: true, .. }) => {
                *link = self.dialer.dial().map_err(Failure::NotSent)?;
                link.exchange(requests)
            }
            outcome => outcome,
        };
        outcome.map(|(replies, flight)| (replies, flight.sent_at))
    }

    /// Kills the connections in doubt, then releases, in one write.
    fn settle(&self, undos: &[Undo]) -> Result<Vec<Settled>> {
        let mut place = self.link.lock();
        // Always a fresh connection: its handshake tells which process of the server answers now.
        *place = None;
        let mut link = self.dialer.dial()?;
        let mut requests = Vec::new();
        // One kill for each connection in doubt, and where in `requests` it stands; none where none is needed.
        let mut kills: Vec<(&Doubt, Option<usize>)> = Vec::new();
        let mut plans = Vec::with_capacity(undos.len());
        for undo in undos {
            let mut plan = Plan { ready: true, kills: Vec::new() };
            for doubt in undo.doubts.iter() {
                let known = kills.iter().find(|(other, _)| other.same_connection(doubt)).map(|(_, at)| *at);
                let at = match known {
                    Some(at) => at,
                    None => match link.kills_for(std::iter::once(doubt)) {
                        Ok(kill) => {
                            let at = (!kill.is_empty()).then_some(requests.len());
                            requests.extend(kill);
                            kills.push((doubt, at));
                            at
                        }
                        Err(_) => {
                            plan.ready = false;
                            None
                        }
                    },
                };
                plan.kills.extend(at);
            }
            plans.push(plan);
        }
        let first_release = requests.len();
        // Held = 1 removes the hold whatever count stands there.
        let releases = undos.iter().zip(&plans).filter(|(_, plan)| plan.ready);
        requests.extend(releases.map(|(undo, _)| script::release(&undo.keys, &undo.holder, 1)));
        if requests.is_empty() {
            return Ok(undos.iter().map(|_| Settled::NotYet).collect());
        }
        let (replies, _) = match link.exchange(&requests) {
            Ok(done) => done,
            Err(Failure::NotSent(error) | Failure::InDoubt { error, .. }) => return Err(error),
        };
        *place = Some(link);
        let mut releases = replies[first_release..].iter();
        Ok(plans
            .into_iter()
            .map(|plan| {
                if !plan.ready {
                    return Settled::NotYet;
                }
                let released = releases.next().is_some_and(|reply| script::release_answer(reply.clone()).is_ok());
                let killed = plan.kills.iter().all(|at| matches!(replies[*at], Reply::Int(_)));
                match (killed, released) {
                    (true, true) => Settled::Done,
                    (true, false) => Settled::NothingUnderWay,
                    (false, _) => Settled::NotYet,
                }
            })
            .collect())
    }
}

/// How far an undo has come.
enum Settled {
    Done,
    /// Nothing of it can run any more, but the release was refused.
    NothingUnderWay,
    NotYet,
}

/// What one undo needs before its release may be believed.
struct Plan {
    /// Every doubt can be settled now.
    ready: bool,
    /// The kills whose replies must not be errors.
    kills: Vec<usize>,
}
