use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use super::super::places::LATE;
use super::super::pooled::PooledSender;
use super::*;
use crate::base::error::Result;
use crate::base::limits::IDEMPOTENCY_TTL;
use crate::signal::clock::FakeClock;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Failed {
    NotSent(ErrorKind),
    Unknown,
}

impl Failed {
    fn of(failure: Failure<()>) -> Self {
        match failure {
            Failure::NotSent(error) => Self::NotSent(error.kind()),
            Failure::Unknown { .. } => Self::Unknown,
        }
    }
}

fn unknown() -> Failure<()> {
    let error = Error::new(ErrorKind::Unreachable, "injected");
    Failure::Unknown { error, unknown: (), ended: false }
}

type Name = &'static str;
type FakeOutcome = std::result::Result<Name, Failed>;

/// What a thread of the pool is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Connect,
    Prepare(Name),
    Transmit(Name),
    Receive(Name),
}
use Step::{Connect, Prepare, Receive, Transmit};

/// Takes whatever is sent and answers it, unless the test intervenes. A name in upper case travels
/// alone, and the answer `last` ends its connection.
struct Fake {
    /// Whether its connections carry requests behind each other.
    pipelines: bool,
    io_timeout: Duration,
    steps: Arc<Steps>,
}

struct Steps {
    /// May block, panic, or have the step fail.
    intervene: Box<dyn Fn(Step) -> bool + Send + Sync>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    connects: usize,
    unusable: HashSet<usize>,
    /// Connections to which another server has succeeded.
    outdated: HashSet<usize>,
    /// Each write, with the number of its connection.
    writes: Vec<(usize, Vec<Name>)>,
    /// The threads that connected, wrote and read, by their names.
    threads: Vec<(Step, String)>,
    /// Connections to which a goodbye was said.
    goodbyes: Vec<usize>,
    /// Why callers have waited in vain.
    held_up_by: Option<String>,
}

/// Both halves of a connection.
#[derive(Clone)]
struct Half {
    id: usize,
    pipelines: bool,
    is_shut: Arc<AtomicBool>,
    steps: Arc<Steps>,
    /// What was prepared last.
    names: Vec<Name>,
}

fn goes_alone(name: &Name) -> bool {
    name.chars().all(char::is_uppercase)
}

impl Steps {
    fn step(&self, step: Step) -> bool {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.seen.lock().threads.push((step, thread));
        (self.intervene)(step)
    }
}

impl PooledConnector for Fake {
    type Connection = Half;
    type Sender = Half;
    type Request = Name;
    type Flight = std::vec::IntoIter<Name>;
    type Answer = Name;
    type Unknown = ();

    fn connect(&self) -> Result<Half> {
        let mut seen = self.steps.seen.lock();
        seen.connects += 1;
        let id = seen.connects;
        drop(seen);
        if !self.steps.step(Connect) {
            return Err(Error::new(ErrorKind::Denied, "injected"));
        }
        let (is_shut, steps) = (Arc::default(), self.steps.clone());
        Ok(Half { id, pipelines: self.pipelines, is_shut, steps, names: Vec::new() })
    }

    fn io_timeout(&self) -> Duration {
        self.io_timeout
    }

    fn address(&self) -> String {
        "nowhere".to_owned()
    }

    fn held_up_by(&self) -> Option<String> {
        self.steps.seen.lock().held_up_by.clone()
    }

    fn is_urgent(request: &Name) -> bool {
        request.starts_with("urgent")
    }

    fn share_a_write(one: &Name, other: &Name) -> bool {
        !goes_alone(one) && !goes_alone(other)
    }

    fn may_follow(request: &Name) -> bool {
        !goes_alone(request)
    }

    fn again(&self, _: &Name, answer: &Name) -> Option<Name> {
        (*answer == "again").then_some("instead")
    }

    fn is_last(answer: &Name) -> bool {
        *answer == "last"
    }

    fn unknown(_: &Self::Flight) {}
}

impl PooledConnection<Fake> for Half {
    fn say_goodbye(&mut self) {
        self.steps.seen.lock().goodbyes.push(self.id);
    }

    fn is_usable(&mut self, _: &Fake) -> bool {
        !self.steps.seen.lock().unusable.contains(&self.id)
    }

    fn prepare<'r>(
        &mut self,
        requests: impl Iterator<Item = &'r Name>,
    ) -> std::result::Result<std::vec::IntoIter<Name>, Failure<()>> {
        self.names = requests.copied().collect();
        if !self.steps.step(Prepare(self.names[0])) {
            return Err(Failure::NotSent(Error::new(ErrorKind::InvalidInput, "injected")));
        }
        self.steps.seen.lock().writes.push((self.id, self.names.clone()));
        Ok(self.names.clone().into_iter())
    }

    fn transmit(
        &mut self,
        flight: &std::vec::IntoIter<Name>,
    ) -> std::result::Result<(), Failure<()>> {
        if self.steps.step(Transmit(flight.as_slice()[0])) { Ok(()) } else { Err(unknown()) }
    }

    fn receive(
        &mut self,
        flight: &mut std::vec::IntoIter<Name>,
        outcomes: &mut [Option<Outcome<Fake>>],
        _: Option<&Callers>,
    ) -> std::result::Result<(), Failure<()>> {
        for (outcome, name) in outcomes.iter_mut().zip(flight) {
            if !self.steps.step(Receive(name)) || self.is_shut.load(Ordering::SeqCst) {
                return Err(unknown());
            }
            *outcome = Some(Ok(name));
        }
        Ok(())
    }

    fn sender(&self) -> Option<Self> {
        self.pipelines.then(|| self.clone())
    }

    fn shut(&self) {
        self.is_shut.store(true, Ordering::SeqCst);
    }
}

impl PooledSender<Fake> for Half {
    fn is_current(&self) -> bool {
        !self.steps.seen.lock().outdated.contains(&self.id)
    }

    fn prepare<'r>(
        &mut self,
        requests: impl Iterator<Item = &'r Name>,
    ) -> std::vec::IntoIter<Name> {
        self.names = requests.copied().collect();
        self.steps.step(Prepare(self.names[0]));
        self.steps.seen.lock().writes.push((self.id, self.names.clone()));
        self.names.clone().into_iter()
    }

    fn transmit(&mut self) -> Result<()> {
        if self.steps.step(Transmit(self.names[0])) {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::Unreachable, "injected"))
        }
    }

    fn shut(&self) {
        PooledConnection::shut(self);
    }
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The pool, callers in the order in which they queue, and a gate at which the calls `hold` and
/// `hold2` wait for their answers.
struct Stage {
    pool: Arc<Pool<Fake>>,
    gates: Arc<Mutex<HashSet<Name>>>,
}

type Caller = JoinHandle<FakeOutcome>;

impl Stage {
    fn new(most: usize, intervene: impl Fn(Step) -> bool + Send + Sync + 'static) -> Self {
        Self::patient(most, Duration::from_secs(20), intervene)
    }

    /// With connections that carry requests behind each other.
    fn pipelining(most: usize, intervene: impl Fn(Step) -> bool + Send + Sync + 'static) -> Self {
        let stage = Self::of(true, most, Duration::from_secs(20), intervene);
        stage.pool.callers.measured(Duration::ZERO);
        // The machine may be busy.
        stage.pool.state.lock().late = Duration::from_secs(60);
        stage
    }

    fn patient(
        most: usize,
        io_timeout: Duration,
        intervene: impl Fn(Step) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::of(false, most, io_timeout, intervene)
    }

    fn of(
        pipelines: bool,
        most: usize,
        io_timeout: Duration,
        intervene: impl Fn(Step) -> bool + Send + Sync + 'static,
    ) -> Self {
        let gates = Arc::new(Mutex::new(HashSet::from(["hold", "hold2"])));
        let closed = gates.clone();
        let intervene = Box::new(move |step| {
            if let Receive(name) | Transmit(name) = step
                && matches!(step, Receive("hold" | "hold2") | Transmit("slow"))
            {
                wait_until("the test opens the gate", || !closed.lock().contains(name));
            }
            intervene(step)
        });
        let steps = Arc::new(Steps { intervene, seen: Mutex::default() });
        let connector = Fake { pipelines, io_timeout, steps };
        Self { pool: Pool::new(connector, most), gates }
    }

    fn open(&self, gate: Name) {
        self.gates.lock().remove(gate);
    }

    fn call(&self, name: Name) -> Caller {
        let pool = self.pool.clone();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || ask(&pool, name)).unwrap()
    }

    /// A call that has its connection and waits at the gate.
    fn hold(&self, name: Name) -> Caller {
        let caller = self.call(name);
        wait_until("it is sent", || self.threads(Receive(name)).len() == 1);
        caller
    }

    fn queue<const N: usize>(&self, names: [Name; N]) -> [Caller; N] {
        names.map(|name| {
            let before = self.queued();
            let caller = self.call(name);
            wait_until("it queues", || self.queued() == before + 1);
            caller
        })
    }

    fn queued(&self) -> usize {
        self.pool.state.lock().queue.len()
    }

    fn threads(&self, step: Step) -> Vec<String> {
        let seen = self.pool.connector.steps.seen.lock();
        seen.threads
            .iter()
            .filter(|(done, _)| *done == step)
            .map(|(_, thread)| thread.clone())
            .collect()
    }

    fn writes(&self) -> Vec<(usize, Vec<Name>)> {
        self.pool.connector.steps.seen.lock().writes.clone()
    }

    fn goodbyes(&self) -> Vec<usize> {
        self.pool.connector.steps.seen.lock().goodbyes.clone()
    }

    /// Open and free connections.
    fn connections(&self) -> (usize, usize) {
        let state = self.pool.state.lock();
        (state.open(), state.lines.iter().filter(|line| line.is_idle()).count())
    }
}

fn ask(pool: &Pool<Fake>, name: Name) -> FakeOutcome {
    pool.ask(name, pool.most).map_err(Failed::of)
}

/// `None` for a caller that panicked.
fn outcomes<const N: usize>(callers: [Caller; N]) -> [Option<FakeOutcome>; N] {
    callers.map(|caller| caller.join().ok())
}

const UNKNOWN: Option<FakeOutcome> = Some(Err(Failed::Unknown));

fn not_sent(kind: ErrorKind) -> Option<FakeOutcome> {
    Some(Err(Failed::NotSent(kind)))
}

fn panic() -> bool {
    // Prints nothing.
    resume_unwind(Box::new("injected"))
}

#[test]
fn who_returns_a_connection_sends_the_queue_and_its_first_caller_reads() {
    let stage = Stage::new(1, |_| true);
    let hold = stage.hold("hold");
    let callers = stage.queue(["a", "A", "b", "c"]);
    stage.open("hold");
    assert_eq!(outcomes(callers), ["a", "A", "b", "c"].map(|name| Some(Ok(name))));
    assert_eq!(hold.join().unwrap(), Ok("hold"));
    assert_eq!(stage.writes(), [(1, vec!["hold"]), (1, vec!["a", "b", "c"]), (1, vec!["A"])]);
    assert_eq!(
        (stage.threads(Transmit("a")), stage.threads(Receive("c"))),
        (vec!["hold".into()], vec!["a".into()])
    );
    wait_until("the connection is free", || stage.connections() == (1, 1));
}

#[test]
fn what_goes_alone_takes_nothing_along() {
    let stage = Stage::new(1, |_| true);
    let hold = stage.hold("hold");
    let callers = stage.queue(["A", "b"]);
    stage.open("hold");
    assert_eq!(outcomes(callers), ["A", "b"].map(|name| Some(Ok(name))));
    hold.join().unwrap().unwrap();
    assert_eq!(stage.writes()[1..], [(1, vec!["A"]), (1, vec!["b"])]);
}

#[test]
fn a_caller_that_gives_up_is_not_sent() {
    let stage = Stage::patient(1, Duration::from_millis(50), |_| true);
    let hold = stage.hold("hold");
    assert_eq!(outcomes([stage.call("a")]), [not_sent(ErrorKind::Unreachable)]);
    assert_eq!(stage.queued(), 0);
    stage.open("hold");
    hold.join().unwrap().unwrap();
    assert_eq!((stage.writes().len(), stage.connections()), (1, (1, 1)));
}

#[test]
fn a_caller_whose_request_is_being_sent_does_not_give_up() {
    let stage = Stage::patient(1, Duration::from_secs(1), |_| true);
    stage.gates.lock().insert("slow");
    let hold = stage.hold("hold");
    let caller = stage.queue(["slow"]);
    stage.open("hold");
    wait_until("it is being sent", || stage.threads(Transmit("slow")).len() == 1);
    std::thread::sleep(stage.pool.connector.io_timeout * 5 / 4);
    stage.open("slow");
    assert_eq!(outcomes(caller), [Some(Ok("slow"))]);
    hold.join().unwrap().unwrap();
}

#[test]
fn a_giver_that_panics_before_it_sends_has_sent_nothing() {
    let stage = Stage::new(1, |step| step != Prepare("a") || panic());
    let hold = stage.hold("hold");
    let callers = stage.queue(["a", "b", "C"]);
    stage.open("hold");
    let nothing = not_sent(ErrorKind::Unreachable);
    assert_eq!(outcomes(callers), [nothing.clone(), nothing, Some(Ok("C"))]);
    assert!(hold.join().is_err());
    assert_eq!(stage.writes().last(), Some(&(2, vec!["C"])));
}

#[test]
fn what_a_giver_that_panics_may_have_sent_is_unknown() {
    let stage = Stage::new(1, |step| step != Transmit("a") || panic());
    let hold = stage.hold("hold");
    let callers = stage.queue(["a", "b", "C"]);
    stage.open("hold");
    assert_eq!(outcomes(callers), [UNKNOWN, UNKNOWN, Some(Ok("C"))]);
    assert!(hold.join().is_err());
    wait_until("the other connection is free", || stage.connections() == (1, 1));
}

#[test]
fn answers_that_came_before_a_leader_panics_count() {
    let stage = Stage::new(1, |step| step != Receive("c") || panic());
    let hold = stage.hold("hold");
    let callers = stage.queue(["a", "b", "c", "d", "E"]);
    stage.open("hold");
    assert_eq!(outcomes(callers), [None, Some(Ok("b")), UNKNOWN, UNKNOWN, Some(Ok("E"))]);
    hold.join().unwrap().unwrap();
    assert_eq!(stage.writes().last(), Some(&(2, vec!["E"])));
    wait_until("the other connection is free", || stage.connections() == (1, 1));
}

#[test]
fn a_connection_that_breaks_fails_what_has_no_answer_and_the_next_caller_makes_another() {
    for broken in [Transmit("a"), Receive("a"), Receive("b")] {
        let stage = Stage::new(1, move |step| step != broken);
        let hold = stage.hold("hold");
        let callers = stage.queue(["a", "b", "c", "D", "E"]);
        stage.open("hold");
        let first = if broken == Receive("b") { Some(Ok("a")) } else { UNKNOWN };
        assert_eq!(outcomes(callers), [first, UNKNOWN, UNKNOWN, Some(Ok("D")), Some(Ok("E"))]);
        hold.join().unwrap().unwrap();
        assert_eq!(stage.threads(Connect), ["hold", "D"], "{broken:?}");
        wait_until("the other connection is free", || stage.connections() == (1, 1));
    }
}

#[test]
fn a_connection_that_breaks_takes_the_idle_ones_along() {
    let stage = Stage::new(2, |step| step != Receive("broken"));
    let holds = ["hold", "hold2"].map(|name| stage.hold(name));
    stage.open("hold");
    stage.open("hold2");
    assert_eq!(outcomes(holds), [Some(Ok("hold")), Some(Ok("hold2"))]);
    assert_eq!(stage.connections(), (2, 2));
    assert_eq!(ask(&stage.pool, "broken"), Err(Failed::Unknown));
    assert_eq!(stage.connections(), (0, 0));
    assert_eq!(ask(&stage.pool, "last"), Ok("last"));
    assert_eq!(stage.connections(), (0, 0));
}

#[test]
fn an_answer_of_a_batch_may_be_the_last_of_its_connection() {
    let stage = Stage::new(1, |_| true);
    let hold = stage.hold("hold");
    let callers = stage.queue(["a", "last", "b", "C"]);
    stage.open("hold");
    assert_eq!(outcomes(callers), ["a", "last", "b", "C"].map(|name| Some(Ok(name))));
    hold.join().unwrap().unwrap();
    assert_eq!(stage.writes().last(), Some(&(2, vec!["C"])));
}

#[test]
fn without_a_connection_a_failed_connect_fails_the_queue() {
    let connects = Mutex::new(0);
    let stage = Stage::new(1, move |step| {
        *connects.lock() += usize::from(step == Connect);
        step != Receive("hold") && (step != Connect || *connects.lock() == 1)
    });
    let hold = stage.hold("hold");
    let callers = stage.queue(["a", "b"]);
    stage.open("hold");
    assert_eq!(outcomes(callers), [(); 2].map(|()| not_sent(ErrorKind::Denied)));
    assert_eq!(hold.join().unwrap(), Err(Failed::Unknown));
    assert_eq!(stage.connections(), (0, 0));
    assert_eq!(stage.pool.reached().1.unwrap().kind(), ErrorKind::Denied);
}

#[test]
fn after_a_failed_connect_the_queue_waits_for_the_connection_that_is_left() {
    let connects = Mutex::new(0);
    let stage = Stage::new(2, move |step| {
        *connects.lock() += usize::from(step == Connect);
        step != Receive("hold") && (step != Connect || *connects.lock() <= 2)
    });
    let holds = ["hold", "hold2"].map(|name| stage.hold(name));
    let callers = stage.queue(["a", "b"]);
    stage.open("hold");
    wait_until("the connect has failed", || {
        // Those who wait may try again.
        stage.connections() == (1, 0) && stage.threads(Connect).len() >= 3
    });
    assert_eq!(stage.queued(), 2);
    stage.open("hold2");
    assert_eq!(outcomes(callers), [Some(Ok("a")), Some(Ok("b"))]);
    assert_eq!(outcomes(holds), [UNKNOWN, Some(Ok("hold2"))]);
}

/// The thread that connects was the only one without a connection to wait for; meanwhile another
/// has put one into the pool.
#[test]
fn who_fails_to_connect_uses_the_connection_that_has_come_meanwhile() {
    let stage = Stage::new(2, |step| {
        if step == Connect && std::thread::current().name() == Some("a") {
            wait_until("the other connection has come", || OTHER.lock().take().is_some());
            return false;
        }
        true
    });
    static OTHER: Mutex<Option<()>> = Mutex::new(None);
    let [caller] = [stage.call("a")];
    wait_until("it connects", || stage.threads(Connect).len() == 1);
    stage.pool.connect_aside().unwrap().keep();
    assert_eq!(stage.connections(), (2, 1));
    *OTHER.lock() = Some(());
    assert_eq!(outcomes([caller]), [Some(Ok("a"))]);
}

/// However many connections end at once: the pool makes one for the queue, and no other beside it.
#[test]
fn one_connection_is_made_at_a_time() {
    let making = Mutex::new(0);
    let most = Arc::new(Mutex::new(0));
    let seen = most.clone();
    let stage = Stage::new(8, move |step| {
        if step == Connect {
            let now = {
                let mut making = making.lock();
                *making += 1;
                *making
            };
            std::thread::sleep(Duration::from_millis(2));
            *making.lock() -= 1;
            let mut seen = seen.lock();
            *seen = now.max(*seen);
        }
        !matches!(step, Receive("broken"))
    });
    let callers: Vec<JoinHandle<usize>> = (0..24)
        .map(|n| {
            let pool = stage.pool.clone();
            let name = if n % 8 == 0 { "broken" } else { "a" };
            spawn(move || (0..40).filter(|_| ask(&pool, name).is_ok()).count())
        })
        .collect();
    let answered: usize = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    assert!(answered > 0 && stage.threads(Connect).len() > 1, "{answered} answers");
    assert_eq!(*most.lock(), 1);
}

/// Each caller begins a new call as soon as the last one has failed.
#[test]
fn a_server_that_refuses_meets_one_connect_of_all_callers_after_a_growing_pause() {
    let stage = Stage::new(8, |step| step != Connect);
    let began = Instant::now();
    let callers: Vec<JoinHandle<()>> = (0..20)
        .map(|_| {
            let pool = stage.pool.clone();
            spawn(move || {
                // On a busy machine it takes longer until there are three.
                let connects = || pool.connector.steps.seen.lock().connects;
                let is_over = |longest| began.elapsed() >= Duration::from_millis(longest);
                while !is_over(600) || (connects() < 3 && !is_over(20_000)) {
                    assert_eq!(ask(&pool, "a"), Err(Failed::NotSent(ErrorKind::Denied)));
                }
            })
        })
        .collect();
    for caller in callers {
        caller.join().unwrap();
    }
    // Pauses of 5 ms at least, then 10, 20, 40, 80, and then 125; one more for the last calls.
    let connects = stage.threads(Connect).len();
    assert!((3..=15).contains(&connects), "{connects} connects");
}

#[test]
fn connections_aside_are_made_one_after_the_other() {
    let stage = Stage::new(1, |_| true);
    ask(&stage.pool, "a").unwrap();
    let first = stage.pool.connect_aside().unwrap();
    let pool = stage.pool.clone();
    let second = spawn(move || pool.connect_aside().is_ok());
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(stage.threads(Connect).len(), 2, "the second waits");
    drop(first);
    assert!(second.join().unwrap());
    assert_eq!((stage.threads(Connect).len(), stage.connections()), (3, (1, 1)));
}

#[test]
fn after_a_connect_that_panics_the_next_caller_connects() {
    let connects = Mutex::new(0);
    let stage = Stage::new(1, move |step| {
        *connects.lock() += usize::from(step == Connect);
        step != Receive("hold") && (step != Connect || *connects.lock() != 2 || panic())
    });
    let hold = stage.hold("hold");
    let callers = stage.queue(["a", "b"]);
    stage.open("hold");
    assert_eq!(outcomes(callers), [None, Some(Ok("b"))]);
    assert_eq!(hold.join().unwrap(), Err(Failed::Unknown));
    assert_eq!(stage.threads(Connect), ["hold", "a", "b"]);
    wait_until("the connection is free", || stage.connections() == (1, 1));
}

#[test]
fn a_closed_pool_fails_its_queue_with_its_last_connection() {
    for breaks in [false, true] {
        let stage = Stage::new(2, move |step| !breaks || step != Receive("hold"));
        let holds = ["hold", "hold2"].map(|name| stage.hold(name));
        let callers = stage.queue(["a", "b"]);
        stage.pool.close();
        stage.open("hold2");
        wait_until("it is closed", || stage.connections() == (1, 0));
        assert_eq!(stage.queued(), 2);
        stage.open("hold");
        assert_eq!(outcomes(callers), [(); 2].map(|()| not_sent(ErrorKind::Closed)));
        assert_eq!(
            outcomes(holds),
            [if breaks { UNKNOWN } else { Some(Ok("hold")) }, Some(Ok("hold2"))]
        );
        assert_eq!(ask(&stage.pool, "c"), Err(Failed::NotSent(ErrorKind::Closed)));
        assert_eq!((stage.connections(), stage.threads(Connect).len()), ((0, 0), 2));
    }
}

#[test]
fn a_close_ends_idle_connections() {
    let stage = Stage::new(1, |_| true);
    ask(&stage.pool, "a").unwrap();
    stage.pool.close();
    assert_eq!(stage.connections(), (0, 0));
    assert!(stage.pool.connect_aside().is_err());
    assert_eq!(stage.connections(), (0, 0));
}

#[test]
fn a_connection_is_looked_at_before_anything_is_sent_over_it() {
    let stage = Stage::new(1, |_| true);
    ask(&stage.pool, "a").unwrap();
    stage.pool.connector.steps.seen.lock().unusable.insert(1);
    let hold = stage.hold("hold");
    stage.pool.connector.steps.seen.lock().unusable.insert(2);
    let callers = stage.queue(["b", "c"]);
    stage.open("hold");
    assert_eq!(outcomes(callers), [Some(Ok("b")), Some(Ok("c"))]);
    hold.join().unwrap().unwrap();
    assert_eq!(stage.writes(), [(1, vec!["a"]), (2, vec!["hold"]), (3, vec!["b", "c"])]);
}

#[test]
fn the_first_connection_is_made_by_its_caller_and_the_second_aside() {
    let stage = Stage::new(2, |_| true);
    let hold = stage.hold("hold");
    assert_eq!(outcomes([stage.call("a")]), [Some(Ok("a"))]);
    assert_eq!(stage.writes().last(), Some(&(2, vec!["a"])));
    stage.open("hold");
    hold.join().unwrap().unwrap();
    wait_until("both are free", || stage.connections() == (2, 2));
    assert_eq!(stage.threads(Connect), ["hold", "lh-connect"]);
}

#[test]
fn two_requests_have_an_outcome_each() {
    let stage = Stage::new(1, |step| step != Receive("b"));
    assert!(stage.pool.ask_two(&"a", &"c").is_none());
    ask(&stage.pool, "a").unwrap();
    let ask_two = |second| {
        let both = stage.pool.ask_two(&"a", second)?;
        Some(both.map(|outcome| outcome.map_err(Failed::of)))
    };
    assert_eq!(ask_two(&"c"), Some([Ok("a"), Ok("c")]));
    assert_eq!(ask_two(&"b"), Some([Ok("a"), Err(Failed::Unknown)]));
    assert_eq!((stage.writes().len(), stage.connections()), (3, (0, 0)));
}

/// The first of them writes while the answer to `hold` is due, and the others queue.
fn behind<const N: usize>(stage: &Stage, names: [Name; N]) -> [Caller; N] {
    let mut first = true;
    names.map(|name| {
        let before = stage.queued();
        let caller = stage.call(name);
        if std::mem::take(&mut first) {
            wait_until("it is sent", || stage.threads(Transmit(name)).len() == 1);
        } else {
            wait_until("it queues", || stage.queued() == before + 1);
        }
        caller
    })
}

#[test]
fn a_caller_sends_behind_what_is_under_way_and_those_who_queue_behind_that() {
    let stage = Stage::pipelining(1, |_| true);
    let hold = stage.hold("hold");
    let callers = behind(&stage, ["a", "b", "c"]);
    stage.open("hold");
    assert_eq!(hold.join().unwrap(), Ok("hold"));
    assert_eq!(outcomes(callers), ["a", "b", "c"].map(|name| Some(Ok(name))));
    let writes = [vec!["hold"], vec!["a"], vec!["b", "c"]];
    assert_eq!(stage.writes(), writes.map(|names| (1, names)));
    assert_eq!(
        (stage.threads(Receive("a")), stage.threads(Receive("c"))),
        (vec!["a".into()], vec!["b".into()])
    );
    wait_until("the connection is free", || stage.connections() == (1, 1));
}

#[test]
fn nothing_follows_or_precedes_what_goes_alone_on_its_connection() {
    let stage = Stage::pipelining(1, |_| true);
    let hold = stage.hold("hold");
    let [alone] = stage.queue(["A"]);
    let callers = stage.queue(["b", "c"]);
    stage.open("hold");
    assert_eq!(outcomes([alone]), [Some(Ok("A"))]);
    assert_eq!(outcomes(callers), [Some(Ok("b")), Some(Ok("c"))]);
    hold.join().unwrap().unwrap();
    assert_eq!(stage.writes(), [vec!["hold"], vec!["A"], vec!["b", "c"]].map(|names| (1, names)));
}

#[test]
fn what_goes_alone_gets_a_connection_that_the_others_do_not_need() {
    let stage = Stage::pipelining(8, |_| true);
    let hold = stage.hold("hold");
    let [a] = behind(&stage, ["a"]);
    wait_until("another one is made aside", || stage.connections() == (2, 1));
    let hold2 = stage.hold("hold2");
    assert_eq!(outcomes([stage.call("A")]), [Some(Ok("A"))]);
    wait_until("it is idle again", || stage.connections() == (3, 1));
    stage.open("hold");
    stage.open("hold2");
    let names = ["hold", "hold2", "a"].map(|name| Some(Ok(name)));
    assert_eq!(outcomes([hold, hold2, a]), names);
}

#[test]
fn a_connection_that_breaks_fails_all_that_are_under_way_on_it() {
    let stage = Stage::pipelining(1, |step| step != Receive("a"));
    let hold = stage.hold("hold");
    let callers = behind(&stage, ["a", "b", "c"]);
    stage.open("hold");
    assert_eq!(hold.join().unwrap(), Ok("hold"));
    assert_eq!(outcomes(callers), [UNKNOWN, UNKNOWN, UNKNOWN]);
    assert_eq!(stage.connections(), (0, 0));
    assert_eq!(ask(&stage.pool, "d"), Ok("d"));
}

#[test]
fn a_write_that_fails_behind_others_is_unknown_for_its_callers_and_those_who_wait() {
    for panics in [false, true] {
        let stage = Stage::pipelining(1, move |step| step != Transmit("b") || (panics && panic()));
        let hold = stage.hold("hold");
        let [b] = behind(&stage, ["b"]);
        wait_until("the connection is shut", || {
            let mut state = stage.pool.state.lock();
            state.line(1).is_none_or(|line| matches!(line.phase, Phase::Ending))
        });
        stage.open("hold");
        assert_eq!(outcomes([hold, b]), [UNKNOWN, if panics { None } else { UNKNOWN }]);
        wait_until("it is over", || stage.connections() == (0, 0));
        assert_eq!(ask(&stage.pool, "d"), Ok("d"));
    }
}

#[test]
fn what_is_being_written_when_the_connection_breaks_is_unknown_and_not_sent_again() {
    let stage = Stage::pipelining(1, |step| step != Receive("hold"));
    stage.gates.lock().insert("slow");
    let hold = stage.hold("hold");
    let slow = stage.call("slow");
    wait_until("it is being sent", || stage.threads(Transmit("slow")).len() == 1);
    stage.open("hold");
    assert_eq!(outcomes([hold]), [UNKNOWN]);
    stage.open("slow");
    assert_eq!(outcomes([slow]), [UNKNOWN]);
    assert_eq!(stage.writes(), [(1, vec!["hold"]), (1, vec!["slow"])]);
}

#[test]
fn a_thread_that_panics_before_it_writes_behind_others_has_sent_nothing() {
    let stage = Stage::pipelining(1, |step| step != Prepare("b") || panic());
    let hold = stage.hold("hold");
    assert_eq!(outcomes([stage.call("b")]), [None]);
    stage.open("hold");
    assert_eq!(outcomes([hold]), [UNKNOWN]);
    assert_eq!(stage.writes(), [(1, vec!["hold"])]);
    wait_until("it is over", || stage.connections() == (0, 0));
}

/// That of the connection which is made beside the one that it sends over.
#[test]
fn a_panic_while_it_sends_behind_others_loses_no_place() {
    let stage = Stage::pipelining(8, |step| step != Prepare("a") || panic());
    let hold = stage.hold("hold");
    // Or the thread that connects panics with it.
    assert!(!matches!(stage.call("a").join(), Ok(Ok(_))));
    assert_eq!(outcomes([stage.call("b")]), [Some(Ok("b"))]);
    stage.open("hold");
    let _ = hold.join();
    wait_until("no place is reserved", || !stage.pool.state.lock().connecting);
}

#[test]
fn nobody_follows_on_a_connection_to_a_server_that_was_replaced() {
    let stage = Stage::pipelining(8, |_| true);
    let hold = stage.hold("hold");
    stage.pool.connector.steps.seen.lock().outdated.insert(1);
    assert_eq!(outcomes([stage.call("a")]), [Some(Ok("a"))]);
    assert_eq!(stage.writes(), [(1, vec!["hold"]), (2, vec!["a"])]);
    stage.open("hold");
    hold.join().unwrap().unwrap();
    wait_until("it is closed", || stage.connections().0 <= 1);
}

/// What was sent behind the silence waits for it, and nobody else does.
#[test]
fn a_connection_that_falls_silent_holds_up_nobody_who_queues_for_it() {
    let stage = Stage::pipelining(8, |_| true);
    stage.pool.state.lock().late = LATE;
    // In a crowd, all share one connection.
    let _crowd: Vec<_> = (0..8).map(|_| stage.pool.callers.begin_call()).collect();
    assert_eq!(outcomes([stage.call("before")]), [Some(Ok("before"))]);
    let hold = stage.hold("hold");
    let [a] = behind(&stage, ["a"]);
    assert_eq!(outcomes(["b", "c"].map(|name| stage.call(name))), [Some(Ok("b")), Some(Ok("c"))]);
    assert!(stage.writes()[3..].iter().all(|(connection, _)| *connection != 1));
    stage.open("hold");
    assert_eq!(outcomes([hold, a]), [Some(Ok("hold")), Some(Ok("a"))]);
}

#[test]
fn after_the_last_answer_of_a_connection_those_under_way_are_read() {
    let stage = Stage::pipelining(1, |_| true);
    let hold = stage.hold("hold");
    let callers = behind(&stage, ["last", "a", "b"]);
    stage.open("hold");
    hold.join().unwrap().unwrap();
    assert_eq!(outcomes(callers), ["last", "a", "b"].map(|name| Some(Ok(name))));
    wait_until("it is over", || stage.connections() == (0, 0));
}

#[test]
fn a_closed_pool_reads_what_is_under_way() {
    let stage = Stage::pipelining(1, |_| true);
    let hold = stage.hold("hold");
    let callers = behind(&stage, ["a", "b"]);
    stage.pool.close();
    assert_eq!(ask(&stage.pool, "c"), Err(Failed::NotSent(ErrorKind::Closed)));
    stage.open("hold");
    hold.join().unwrap().unwrap();
    assert_eq!(outcomes(callers), [Some(Ok("a")), Some(Ok("b"))]);
    wait_until("it is over", || stage.connections() == (0, 0));
}

/// Whatever fails: every call returns, an answer is its own, and no place is lost.
#[test]
fn many_callers_with_failures_at_random() {
    for pipelines in [false, true] {
        fail_at_random(pipelines);
    }
}

fn fail_at_random(pipelines: bool) {
    const NAMES: [Name; 6] = ["a", "b", "c", "D", "e", "last"];
    let dice = std::sync::atomic::AtomicU64::new(1);
    let stage = Stage::of(pipelines, 3, Duration::from_secs(20), move |_| {
        let thrown = dice
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15);
        match (thrown >> 33) % 100 {
            0..3 => panic(),
            3..7 => false,
            _ => true,
        }
    });
    let callers = NAMES.map(|name| {
        let pool = stage.pool.clone();
        spawn(move || {
            for _ in 0..500 {
                if let Ok(Ok(answer)) = catch_unwind(AssertUnwindSafe(|| ask(&pool, name))) {
                    assert_eq!(answer, name);
                }
            }
        })
    });
    for caller in callers {
        caller.join().unwrap();
    }
    let is_quiet = || {
        let state = stage.pool.state.lock();
        let is_idle = state.lines.iter().all(|line| line.is_idle());
        state.queue.is_empty() && is_idle && !state.connecting
    };
    wait_until("all places are free or empty", is_quiet);
}

#[test]
fn what_is_urgent_goes_before_all_that_queue() {
    let stage = Stage::new(1, |_| true);
    let hold = stage.hold("hold");
    let callers = stage.queue(["A", "B", "urgent"]);
    stage.open("hold");
    assert_eq!(outcomes(callers), ["A", "B", "urgent"].map(|name| Some(Ok(name))));
    hold.join().unwrap().unwrap();
    let order = ["urgent", "A", "B"].map(|name| (1, vec![name]));
    assert_eq!(stage.writes()[1..], order);
}

#[test]
fn a_batch_is_not_so_large_that_the_last_waits_long_for_the_first() {
    let stage = Stage::new(1, |_| true);
    let hold = stage.hold("hold");
    let callers: Vec<Caller> = (0..200).map(|_| stage.call("a")).collect();
    wait_until("all queue", || stage.queued() == 200);
    stage.open("hold");
    for caller in callers {
        assert_eq!(caller.join().unwrap(), Ok("a"));
    }
    hold.join().unwrap().unwrap();
    let sizes: Vec<usize> = stage.writes().iter().map(|(_, names)| names.len()).collect();
    assert_eq!(sizes, [1, 128, 72]);
}

#[test]
fn a_close_says_goodbye_to_each_connection_once() {
    let stage = Stage::new(2, |_| true);
    let hold = stage.hold("hold");
    wait_until("the other connection is free", || {
        ask(&stage.pool, "a").unwrap();
        stage.connections() == (2, 1)
    });
    stage.pool.close();
    assert_eq!(stage.goodbyes(), [2]);
    stage.open("hold");
    hold.join().unwrap().unwrap();
    wait_until("it has ended", || stage.goodbyes() == [2, 1]);
    assert_eq!(stage.connections(), (0, 0));
    assert_eq!(ask(&stage.pool, "b"), Err(Failed::NotSent(ErrorKind::Closed)));
}

#[test]
fn a_connection_beside_the_pool_is_kept_if_there_is_a_place() {
    let stage = Stage::new(1, |_| true);
    let aside = stage.pool.connect_aside().unwrap();
    assert_eq!((aside.id, stage.connections()), (1, (0, 0)));
    aside.keep();
    assert_eq!(stage.connections(), (1, 1));
    assert_eq!(ask(&stage.pool, "a"), Ok("a"));
    assert_eq!(stage.writes(), [(1, vec!["a"])]);
    let mut second = stage.pool.connect_aside().unwrap();
    second.names = vec!["b"];
    second.keep();
    assert_eq!((stage.connections(), stage.goodbyes()), ((1, 1), vec![2]), "all places are taken");
    let third = stage.pool.connect_aside().unwrap();
    stage.pool.close();
    third.keep();
    assert_eq!((stage.connections(), stage.goodbyes()), ((0, 0), vec![2, 1, 3]));
    assert_eq!(stage.pool.connect_aside().err().unwrap().kind(), ErrorKind::Closed);
}

/// All threads of a client together make one connection more than it may have.
#[test]
fn there_is_one_connection_beside_the_pool_at_a_time() {
    let stage = Stage::patient(1, Duration::from_millis(30), |_| true);
    let aside = stage.pool.connect_aside().unwrap();
    let error = stage.pool.connect_aside().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.message().contains("used a new connection to nowhere"), "{error}");
    stage.pool.connector.steps.seen.lock().held_up_by = Some("a long script".to_owned());
    let error = stage.pool.connect_aside().err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotReady);
    assert!(error.message().ends_with(": a long script"), "{error}");
    drop(aside);
    assert!(stage.pool.connect_aside().is_ok());
}

/// A server that is down meets one connect of all that wait for a turn.
#[test]
fn who_has_waited_for_a_connect_that_failed_does_not_connect_as_well() {
    let gate = Arc::new(AtomicBool::new(false));
    let opens = gate.clone();
    let stage = Stage::new(1, move |step| {
        wait_until("the test opens the gate", || opens.load(Ordering::SeqCst));
        step != Connect
    });
    let connects = || stage.pool.connector.steps.seen.lock().connects;
    std::thread::scope(|scope| {
        let first = scope.spawn(|| stage.pool.connect_aside().err().unwrap().kind());
        wait_until("it connects", || connects() == 1);
        let others: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| stage.pool.connect_aside().err().unwrap().kind()))
            .collect();
        // Nothing shows that they wait; one that comes later connects as well.
        std::thread::sleep(Duration::from_millis(50));
        gate.store(true, Ordering::SeqCst);
        for caller in others.into_iter().chain([first]) {
            assert_eq!(caller.join().unwrap(), ErrorKind::Denied);
        }
    });
    assert!(connects() < 8, "{} connects", connects());
    let reached = stage.pool.reached();
    assert!(!reached.0 && reached.1.unwrap().kind() == ErrorKind::Denied);
}

#[test]
fn a_caller_learns_why_it_got_no_connection() {
    let why = |stage: &Stage| {
        let failed = stage.pool.ask("a", 1).err().unwrap();
        let Failure::NotSent(error) = failed else { panic!("{failed:?}") };
        error
    };
    let stage = Stage::patient(1, Duration::from_millis(50), |_| true);
    let hold = stage.hold("hold");
    let error = why(&stage);
    assert!(error.message().contains("all 1 connections to nowhere were busy"), "{error}");
    stage.pool.connector.steps.seen.lock().held_up_by = Some("a long script".to_owned());
    let error = why(&stage);
    assert!(error.kind() == ErrorKind::NotReady && error.message().contains("a long script"));
    stage.open("hold");
    hold.join().unwrap().unwrap();
    // And where the first connection is still being made.
    let gate = Arc::new(AtomicBool::new(false));
    let opens = gate.clone();
    let stage = Stage::patient(1, Duration::from_millis(50), move |step| {
        if step == Connect {
            wait_until("the test opens the gate", || opens.load(Ordering::SeqCst));
        }
        true
    });
    let connects = stage.call("b");
    wait_until("it connects", || stage.pool.state.lock().connecting);
    let error = why(&stage);
    assert!(error.message().contains("no connection to nowhere could be made"), "{error}");
    gate.store(true, Ordering::SeqCst);
    connects.join().unwrap().unwrap();
}

#[test]
fn the_state_of_the_server_is_that_of_the_last_connect() {
    let works = Arc::new(AtomicBool::new(false));
    let up = works.clone();
    let stage = Stage::new(2, move |step| step != Connect || up.load(Ordering::SeqCst));
    let status = |is_connected| {
        let status = stage.pool.status(is_connected);
        assert_eq!(status.address(), "nowhere");
        (status.state(), status.last_error().map(Error::kind))
    };
    assert_eq!(status(false), (NodeState::Voting, None), "nobody has asked it yet");
    ask(&stage.pool, "a").unwrap_err();
    assert_eq!(status(false), (NodeState::Down, Some(ErrorKind::Denied)));
    // The connection for renewals works.
    assert_eq!(status(true), (NodeState::Voting, Some(ErrorKind::Denied)));
    works.store(true, Ordering::SeqCst);
    ask(&stage.pool, "a").unwrap();
    assert_eq!(status(false), (NodeState::Voting, None));
    assert_eq!(stage.pool.most, 2);
    assert!(format!("{:?}", stage.pool).contains("open: 1, idle: 1, queued: 0"));
}

/// Every connection of the pool may have ended with the first one.
#[test]
fn a_request_is_repeated_as_often_as_there_are_connections_and_not_for_long() {
    let stage = Stage::new(3, |_| true);
    let clock = FakeClock::default();
    let mut repeats = Repeats::over(&stage.pool, &clock);
    assert_eq!([(); 6].map(|()| repeats.one_more()), [true, true, true, true, false, false]);
    // Later the key that makes a repeat harmless may be gone.
    let mut repeats = Repeats::over(&stage.pool, &clock);
    clock.advance(IDEMPOTENCY_TTL / 2 - Duration::from_millis(1));
    assert!(repeats.one_more());
    clock.advance(Duration::from_millis(1));
    assert!(!repeats.one_more());
}

/// No byte of it has left the client, so it is not unknown.
#[test]
fn what_was_not_sent_before_its_connection_broke_is_sent_over_another() {
    let pool: Arc<OnceLock<Arc<Pool<Fake>>>> = Arc::default();
    let (known, is_prepared) = (pool.clone(), AtomicBool::new(false));
    let stage = Stage::pipelining(1, move |step| {
        match step {
            Receive("x") => {
                wait_until("b is prepared", || is_prepared.load(Ordering::SeqCst));
                return false;
            }
            Prepare("b") if !is_prepared.swap(true, Ordering::SeqCst) => {
                let pool = known.get().unwrap();
                wait_until("the connection is gone", || pool.state.lock().lines.is_empty());
            }
            _ => {}
        }
        true
    });
    pool.set(stage.pool.clone()).ok().unwrap();
    let first = stage.call("x");
    wait_until("it is sent", || stage.threads(Receive("x")).len() == 1);
    assert_eq!(outcomes([stage.call("b")]), [Some(Ok("b"))]);
    assert_eq!(outcomes([first]), [UNKNOWN]);
    assert_eq!(stage.writes().last(), Some(&(2, vec!["b"])));
}

#[test]
fn a_request_that_did_not_run_is_sent_in_another_way() {
    let stage = Stage::new(2, |_| true);
    assert_eq!(ask(&stage.pool, "again"), Ok("instead"));
    let both = stage.pool.ask_two(&"again", &"b").unwrap();
    assert_eq!(both.map(|outcome| outcome.map_err(Failed::of)), [Ok("instead"), Ok("b")]);
    // Of a request that has queued, too.
    let caller = stage.hold("hold");
    let other = stage.hold("hold2");
    let callers = stage.queue(["again"]);
    stage.open("hold");
    assert_eq!(outcomes(callers), [Some(Ok("instead"))]);
    stage.open("hold2");
    assert_eq!(outcomes([caller, other]), [Some(Ok("hold")), Some(Ok("hold2"))]);
}

#[test]
fn some_callers_of_a_near_server_need_one_connection() {
    let stage = Stage::pipelining(8, |_| true);
    // More than would have one each.
    let _crowd: Vec<_> = (0..8).map(|_| stage.pool.callers.begin_call()).collect();
    let hold = stage.hold("hold");
    let behind = stage.call("a");
    wait_until("it is sent behind", || stage.writes().len() == 2);
    let queued = stage.queue(["b"]);
    stage.open("hold");
    assert_eq!(outcomes([hold, behind]), [Some(Ok("hold")), Some(Ok("a"))]);
    assert_eq!(outcomes(queued), [Some(Ok("b"))]);
    assert!(stage.writes().iter().all(|(connection, _)| *connection == 1));
    assert_eq!(stage.pool.connector.steps.seen.lock().connects, 1);
}

/// A request that stays would be chosen to connect or to read for others, by nobody.
#[test]
fn a_caller_that_panics_leaves_the_queue_or_waits_for_what_was_taken_from_it() {
    let stage = Stage::new(1, |_| true);
    let pool = &stage.pool;
    let request = |state| {
        let queued = Arc::new(QueuedRequest::<Fake>::new("a"));
        queued.set(state);
        queued
    };
    let queued = request(RequestState::Queued);
    pool.state.lock().queue.push_back(queued.clone());
    drop(MustWait { pool, queued: &queued });
    assert_eq!(stage.queued(), 0);
    let taken = request(RequestState::InBatch);
    std::thread::scope(|scope| {
        let leaves = scope.spawn(|| drop(MustWait { pool, queued: &taken }));
        std::thread::sleep(Duration::from_millis(10));
        assert!(!leaves.is_finished());
        taken.set(RequestState::Done(Ok("a")));
        leaves.join().unwrap();
    });
}

/// Where connections carry one batch at a time, each that is returned serves the queue.
#[test]
fn without_senders_every_connection_serves_all_callers() {
    let stage = Stage::new(2, |_| true);
    let _crowd: Vec<_> = (0..8).map(|_| stage.pool.callers.begin_call()).collect();
    stage.pool.callers.measured(Duration::ZERO);
    stage.pool.state.lock().late = Duration::from_secs(60);
    let (first, second) = (stage.hold("hold"), stage.hold("hold2"));
    stage.pool.callers.measured(Duration::ZERO);
    let queued = stage.queue(["a"]);
    stage.open("hold2");
    assert_eq!(outcomes(queued), [Some(Ok("a"))]);
    stage.open("hold");
    assert_eq!(outcomes([first, second]), [Some(Ok("hold")), Some(Ok("hold2"))]);
}

/// It leaves the connection that many share to them.
#[test]
fn what_goes_alone_takes_a_connection_that_serves_no_others() {
    let stage = Stage::pipelining(2, |_| true);
    let hold = stage.hold("hold");
    assert_eq!(outcomes([stage.call("A")]), [Some(Ok("A"))]);
    stage.open("hold");
    hold.join().unwrap().unwrap();
    wait_until("both are free", || stage.connections() == (2, 2));
    let _crowd: Vec<_> = (0..8).map(|_| stage.pool.callers.begin_call()).collect();
    for (name, connection) in [("b", 1), ("B", 2), ("c", 1), ("C", 2)] {
        stage.pool.callers.measured(Duration::ZERO);
        assert_eq!(ask(&stage.pool, name), Ok(name));
        assert_eq!(stage.writes().last(), Some(&(connection, vec![name])));
    }
}
