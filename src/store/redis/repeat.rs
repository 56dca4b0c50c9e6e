//! One request that may be repeated, and what becomes of earlier attempts of it.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::base::limits::IDEMPOTENCY_TTL;
use crate::store::UnknownOutcomes;
use crate::store::redis::script;
use crate::store::redis::wire::{Failure, Pool, Reply, Request, UnknownOutcome};

/// The requests whose connection failed under them. Each can still run until it is resolved: its connection killed at the
/// server, the server process gone, or its not-after passed.
type Unresolved = Vec<UnknownOutcome>;

pub(super) fn unknowns_of(unknowns: &UnknownOutcomes) -> &[UnknownOutcome] {
    unknowns.get::<Unresolved>().map_or(&[], |list| list)
}

pub(super) fn add_unknown(unknowns: &mut UnknownOutcomes, unknown: UnknownOutcome) {
    let mut list = unknowns_of(unknowns).to_vec();
    list.push(unknown);
    unknowns.set::<Unresolved>(list);
}

#[derive(Debug)]
pub(super) struct Repeater {
    pub(super) pool: Pool,
    clock: Arc<dyn Clock>,
}

pub(super) struct Answered {
    pub(super) reply: Reply,
    pub(super) sent_at: Moment,
    /// An earlier attempt may have run as well, on the data that answered now.
    pub(super) repeated: bool,
}

impl Repeater {
    pub(super) fn new(pool: Pool, clock: Arc<dyn Clock>) -> Self {
        Self { pool, clock }
    }

    /// Where nothing is unknown it goes through the pool; else it follows the kill of the earlier connections, on a
    /// connection of its own, so that no earlier attempt can run after it.
    pub(super) fn ask(&self, request: impl Fn() -> Request, unknowns: &mut UnknownOutcomes) -> Result<Answered> {
        if unknowns.is_empty() {
            let asked_at = self.clock.now();
            match self.pool.call(request()) {
                Ok(answer) => return Ok(Answered { reply: answer.reply, sent_at: answer.sent_at, repeated: false }),
                Err(Failure::NotSent(error)) => return Err(error),
                Err(Failure::Unknown { error, unknown, stale }) => {
                    add_unknown(unknowns, unknown);
                    // Long ago (the machine slept): what keeps a repeat from counting twice may be forgotten.
                    if !stale || self.clock.now().since(asked_at) > IDEMPOTENCY_TTL / 2 {
                        return Err(error);
                    }
                    // The connection had ended in its sleep (a restart, an idle timeout of the server): that says
                    // nothing about the server now, and the repeat below cannot meet the first attempt.
                }
            }
        }
        self.ask_again(request(), unknowns)
    }

    /// What changes nothing that a later run of it would spoil: no unknown outcome has to be remembered.
    pub(super) fn ask_freely(&self, request: impl Fn() -> Request) -> Result<Answered> {
        self.ask(request, &mut UnknownOutcomes::default())
    }

    fn ask_again(&self, request: Request, unknowns: &mut UnknownOutcomes) -> Result<Answered> {
        let mut connection = self.pool.connect()?;
        if let Err(wait) = connection.kills_for(unknowns_of(unknowns)) {
            // After an I/O timeout the earlier attempt is refused by its not-after; it is longer only if the server's clock
            // was stepped back, and for that no caller waits.
            std::thread::sleep(wait.min(self.pool.io_timeout()));
        }
        let mut requests = connection.kills_for(unknowns_of(unknowns)).map_err(not_yet)?;
        let kills = requests.len();
        requests.push(request);
        let repeated = unknowns_of(unknowns).iter().any(|unknown| connection.may_have_run(unknown));
        match connection.exchange(&requests) {
            Ok((mut replies, flight)) => {
                let reply = replies.pop().expect("a reply for every request");
                self.pool.adopt(connection);
                // With a kill refused, an earlier attempt can still run: as if this one had not been answered.
                for kill in replies.into_iter().take(kills) {
                    script::fail_on_error(kill)?;
                }
                Ok(Answered { reply, sent_at: flight.sent_at, repeated })
            }
            Err(Failure::NotSent(error)) => Err(error),
            Err(Failure::Unknown { error, unknown, .. }) => {
                add_unknown(unknowns, unknown);
                Err(error)
            }
        }
    }
}

/// An earlier attempt may still run at the server, and we may not kill its connection.
#[cold]
fn not_yet(wait: Duration) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("an earlier attempt can still reach the server for {wait:?}, and CLIENT KILL is not permitted"),
    )
}
