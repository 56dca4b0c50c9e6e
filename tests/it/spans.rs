//! The spans of waits and holds (cargo feature `tracing`), as OpenTelemetry's exporter gets them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{CancelToken, ErrorKind, LockClient};
use opentelemetry::trace::{SpanId, Status, TracerProvider};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::rig::{Server, ms, wait_until};
use crate::support::Clients;

/// A tracer for the threads that enter it, and the spans that have ended.
#[derive(Clone)]
struct Tracer {
    subscriber: tracing::Dispatch,
    exported: InMemorySpanExporter,
    _provider: SdkTracerProvider,
}

impl Tracer {
    fn new() -> Self {
        let exported = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exported.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let subscriber = tracing_subscriber::registry().with(layer).into();
        Self { subscriber, exported, _provider: provider }
    }

    fn within<T>(&self, call: impl FnOnce() -> T) -> T {
        tracing::dispatcher::with_default(&self.subscriber, call)
    }

    fn spans(&self, name: &str) -> Vec<SpanData> {
        let mut spans = self.exported.get_finished_spans().unwrap();
        spans.retain(|span| span.name == name);
        spans
    }

    /// The only span of this name that has ended.
    #[track_caller]
    fn span(&self, name: &str) -> SpanData {
        let mut spans = self.spans(name);
        assert_eq!(spans.len(), 1, "{name}: {spans:?}");
        spans.remove(0)
    }
}

fn field(span: &SpanData, key: &str) -> Option<String> {
    let of_key = |field: &&KeyValue| field.key.as_str() == key;
    span.attributes.iter().find(of_key).map(|field| match &field.value {
        Value::I64(number) => number.to_string(),
        other => other.as_str().into_owned(),
    })
}

#[track_caller]
fn assert_fields(span: &SpanData, fields: &[(&str, &str)]) {
    for (key, value) in fields {
        assert_eq!(field(span, key).as_deref(), Some(*value), "{key} of {span:?}");
    }
}

fn waits(client: &LockClient) {
    wait_until("the call waits", || client.stats().waiting() == 1);
}

#[test]
fn a_wait_and_a_hold_are_spans_of_the_request_that_takes_the_lock() {
    let (server, tracer) = (Server::start(), Tracer::new());
    let first = server.client();
    let client = server.builder().owner("billing-7").client_name("billing").build().unwrap();
    let owner = format!("billing-7 (pid {} on ", std::process::id());
    let held = first.lock("job").unwrap();
    let token = std::thread::scope(|s| {
        let waiter = s.spawn(|| {
            tracer.within(|| {
                let _request = tracing::info_span!("request").entered();
                let guard = client.lock("job").unwrap();
                let again = client.lock("job").unwrap();
                drop(again);
                assert!(tracer.spans("leasehold.hold").is_empty(), "it has not ended");
                let token = guard.fencing_token().unwrap();
                guard.unlock().unwrap();
                token
            })
        });
        waits(&client);
        held.unlock().unwrap();
        waiter.join().unwrap()
    });
    let (request, wait, hold) = (tracer.span("request"), tracer.span("leasehold.wait"), tracer.span("leasehold.hold"));
    let address = client.nodes()[0].address().to_owned();
    for span in [&wait, &hold] {
        assert_eq!(span.parent_span_id, request.span_context.span_id());
        assert_eq!(span.span_context.trace_id(), request.span_context.trace_id());
        assert_eq!(span.status, Status::Unset);
        assert_fields(span, &[("lock.name", "job"), ("lock.kind", "mutex"), ("lock.client", "billing")]);
        assert_fields(span, &[("lock.store", "redis"), ("lock.servers", &address)]);
        assert!(field(span, "lock.owner").unwrap().starts_with(&owner), "{span:?}");
    }
    assert_fields(&wait, &[("lock.outcome", "granted")]);
    assert_fields(&hold, &[("lock.outcome", "released"), ("lock.token", &token.to_string())]);
    assert!(request.start_time <= wait.start_time && wait.start_time <= hold.start_time);
    assert!(hold.end_time <= request.end_time);
    drop((client, first));
    server.assert_clean();
}

#[test]
fn a_call_that_finds_it_free_has_no_wait() {
    let (client, tracer) = (LockClient::in_memory(), Tracer::new());
    tracer.within(|| drop(client.lock("job").unwrap()));
    tracer.within(|| assert!(client.try_lock("job").unwrap().is_some()));
    assert_eq!((tracer.spans("leasehold.hold").len(), tracer.spans("leasehold.wait").len()), (2, 0));
    let hold = &tracer.spans("leasehold.hold")[0];
    assert_eq!(hold.parent_span_id, SpanId::INVALID);
    assert_fields(hold, &[("lock.store", "memory"), ("lock.servers", "memory")]);
}

#[test]
fn a_wait_that_gets_nothing_says_why() {
    let (server, tracer) = (Server::start(), Tracer::new());
    // The waiter asks again when the holder's lease would end.
    let holder = server.builder().lease(ms(1500)).build().unwrap();
    let client = server.builder().io_timeout(ms(300)).outage_timeout(ms(500)).build().unwrap();
    let held = holder.lock("job").unwrap();
    tracer.within(|| assert!(client.try_lock_for("job", ms(20)).unwrap().is_none()));
    let span = tracer.span("leasehold.wait");
    assert_fields(&span, &[("lock.outcome", "timed_out")]);
    assert_eq!((&span.status, field(&span, "lock.error")), (&Status::Unset, None));

    tracer.exported.reset();
    let token = CancelToken::new();
    std::thread::scope(|s| {
        s.spawn(|| tracer.within(|| client.mutex("job").with_cancel(&token).lock().unwrap_err()));
        waits(&client);
        token.cancel();
    });
    let span = tracer.span("leasehold.wait");
    assert_fields(&span, &[("lock.outcome", "stopped")]);
    assert_eq!(span.status, Status::Unset, "the program wanted it");

    tracer.exported.reset();
    let error = std::thread::scope(|s| {
        let waiter = s.spawn(|| tracer.within(|| client.lock("job").unwrap_err()));
        waits(&client);
        server.suspend();
        waiter.join().unwrap()
    });
    server.resume();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let span = tracer.span("leasehold.wait");
    assert_fields(&span, &[("lock.outcome", "failed")]);
    assert!(matches!(span.status, Status::Error { .. }), "{span:?}");
    assert!(field(&span, "lock.error").unwrap().contains("job"), "{span:?}");
    // Its lease may have ended meanwhile.
    let _ = held.unlock();
    drop((client, holder));
    server.assert_clean();
}

#[test]
fn a_lost_hold_ends_when_the_loss_is_found_and_not_with_its_guard() {
    let (server, tracer) = (Server::start(), Tracer::new());
    let (client, other) = (server.builder().lease(ms(600)).io_timeout(ms(100)).build().unwrap(), server.client());
    let guard = tracer.within(|| client.lock("job").unwrap());
    assert!(other.mutex("job").force_unlock().unwrap());
    // Its next renewal finds it.
    wait_until("the span has ended", || !tracer.spans("leasehold.hold").is_empty());
    let span = tracer.span("leasehold.hold");
    assert_fields(&span, &[("lock.outcome", "lost"), ("lock.lost", "taken_away")]);
    assert!(matches!(span.status, Status::Error { .. }), "{span:?}");
    assert!(field(&span, "lock.error").is_some(), "{span:?}");
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);

    tracer.exported.reset();
    let guard = tracer.within(|| client.lock("job").unwrap());
    server.suspend();
    wait_until("the lease has ended", || !guard.is_held());
    // Nobody has found it before the guard does.
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    server.resume();
    wait_until("the span has ended", || !tracer.spans("leasehold.hold").is_empty());
    assert_fields(&tracer.span("leasehold.hold"), &[("lock.outcome", "lost"), ("lock.lost", "not_renewed")]);
    drop((client, other));
    server.assert_clean();
}

#[test]
fn a_close_ends_the_spans_of_its_holds() {
    let (client, tracer) = (LockClient::in_memory(), Tracer::new());
    assert!(client.counting_semaphore("slots").try_set_permits(1).is_ok());
    tracer.within(|| {
        let guard = client.lock("job").unwrap();
        let slot = client.counting_semaphore("slots").acquire().unwrap();
        client.close(Duration::from_secs(5)).unwrap();
        assert_fields(&tracer.span("leasehold.hold"), &[("lock.name", "job"), ("lock.outcome", "closed")]);
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(slot.release().unwrap_err().kind(), ErrorKind::Closed);
    });
    let outcomes: Vec<_> = tracer.spans("leasehold.hold").iter().map(|span| field(span, "lock.outcome")).collect();
    assert_eq!(outcomes, [Some("closed".to_owned()), Some("closed".to_owned())]);
}

#[test]
fn every_primitive_has_spans() {
    let (client, tracer) = (LockClient::in_memory(), Tracer::new());
    assert!(client.semaphore("permits").try_set_permits(3).is_ok());
    assert!(client.counting_semaphore("slots").try_set_permits(1).is_ok());
    tracer.within(|| {
        client.lock("mutex").unwrap().unlock().unwrap();
        client.mutex("owned").lock_owned().unwrap().unlock().unwrap();
        client.fair("fair").lock().unwrap().unlock().unwrap();
        client.rw_lock("rw").read().unwrap().unlock().unwrap();
        client.rw_lock("rw").write().unwrap().downgrade().unwrap().unlock().unwrap();
        client.multi(["a", "b"]).lock().unwrap().unlock().unwrap();
        client.semaphore("permits").acquire().unwrap().release().unwrap();
        client.counting_semaphore("slots").acquire().unwrap().release().unwrap();
    });
    let spans = tracer.spans("leasehold.hold");
    let mut seen: Vec<_> = spans
        .iter()
        .map(|span| {
            assert_fields(span, &[("lock.outcome", "released")]);
            format!("{} {}", field(span, "lock.kind").unwrap(), field(span, "lock.name").unwrap())
        })
        .collect();
    seen.sort();
    let expected = [
        "counting_semaphore slots",
        "fair fair",
        "multi a",
        "multi b",
        "mutex mutex",
        "mutex owned",
        "read rw",
        "semaphore permits",
        "write rw",
    ];
    assert_eq!(seen, expected);

    // A latch is waited for, and nobody holds it.
    tracer.exported.reset();
    let latch = client.latch("start");
    assert!(latch.try_set_count(1).unwrap());
    std::thread::scope(|s| {
        s.spawn(|| tracer.within(|| latch.wait().unwrap()));
        waits(&client);
        latch.count_down().unwrap();
    });
    assert_fields(&tracer.span("leasehold.wait"), &[("lock.kind", "latch"), ("lock.outcome", "granted")]);
    assert!(tracer.spans("leasehold.hold").is_empty());
}

/// Threads of one client pass the lock on without a request: each of them has its own span.
#[test]
fn each_turn_of_a_hold_that_passes_on_is_a_span() {
    const THREADS: usize = 4;
    const TURNS: usize = 25;
    let (server, tracer) = (Server::start(), Tracer::new());
    let client = server.client();
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| tracer.within(|| (0..TURNS).for_each(|_| client.lock("job").unwrap().unlock().unwrap())));
        }
    });
    let mut holds = tracer.spans("leasehold.hold");
    assert_eq!(holds.len(), THREADS * TURNS);
    holds.iter().for_each(|span| assert_fields(span, &[("lock.outcome", "released")]));
    let token = |span: &SpanData| field(span, "lock.token").unwrap().parse::<u64>().unwrap();
    holds.sort_by_key(token);
    assert!(holds.windows(2).all(|two| token(&two[0]) < token(&two[1])), "each has a token of its own");
    let passed = client.stats().primitive(leasehold::Primitive::Mutex).unwrap().passed_on();
    assert!(passed > 0, "no hold was passed on, which this test is about");
    drop(client);
    server.assert_clean();
}

/// A layer that panics whenever a span of this crate begins or ends.
struct Panics(Arc<AtomicUsize>);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Panics {
    fn on_new_span(&self, _: &tracing::span::Attributes<'_>, _: &tracing::span::Id, _: Context<'_, S>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("on purpose");
    }
}

struct PanicsAtEnd(Arc<AtomicUsize>);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for PanicsAtEnd {
    fn on_record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>, _: Context<'_, S>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("on purpose");
    }
}

#[test]
fn a_tracer_that_panics_costs_no_lock() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    let panics = Arc::new(AtomicUsize::new(0));
    let begins = tracing_subscriber::registry().with(Panics(panics.clone()));
    let ends = tracing_subscriber::registry().with(PanicsAtEnd(panics.clone()));
    for tracer in [tracing::Dispatch::new(begins), tracing::Dispatch::new(ends)] {
        let before = panics.load(Ordering::SeqCst);
        let held = other.lock("job").unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                tracing::dispatcher::with_default(&tracer, || {
                    let guard = client.lock("job").unwrap();
                    assert!(guard.is_held() && other.try_lock("job").unwrap().is_none());
                    guard.unlock().unwrap();
                });
            });
            waits(&client);
            held.unlock().unwrap();
            waiter.join().unwrap();
        });
        assert_eq!(panics.load(Ordering::SeqCst), before + 2, "one for the wait and one for the hold");
        other.lock("job").unwrap().unlock().unwrap();
    }
    drop((client, other));
    server.assert_clean();
}

#[test]
fn spans_that_nobody_wants_are_not_made() {
    struct Counts(Arc<AtomicUsize>);
    impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Counts {
        fn on_new_span(&self, _: &tracing::span::Attributes<'_>, _: &tracing::span::Id, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (client, made) = (LockClient::in_memory(), Arc::new(AtomicUsize::new(0)));
    let wanted = |level: tracing::level_filters::LevelFilter| -> tracing::Dispatch {
        tracing_subscriber::registry().with(level).with(Counts(made.clone())).into()
    };
    for (level, expected) in [("warn", 0), ("info", 1)] {
        tracing::dispatcher::with_default(&wanted(level.parse().unwrap()), || drop(client.lock("job").unwrap()));
        assert_eq!(made.load(Ordering::SeqCst), expected, "{level}");
    }
}
