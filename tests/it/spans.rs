//! The spans of waits and holds (cargo feature `tracing`), as OpenTelemetry's exporter gets them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use leasehold::{CancelToken, ErrorKind, LockClient};
use opentelemetry::trace::{SpanId, Status, TracerProvider};
use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::rig::{Child, Server, ms, wait_until};
use crate::support::{Clients, ShortLease};

/// A subscriber for the threads that enter it.
fn dispatch(subscriber: impl Into<tracing::Dispatch>) -> tracing::Dispatch {
    // While a process has only one subscriber, tracing asks that of the thread that is first at a
    // span whether somebody wants it: here a thread of another test, which has none.
    static OTHERS: LazyLock<[tracing::Dispatch; 2]> =
        LazyLock::new(|| std::array::from_fn(|_| tracing_subscriber::registry().into()));
    LazyLock::force(&OTHERS);
    subscriber.into()
}

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
        let subscriber = dispatch(tracing_subscriber::registry().with(layer));
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
    let (request, wait, hold) =
        (tracer.span("request"), tracer.span("leasehold.wait"), tracer.span("leasehold.hold"));
    let address = client.nodes()[0].address().to_owned();
    for span in [&wait, &hold] {
        assert_eq!(span.parent_span_id, request.span_context.span_id());
        assert_eq!(span.span_context.trace_id(), request.span_context.trace_id());
        assert_eq!(span.status, Status::Unset);
        assert_fields(
            span,
            &[("lock.name", "job"), ("lock.kind", "mutex"), ("lock.client", "billing")],
        );
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
    assert_eq!(
        (tracer.spans("leasehold.hold").len(), tracer.spans("leasehold.wait").len()),
        (2, 0)
    );
    let hold = &tracer.spans("leasehold.hold")[0];
    assert_eq!(hold.parent_span_id, SpanId::INVALID);
    assert_fields(hold, &[("lock.store", "memory"), ("lock.servers", "memory")]);
}

#[test]
fn a_wait_that_gets_nothing_says_why() {
    let (server, tracer) = (Server::start(), Tracer::new());
    // The waiter asks again when the holder's lease would end.
    let holder = server.builder().short_lease(ms(4000)).build().unwrap();
    let client = server.builder().io_timeout(ms(1500)).outage_timeout(ms(500)).build().unwrap();
    let held = holder.lock("job").unwrap();
    tracer.within(|| assert!(client.try_lock_for("job", ms(700)).unwrap().is_none()));
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
    let (client, other) =
        (server.builder().lease(ms(3000)).io_timeout(ms(2500)).build().unwrap(), server.client());
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
    assert_fields(
        &tracer.span("leasehold.hold"),
        &[("lock.outcome", "lost"), ("lock.lost", "not_renewed")],
    );
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
        assert_fields(
            &tracer.span("leasehold.hold"),
            &[("lock.name", "job"), ("lock.outcome", "closed")],
        );
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(slot.release().unwrap_err().kind(), ErrorKind::Closed);
    });
    let outcomes: Vec<_> =
        tracer.spans("leasehold.hold").iter().map(|span| field(span, "lock.outcome")).collect();
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
    assert_fields(
        &tracer.span("leasehold.wait"),
        &[("lock.kind", "latch"), ("lock.outcome", "granted")],
    );
    assert!(tracer.spans("leasehold.hold").is_empty());
}

/// Threads of one client pass the lock on without a request: each of them has its own span.
#[test]
fn each_turn_of_a_hold_that_passes_on_is_a_span() {
    const THREADS: usize = 4;
    const TURNS: usize = 100;
    let (server, tracer) = (Server::start(), Tracer::new());
    let client = server.client();
    let together = std::sync::Barrier::new(THREADS);
    std::thread::scope(|s| {
        for _ in 0..THREADS {
            s.spawn(|| {
                together.wait();
                tracer.within(|| {
                    for _ in 0..TURNS {
                        client.lock("job").unwrap().unlock().unwrap();
                    }
                });
            });
        }
    });
    let mut holds = tracer.spans("leasehold.hold");
    assert_eq!(holds.len(), THREADS * TURNS);
    for span in &holds {
        assert_fields(span, &[("lock.outcome", "released")]);
    }
    let token = |span: &SpanData| field(span, "lock.token").unwrap().parse::<u64>().unwrap();
    holds.sort_by_key(token);
    assert!(
        holds.windows(2).all(|two| token(&two[0]) < token(&two[1])),
        "each has a token of its own"
    );
    let passed = client.stats().primitive(leasehold::Primitive::Mutex).unwrap().passed_on();
    assert!(passed > 0, "no hold was passed on, which this test is about");
    drop(client);
    server.assert_clean();
}

/// All readers of a client share a hold in the store.
#[test]
fn each_of_several_readers_has_its_own_end() {
    let (client, tracer) = (LockClient::in_memory(), Tracer::new());
    let guards: Vec<_> = std::thread::scope(|s| {
        let read = || tracer.within(|| client.rw_lock("config").read_owned().unwrap());
        let readers: Vec<_> = (0..3).map(|_| s.spawn(read)).collect();
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    client.close(Duration::from_secs(5)).unwrap();
    let spans = tracer.spans("leasehold.hold");
    assert_eq!(spans.len(), 3);
    for span in &spans {
        assert_fields(span, &[("lock.kind", "read"), ("lock.outcome", "closed")]);
    }
    drop(guards);
    assert_eq!(tracer.spans("leasehold.hold").len(), 3);
}

#[test]
fn what_is_forgotten_is_not_called_released() {
    let (client, tracer) = (LockClient::in_memory(), Tracer::new());
    assert!(client.semaphore("permits").try_set_permits(1).is_ok());
    assert!(client.counting_semaphore("slots").try_set_permits(1).is_ok());
    tracer.within(|| {
        let _ = client.semaphore("permits").acquire().unwrap().forget();
        client.counting_semaphore("slots").acquire().unwrap().forget();
    });
    let spans = tracer.spans("leasehold.hold");
    assert_eq!(spans.len(), 2);
    for span in &spans {
        assert_fields(span, &[("lock.outcome", "forgotten")]);
    }
}

#[test]
fn a_loss_that_forgetting_finds_is_counted_and_told() {
    let (server, tracer) = (Server::start(), Tracer::new());
    let client = server.builder().build().unwrap();
    let permits = client.semaphore("permits").with_lease(ms(500));
    assert!(permits.try_set_permits(1).is_ok());
    let permit = tracer.within(|| permits.acquire().unwrap());
    wait_until("its lease has ended", || !permit.is_held());
    let _ = permit.forget();
    wait_until("the span has ended", || !tracer.spans("leasehold.hold").is_empty());
    assert_fields(
        &tracer.span("leasehold.hold"),
        &[("lock.outcome", "lost"), ("lock.lost", "fixed_lease")],
    );
    assert_eq!(client.stats().primitive(leasehold::Primitive::Semaphore).unwrap().lost(), 1);
    assert!(permits.delete().unwrap());
    drop((client, permits));
    server.assert_clean();
}

/// In the child, the exporter may be locked by a thread that does not exist there.
#[test]
fn a_forked_child_ends_no_span_of_its_parent() {
    let mut program = Child::spawn("spans::forking_tracer", &[]);
    assert_eq!(program.expect("child ended: "), "0");
    assert_eq!(program.expect("parent ended: "), "2");
    program.wait();
}

#[test]
#[ignore = "a program for other tests"]
fn forking_tracer() {
    let (client, tracer) = (LockClient::in_memory(), Tracer::new());
    assert!(client.counting_semaphore("slots").try_set_permits(1).is_ok());
    let held = tracer.within(|| {
        (client.counting_semaphore("slots").acquire().unwrap(), client.lock("job").unwrap())
    });
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            drop(held);
            println!("@@child ended: {}", tracer.spans("leasehold.hold").len());
            std::process::exit(0);
        }
        fork::Fork::Parent(child) => {
            let _ = fork::waitpid(child);
            drop(held);
            println!("@@parent ended: {}", tracer.spans("leasehold.hold").len());
        }
    }
}

/// A layer whose `mutex` the first panic poisons, so that it panics at every later call.
#[derive(Clone, Default)]
struct Panics {
    calls: Arc<AtomicUsize>,
    mutex: Arc<Mutex<()>>,
    at_begin: bool,
}

impl Panics {
    fn panic(&self) {
        let _guard = self.mutex.lock().unwrap();
        self.calls.fetch_add(1, Ordering::SeqCst);
        panic!("on purpose");
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Panics {
    fn on_new_span(
        &self,
        _: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: Context<'_, S>,
    ) {
        if self.at_begin {
            self.panic();
        }
    }

    fn on_record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>, _: Context<'_, S>) {
        self.panic();
    }

    fn on_close(&self, _: tracing::span::Id, _: Context<'_, S>) {
        self.panic();
    }
}

#[test]
fn a_tracer_that_panics_costs_no_lock() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    for at_begin in [true, false] {
        let panics = Panics { at_begin, ..Panics::default() };
        let tracer = dispatch(tracing_subscriber::registry().with(panics.clone()));
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
        assert_eq!(panics.calls.load(Ordering::SeqCst), 1, "the first one poisoned the mutex");
        other.lock("job").unwrap().unlock().unwrap();
    }
    drop((client, other));
    server.assert_clean();
}

/// A layer that blocks where a span of this name begins or ends, until it is opened.
#[derive(Clone)]
struct Gate {
    at_end: bool,
    is_open: Arc<(Mutex<bool>, std::sync::Condvar)>,
    /// How many are or were blocked.
    came: Arc<AtomicUsize>,
}

impl Gate {
    fn new(at_end: bool) -> Self {
        Self { at_end, is_open: Arc::default(), came: Arc::default() }
    }

    fn pass(&self, metadata: &tracing::Metadata<'_>, ends: bool) {
        if ends == self.at_end && metadata.name() == "leasehold.hold" {
            self.came.fetch_add(1, Ordering::SeqCst);
            let (is_open, changed) = &*self.is_open;
            drop(changed.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        }
    }

    fn open(&self) {
        *self.is_open.0.lock().unwrap() = true;
        self.is_open.1.notify_all();
    }

    fn is_reached(&self) -> bool {
        self.came.load(Ordering::SeqCst) > 0
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Gate {
    fn on_new_span(
        &self,
        attributes: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: Context<'_, S>,
    ) {
        self.pass(attributes.metadata(), false);
    }

    fn on_close(&self, id: tracing::span::Id, context: Context<'_, S>) {
        self.pass(context.metadata(&id).unwrap(), true);
    }
}

/// Otherwise a multi-lock would lose the names whose spans have not begun.
#[test]
fn a_tracer_that_blocks_at_a_begin_delays_its_caller_and_no_renewal() {
    let server = Server::start();
    let (client, other) =
        (server.builder().lease(ms(3000)).io_timeout(ms(2500)).build().unwrap(), server.client());
    let gate = Gate::new(false);
    let tracer = dispatch(tracing_subscriber::registry().with(gate.clone()));
    std::thread::scope(|s| {
        let taker = s.spawn(|| {
            tracing::dispatcher::with_default(&tracer, || {
                let guard = client.multi(["a", "b"]).lock().unwrap();
                assert!(guard.is_held(), "{:?}", guard.loss());
                guard.unlock().unwrap();
            });
        });
        wait_until("the tracer is called", || gate.is_reached());
        // The calls of other threads of the client go on.
        client.lock("c").unwrap().unlock().unwrap();
        let renewed = || {
            client
                .stats()
                .primitive(leasehold::Primitive::Multi)
                .map_or(0, |multi| multi.renewals())
        };
        wait_until("both are renewed for longer than a lease", || renewed() >= 2 * 4);
        assert!(other.try_lock("a").unwrap().is_none() && other.try_lock("b").unwrap().is_none());
        gate.open();
        taker.join().unwrap();
    });
    drop((client, other));
    server.assert_clean();
}

#[test]
fn a_tracer_that_blocks_a_close_keeps_no_lock() {
    let server = Server::start();
    let (client, other) = (server.client(), server.client());
    let gate = Gate::new(true);
    let tracer = dispatch(tracing_subscriber::registry().with(gate.clone()));
    let guards: Vec<_> = tracing::dispatcher::with_default(&tracer, || {
        ["a", "b", "c"].map(|name| client.lock(name).unwrap()).into()
    });
    std::thread::scope(|s| {
        let closes = s.spawn(|| client.close(Duration::from_secs(30)));
        wait_until("the tracer is called", || gate.is_reached());
        for name in ["a", "b", "c"] {
            other.lock(name).unwrap().unlock().unwrap();
        }
        assert!(!closes.is_finished());
        gate.open();
        closes.join().unwrap().unwrap();
    });
    let guards: Vec<leasehold::ReentrantMutexGuard> = guards;
    drop(guards);
    drop((client, other));
    server.assert_clean();
}

#[test]
fn spans_that_nobody_wants_are_not_made() {
    struct Counts(Arc<AtomicUsize>);
    impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Counts {
        fn on_new_span(
            &self,
            _: &tracing::span::Attributes<'_>,
            _: &tracing::span::Id,
            _: Context<'_, S>,
        ) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (client, made) = (LockClient::in_memory(), Arc::new(AtomicUsize::new(0)));
    let wanted = |level: tracing::level_filters::LevelFilter| -> tracing::Dispatch {
        dispatch(tracing_subscriber::registry().with(level).with(Counts(made.clone())))
    };
    for (level, expected) in [("warn", 0), ("info", 1)] {
        tracing::dispatcher::with_default(&wanted(level.parse().unwrap()), || {
            drop(client.lock("job").unwrap());
        });
        assert_eq!(made.load(Ordering::SeqCst), expected, "{level}");
    }
}
