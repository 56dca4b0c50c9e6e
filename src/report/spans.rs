//! The spans that a tracer gets, by the crate `tracing`: one for each wait, and one for each hold.
//!
//! A subscriber is code of the user, like a listener: it is called without any mutex of a client,
//! and [`Observer`](crate::report::observer::Observer) catches its panics. Without the cargo
//! feature `tracing`, and where the subscriber does not want these spans, nothing is made or kept.

use crate::base::counters::Outcome;
use crate::base::loss::Loss;
use crate::base::primitive::Primitive;

/// What the spans of a client say about it.
#[derive(Debug, Default)]
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "only spans read it"))]
pub(crate) struct SpanClient {
    pub(crate) client_name: String,
    /// As people see it: "billing-7 (pid 4711 on host-a)".
    pub(crate) owner: String,
    /// The kind of its store.
    pub(crate) store: &'static str,
    /// The addresses of its servers when it was built.
    pub(crate) servers: String,
}

/// How a hold ended.
#[cfg_attr(not(feature = "tracing"), expect(dead_code, reason = "only spans read it"))]
pub(crate) enum HoldEnd {
    Released,
    /// It stays taken at the store, and nobody renews it.
    Forgotten,
    Closed,
    Lost(Loss),
}

/// A span that has not ended: it is given an outcome, and closed.
#[derive(Debug)]
pub(crate) struct Span(#[cfg(feature = "tracing")] tracing::Span);

#[cfg(feature = "tracing")]
macro_rules! span {
    ($span:literal, $client:ident, $name:ident, $primitive:ident, $($more:tt)*) => {
        tracing::info_span!(
            target: "leasehold",
            $span,
            lock.name = $name,
            lock.kind = $primitive.as_str(),
            lock.client = $client.client_name,
            lock.owner = $client.owner,
            lock.store = $client.store,
            lock.servers = $client.servers,
            lock.outcome = tracing::field::Empty,
            lock.error = tracing::field::Empty,
            // The layer for OpenTelemetry makes it the status of the span.
            otel.status_code = tracing::field::Empty,
            $($more)*
        )
    };
}

#[cfg(feature = "tracing")]
impl Span {
    /// Whether a subscriber wants spans of this level. Does not call it.
    pub(crate) fn may_be_wanted() -> bool {
        tracing::level_filters::LevelFilter::current() >= tracing::Level::INFO
    }

    pub(crate) fn of_wait(client: &SpanClient, name: &str, primitive: Primitive) -> Option<Self> {
        Self::wanted(span!("leasehold.wait", client, name, primitive,))
    }

    /// `token`: the fencing token; 0 for none.
    pub(crate) fn of_hold(
        client: &SpanClient,
        name: &str,
        primitive: Primitive,
        token: u64,
    ) -> Option<Self> {
        let token = (token > 0).then_some(token);
        Self::wanted(span!(
            "leasehold.hold",
            client,
            name,
            primitive,
            lock.token = token,
            lock.lost = tracing::field::Empty,
        ))
    }

    fn wanted(span: tracing::Span) -> Option<Self> {
        (!span.is_disabled()).then_some(Self(span))
    }

    pub(crate) fn end_wait(&self, outcome: Outcome<'_>) {
        let ended = match outcome {
            Outcome::Granted | Outcome::Reentered => "granted",
            Outcome::Busy | Outcome::TimedOut => "timed_out",
            Outcome::Failed(error) => {
                self.0.record("lock.error", error.chain().to_string());
                if error.kind().is_stop() { "stopped" } else { self.failed("failed") }
            }
        };
        self.0.record("lock.outcome", ended);
    }

    pub(crate) fn end_hold(&self, end: HoldEnd) {
        let ended = match end {
            HoldEnd::Released => "released",
            HoldEnd::Forgotten => "forgotten",
            HoldEnd::Closed => "closed",
            HoldEnd::Lost(loss) => {
                self.0
                    .record("lock.lost", loss.reason().label())
                    .record("lock.error", loss.to_string());
                self.failed("lost")
            }
        };
        self.0.record("lock.outcome", ended);
    }

    /// Reports it to the tracer.
    pub(crate) fn close(self) {
        drop(self.0);
    }

    /// In a forked child it belongs to the parent, whose tracer may be locked for ever.
    pub(crate) fn leave_to_parent(self) {
        std::mem::forget(self.0);
    }

    fn failed(&self, outcome: &'static str) -> &'static str {
        self.0.record("otel.status_code", "ERROR");
        outcome
    }
}

#[cfg(not(feature = "tracing"))]
impl Span {
    pub(crate) fn may_be_wanted() -> bool {
        false
    }

    pub(crate) fn of_wait(_: &SpanClient, _: &str, _: Primitive) -> Option<Self> {
        None
    }

    pub(crate) fn of_hold(_: &SpanClient, _: &str, _: Primitive, _: u64) -> Option<Self> {
        None
    }

    pub(crate) fn end_wait(&self, _: Outcome<'_>) {}

    pub(crate) fn end_hold(&self, _: HoldEnd) {}

    pub(crate) fn close(self) {}

    pub(crate) fn leave_to_parent(self) {}
}
