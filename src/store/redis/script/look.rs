//! What is under a name, whatever its kind.

use std::time::Duration;

use super::{NAME_LOOK, fail_on_error, unexpected};
use crate::base::advice::Advice;
use crate::base::data::HoldData;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::lock_name::{Kind, LockName};
use crate::store::redis::keys::{RedisKeys, channel_of};
use crate::store::redis::wire::{Reply, Request};
use crate::store::{Found, FoundHolder, FoundWaiter, MOST_LISTED};

/// The name of the first key is that of `name`, whatever its kind.
pub(crate) fn look(name: &LockName) -> Request {
    let keys = RedisKeys::of(name);
    let queue = keys.queue();
    let deadlines = keys.deadlines();
    let marker = keys.marker();
    let leases = keys.leases();
    let opened = keys.opened();
    let data = keys.data();
    let names = [keys.lock, keys.token, &queue, &deadlines, &marker, &leases, &opened, &data];
    let names = names.map(str::as_bytes);
    let request = Request::script(&NAME_LOOK, &names).arg(keys.tag).number(MOST_LISTED as u64);
    CHANNELS.iter().fold(request, |request, kind| request.arg(channel_of(*kind, &name.key)))
}

/// One kind for each form of channel.
const CHANNELS: [Kind; 4] = [Kind::Mutex, Kind::Read, Kind::Semaphore, Kind::Latch];

/// What is there. `by_name`: it was asked for by its name, so anything that may be a lock is taken
/// for one; otherwise only what nothing but a lock looks like.
///
/// # Errors
/// `WrongType`: it was asked for by its name, and something else has that name.
pub(crate) fn look_answer(reply: Reply, key: &str, by_name: bool) -> Result<Option<Found>> {
    let seen = Seen::read(fail_on_error(reply)?)
        .ok_or_else(|| unexpected("a look at a name", "no list of its parts"))?;
    let Some(kind) = seen.kind(by_name) else {
        if by_name && matches!(seen.what, What::Lock | What::ReadWrite | What::Else) {
            let why = "something other than a lock, semaphore, latch or rate limiter has this name";
            return Err(Error::new(ErrorKind::WrongType, why).advise(Advice::ChooseName));
        }
        let number = seen.number.filter(|_| by_name);
        let unknown = Found { kind: None, number, ..Found::new(key, Kind::Latch) };
        return Ok(number.map(|_| unknown));
    };
    let listeners = seen.listeners_of(kind);
    let mut found = Found { token: seen.token, waiting: listeners, ..Found::new(key, kind) };
    match kind {
        Kind::Semaphore => {
            // Permits whose lease has ended are free: the next acquire returns them.
            found.number = seen.number.map(|free| free.saturating_add(seen.ended));
            let held = seen.permits.into_iter().filter(|(_, left)| *left != Some(Duration::ZERO));
            found.holders = acquisitions(&held.collect::<Vec<_>>());
            found.unlisted = seen.unlisted;
        }
        Kind::Latch | Kind::CountingSemaphore => found.number = seen.number,
        Kind::Read | Kind::Write => {
            found.holders = seen.holders;
            found.unlisted = seen.unlisted;
            // The marker is set before its writer listens, and is visible to a user who may not ask
            // for listeners.
            let writers = seen.writer_waits.then_some(1);
            found.waiting = listeners.max(writers);
        }
        Kind::RateLimiter | Kind::Job | Kind::Done => unreachable!("it is not looked for"),
        Kind::Mutex | Kind::Fair => {
            found.holders = seen.holders;
            found.waiting = if kind.has_queue() { Some(seen.length) } else { listeners };
            found.queue = seen.queue;
        }
    }
    Ok(Some(found))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Nothing,
    Lock,
    ReadWrite,
    Number,
    Else,
}

/// The parts of the reply.
struct Seen {
    what: What,
    is_written: bool,
    /// Whether the id and the count of every holder look like those of a holder.
    looks_held: bool,
    /// Whether every count is a number above zero.
    has_counts: bool,
    holders: Vec<FoundHolder>,
    number: Option<i64>,
    token: Option<u64>,
    length: u64,
    queue: Vec<FoundWaiter>,
    writer_waits: bool,
    unlisted: u64,
    /// Permits whose lease has ended.
    ended: i64,
    permits: Vec<(Vec<u8>, Option<Duration>)>,
    was_opened: bool,
    /// How many clients listen on each of the channels; empty if the user may not ask.
    listeners: Vec<u64>,
}

impl Seen {
    /// `None`: not an answer of this script.
    fn read(reply: Reply) -> Option<Self> {
        let parts: [Reply; 13] = reply.into_list()?.try_into().ok()?;
        let [
            what,
            number,
            holders,
            token,
            length,
            queue,
            marker,
            unlisted,
            ended,
            permits,
            opened,
            listeners,
            data,
        ] = parts;
        let integer = |reply: &Reply| if let Reply::Int(n) = reply { Some(*n) } else { None };
        let mut what = match integer(&what)? {
            0 => What::Nothing,
            1 => What::Lock,
            2 => What::ReadWrite,
            3 => What::Number,
            _ => What::Else,
        };
        let number = text(&number).and_then(|number| number.parse().ok());
        if what == What::Number && number.is_none() {
            what = What::Else;
        }
        let (mut is_written, mut looks_held, mut has_counts, mut found) =
            (false, true, true, Vec::new());
        for [field, value, left] in groups(holders.into_list()?)? {
            let field = bytes(field)?;
            let value = text(&value)?;
            if field == b"mode" {
                is_written = value == "write";
                continue;
            }
            let count = value.parse::<u64>().ok().filter(|count| *count > 0);
            has_counts &= count.is_some();
            looks_held &= count.is_some() && looks_like_a_holder(&field);
            let id = String::from_utf8_lossy(&field).into_owned();
            found.push(FoundHolder {
                id,
                count: count.unwrap_or(1),
                left: time_left(integer(&left)?),
                data: None,
            });
        }
        if let (Reply::Bytes(data), [only]) = (&data, &mut found[..]) {
            only.data = Some(HoldData::new(data));
        }
        let mut queued = Vec::new();
        for [waiter, left] in groups(queue.into_list()?)? {
            let id = String::from_utf8_lossy(&bytes(waiter)?).into_owned();
            queued.push(FoundWaiter { id, left: time_left(integer(&left)?) });
        }
        let permits = groups(permits.into_list()?)?.into_iter();
        let permits =
            permits.map(|[permit, left]| Some((bytes(permit)?, time_left(integer(&left)?))));
        Some(Self {
            what,
            is_written,
            looks_held,
            has_counts,
            holders: found,
            number,
            token: text(&token).and_then(|token| token.parse().ok()),
            length: u64::try_from(integer(&length)?).ok()?,
            queue: queued,
            writer_waits: integer(&marker)? > 0,
            // With a server clock in fractions of a millisecond, one might be counted twice.
            unlisted: u64::try_from(integer(&unlisted)?).unwrap_or(0),
            ended: integer(&ended)?,
            permits: permits.collect::<Option<_>>()?,
            was_opened: integer(&opened)? == 1,
            listeners: listeners
                .into_list()?
                .iter()
                .map(|one| u64::try_from(integer(one)?).ok())
                .collect::<Option<_>>()?,
        })
    }

    fn listeners_of(&self, kind: Kind) -> Option<u64> {
        let place = match kind {
            Kind::Mutex | Kind::Fair => 0,
            Kind::Read | Kind::Write => 1,
            Kind::Semaphore | Kind::CountingSemaphore => 2,
            Kind::Latch => 3,
            Kind::RateLimiter | Kind::Job | Kind::Done => return None,
        };
        self.listeners.get(place).copied()
    }

    /// What it is, as far as that is certain. See the rule in the docs of `LockClient::locks`.
    fn kind(&self, by_name: bool) -> Option<Kind> {
        let is_queued = self.length > 0;
        match self.what {
            // A fenced value has that field, and no holder has this id.
            What::Lock if self.holders.iter().any(|holder| holder.id == "token") => None,
            What::Lock | What::ReadWrite if !by_name && !self.looks_held => None,
            What::Lock | What::ReadWrite if !self.has_counts => None,
            What::Lock if is_queued => Some(Kind::Fair),
            What::Lock => Some(Kind::Mutex),
            What::ReadWrite if self.holders.is_empty() && !by_name => None,
            What::ReadWrite => Some(if self.is_written { Kind::Write } else { Kind::Read }),
            // The lock is free, and somebody has a place in its queue.
            What::Nothing => is_queued.then_some(Kind::Fair),
            What::Number if self.permits.iter().any(|(permit, _)| permit.len() == PERMIT) => {
                Some(Kind::Semaphore)
            }
            What::Number if self.was_opened => Some(Kind::Latch),
            What::Number | What::Else => None,
        }
    }
}

/// The length of a permit in bytes.
const PERMIT: usize = 16;

/// One entry for each acquisition of this library, and for each permit of Redisson.
fn acquisitions(permits: &[(Vec<u8>, Option<Duration>)]) -> Vec<FoundHolder> {
    let mut all: Vec<FoundHolder> = Vec::new();
    for (permit, left) in permits.iter().filter(|(permit, _)| permit.len() == PERMIT) {
        let (acquisition, number) = permit.split_at(12);
        // Redisson's permits are random, so one in 400 000 looks like one of leasehold's.
        let is_ours =
            (1..=10_000).contains(&u32::from_be_bytes(number.try_into().unwrap_or_default()));
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let id = if is_ours { hex(acquisition) } else { hex(permit) };
        match all.iter_mut().find(|one| is_ours && one.id == id) {
            Some(one) => one.count += 1,
            None => all.push(FoundHolder { id, count: 1, left: *left, data: None }),
        }
    }
    all
}

/// A UUID, a colon and more, with only characters that are safe on any terminal.
pub(super) fn looks_like_a_holder(field: &[u8]) -> bool {
    let is_id = |(place, byte): (usize, &u8)| match place {
        8 | 13 | 18 | 23 => *byte == b'-',
        36 => *byte == b':',
        _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(byte),
    };
    field.len() > 37
        && field.iter().take(37).enumerate().all(is_id)
        && field[37..].iter().all(u8::is_ascii_graphic)
}

/// Zero if it has ended; `None` if it never ends.
fn time_left(millis: i64) -> Option<Duration> {
    (millis != -1).then(|| Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}

fn bytes(reply: Reply) -> Option<Vec<u8>> {
    if let Reply::Bytes(bytes) = reply { Some(bytes) } else { None }
}

fn text(reply: &Reply) -> Option<&str> {
    if let Reply::Bytes(bytes) = reply { std::str::from_utf8(bytes).ok() } else { None }
}

fn groups<const N: usize>(parts: Vec<Reply>) -> Option<Vec<[Reply; N]>> {
    let mut parts = parts.into_iter();
    let mut all = Vec::with_capacity(parts.len() / N);
    while parts.len() >= N {
        let group: Vec<Reply> = parts.by_ref().take(N).collect();
        all.push(group.try_into().ok()?);
    }
    (parts.len() == 0).then_some(all)
}

#[cfg(test)]
#[path = "look_tests.rs"]
mod tests;
