//! Requests that may be repeated: an earlier attempt must not run after a later one.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lease::Moment;
use crate::base::limits::IDEMPOTENCY_TTL;
use crate::store::UnknownOutcomes;
use crate::store::redis::script;
use crate::store::redis::wire::{Failure, Pool, Reply, Request, UnknownOutcome};

/// The requests whose connection failed before the reply. Each can still run until its connection
/// is killed at the server, the server process has ended, or its not-after has passed.
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

    /// Without unknown outcomes the request goes through the pool. Otherwise it goes out on a new
    /// connection, behind the kills of the earlier connections, so that no earlier attempt can run
    /// after it.
    pub(super) fn ask(&self, request: impl Fn() -> Request, unknowns: &mut UnknownOutcomes) -> Result<Answered> {
        if unknowns.is_empty() {
            let asked_at = self.clock.now();
            match self.pool.call(request()) {
                Ok(answer) => return Ok(Answered { reply: answer.reply, sent_at: answer.sent_at, repeated: false }),
                Err(Failure::NotSent(error)) => return Err(error),
                Err(Failure::Unknown { error, unknown, stale }) => {
                    add_unknown(unknowns, unknown);
                    // After a long time (the machine slept) the idempotency key may be gone, and a
                    // repeat could count twice.
                    if !stale || self.clock.now().since(asked_at) > IDEMPOTENCY_TTL / 2 {
                        return Err(error);
                    }
                    // The connection had ended while it was idle (a restart, an idle timeout of the
                    // server). That says nothing about the server now, so the request is repeated
                    // below.
                }
            }
        }
        self.ask_again(request(), unknowns)
    }

    /// For a request that does no harm when it runs late: its unknown outcome is not remembered.
    pub(super) fn ask_repeatable(&self, request: impl Fn() -> Request) -> Result<Answered> {
        self.ask(request, &mut UnknownOutcomes::default())
    }

    fn ask_again(&self, request: Request, unknowns: &mut UnknownOutcomes) -> Result<Answered> {
        let mut connection = self.pool.connect()?;
        if let Err(wait) = connection.kills_for(unknowns_of(unknowns)) {
            // After an I/O timeout the not-after of the earlier attempt refuses it. The wait is
            // longer only if the server's clock was stepped back, and no caller waits for that.
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
                // After a refused kill an earlier attempt can still run, so this reply does not
                // count.
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

#[cold]
fn not_yet(wait: Duration) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!("an earlier attempt can still reach the server for {wait:?}, and CLIENT KILL is not permitted"),
    )
}
