//! What a [`Proxy`](super::Proxy) may do to an exchange, and to which one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// What happens to the exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// The connection ends; the server never sees the request.
    CutBeforeSend,
    /// The server runs the request; the reply is lost and the connection ends.
    CutAfterApplied,
    /// The server gets this many bytes of the request, and the connection ends.
    CutRequestAt(usize),
    /// The client gets this many bytes of the reply, and the connection ends.
    CutReplyAt(usize),
    /// The reply, and what follows it, comes this much later.
    StallReply(Duration),
    /// The reply and all that follows it on this connection is lost; the connection stays open.
    BlackHoleReply,
    /// The request waits for `release_held`, and is then sent whether or not its client is still there.
    HoldRequest,
    /// The server runs the request; the client gets these bytes in place of the reply.
    GarbageReply(Vec<u8>),
}

impl Action {
    /// Whether the connection has no use for requests behind this one.
    pub(super) fn is_last(&self) -> bool {
        matches!(self, Self::CutAfterApplied | Self::CutReplyAt(_) | Self::BlackHoleReply)
    }
}

/// Tells from the words of a request whether a fault is meant for it. It must not call the proxy.
type Matcher = Box<dyn Fn(&[Vec<u8>]) -> bool + Send + Sync>;

/// A fault to be injected: once, at the first request that matches, unless told otherwise.
pub(crate) struct Fault {
    matcher: Matcher,
    action: Action,
    skip: u32,
    times: u32,
}

impl Fault {
    /// A fault for requests that match.
    pub(crate) fn new(matcher: impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static, action: Action) -> Self {
        Self { matcher: Box::new(matcher), action, skip: 0, times: 1 }
    }

    /// Lets so many matching requests through first.
    pub(crate) fn skip(mut self, n: u32) -> Self {
        self.skip = n;
        self
    }

    /// Happens so many times.
    pub(crate) fn times(mut self, n: u32) -> Self {
        self.times = n;
        self
    }

    pub(super) fn into_rule(self) -> Rule {
        Rule(Arc::new(Inner { fault: self, seen: 0.into(), hits: 0.into(), cancelled: false.into() }))
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, skip, times, .. } = self;
        f.debug_struct("Fault")
            .field("action", action)
            .field("skip", skip)
            .field("times", times)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Inner {
    fault: Fault,
    seen: AtomicU32,
    hits: AtomicU32,
    cancelled: AtomicBool,
}

/// An injected fault.
#[derive(Debug, Clone)]
pub(crate) struct Rule(Arc<Inner>);

impl Rule {
    /// How often it has happened. It counts before the client can notice, so what a client saw has been counted.
    pub(crate) fn hits(&self) -> u32 {
        self.0.hits.load(Ordering::SeqCst)
    }

    /// How many requests have matched, those that were let through included.
    pub(crate) fn seen(&self) -> u32 {
        self.0.seen.load(Ordering::SeqCst)
    }

    /// Does not happen any more.
    pub(crate) fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
    }

    /// What to do with this request. The caller's lock makes look and count one step.
    pub(super) fn consider(&self, words: &[Vec<u8>]) -> Option<Action> {
        let Inner { fault, seen, cancelled, .. } = &*self.0;
        if cancelled.load(Ordering::SeqCst) || !(fault.matcher)(words) {
            return None;
        }
        let before = seen.fetch_add(1, Ordering::SeqCst);
        (before >= fault.skip && before - fault.skip < fault.times).then(|| fault.action.clone())
    }

    pub(super) fn count(&self) {
        self.0.hits.fetch_add(1, Ordering::SeqCst);
    }
}

/// Matches every request.
pub(crate) fn any_request() -> impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static {
    |_| true
}

/// Matches a command by name, in any case.
pub(crate) fn command(name: &str) -> impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static {
    let name = name.to_owned();
    move |words| is_command(words, &name)
}

/// Matches a request with a word that is this one.
pub(crate) fn any_word(word: impl Into<Vec<u8>>) -> impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static {
    let wanted = word.into();
    move |words| words.contains(&wanted)
}

/// Matches a request with a word that contains this.
pub(crate) fn word_containing(part: impl Into<Vec<u8>>) -> impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static {
    let part = part.into();
    move |words| contains(words, &part)
}

/// Matches `EVALSHA` with an argument that contains this.
pub(crate) fn evalsha_containing(part: impl Into<Vec<u8>>) -> impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static {
    let part = part.into();
    move |words| is_command(words, "EVALSHA") && contains(words, &part)
}

/// Matches `EVAL` or `EVALSHA` with an argument that contains this.
pub(crate) fn script_containing(part: impl Into<Vec<u8>>) -> impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static {
    let part = part.into();
    move |words| (is_command(words, "EVALSHA") || is_command(words, "EVAL")) && contains(words, &part)
}

fn is_command(words: &[Vec<u8>], name: &str) -> bool {
    words.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
}

fn contains(words: &[Vec<u8>], part: &[u8]) -> bool {
    words.iter().any(|word| part.is_empty() || word.windows(part.len()).any(|window| window == part))
}
