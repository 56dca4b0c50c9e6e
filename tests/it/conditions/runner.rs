//! Makes all calls of a row together, each on a name and a thread of its own, beside a bystander.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Error, LockClient, Result};
use parking_lot::Mutex;

use super::calls::{self, Call};
use super::cell::{Cell, Ending, Moment, Outcome, Steps, Waiters};
use super::row::{Class, Row, Stage};
use crate::rig::{CAP, PROMPT, Server, kept_dir, ms, wait_until};
use crate::support::Clients;

/// Each connect, write and reply, where calls wait for it.
pub(super) const IO: Duration = ms(1000);
/// More than a busy machine needs beside the time that is documented.
const SLACK: Duration = ms(6000);

/// A call to a server that hangs can meet three of them in a row.
fn request(io: Duration) -> Duration {
    3 * io + SLACK
}

/// Far more than any bound.
const LONGEST: Duration = Duration::from_secs(40);

/// The time after which a call has ended, according to its documentation.
fn bound(call: &Call, io: Duration) -> Duration {
    match call.class {
        Class::Local => call.time + SLACK,
        Class::Report => 10 * io + SLACK,
        // After the end of the condition. Far less than a lease.
        Class::Wait | Class::WaitForPermit | Class::WaitForRate => PROMPT,
        _ => call.time + request(io),
    }
}

/// What another client of the same process has at a healthy server, and a name of the same client
/// if the condition spares it.
struct Bystander {
    clients: Vec<LockClient>,
    name: String,
    /// How many of the clients hold the lock.
    stands: AtomicUsize,
    ends: AtomicBool,
    /// The longest call, and what went wrong.
    found: Mutex<(Duration, Vec<String>)>,
    server: Server,
    io: Duration,
}

impl Bystander {
    fn new(stage: &dyn Stage, client: &LockClient) -> Self {
        let server = Server::start();
        let io = stage.io_timeout();
        // A call of a busy machine may take longer than those of the row, and must not fail.
        let patient = server.builder().io_timeout(ms(8000));
        let mut clients = vec![patient.build().expect("the healthy server")];
        clients.extend(stage.spares_others().then(|| client.clone()));
        Self {
            clients,
            name: stage.beside(),
            stands: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
            found: Mutex::default(),
            server,
            io,
        }
    }

    /// Holds a lock, and takes and gives back another one, until it is told to end.
    fn stand(&self, client: &LockClient) {
        let held = client.lock(&self.name).expect("nothing has begun");
        self.stands.fetch_add(1, Ordering::SeqCst);
        let again = format!("{{{}}}-again", self.name);
        while !self.ends.load(Ordering::SeqCst) {
            let began = Instant::now();
            let answer = client
                .try_lock(&again)
                .and_then(|guard| guard.map(|guard| guard.unlock()).transpose());
            let mut found = self.found.lock();
            found.0 = found.0.max(began.elapsed());
            match answer {
                Ok(Some(())) => {}
                Ok(None) => found
                    .1
                    .push("a call of the bystander: nobody has it, and it is taken".to_owned()),
                Err(e) => found.1.push(format!("a call of the bystander: {e}")),
            }
            found.1.extend(held.loss().map(|loss| format!("the hold of the bystander: {loss}")));
            drop(found);
            std::thread::sleep(ms(10));
        }
        if let Err(e) = held.unlock() {
            self.found.lock().1.push(format!("the hold of the bystander: {e}"));
        }
    }

    fn judge(self, wrong: &mut Vec<String>) {
        let (longest, found) = self.found.into_inner();
        if longest > 3 * self.io + ms(2000) {
            wrong.push(format!("a call of the bystander took {longest:?}"));
        }
        wrong.extend(found);
        drop(self.clients);
        self.server.assert_clean();
    }
}

/// Is set in the process of a row that has one of its own.
const ALONE: &str = "LEASEHOLD_ALONE";

/// Runs the calls whose names contain `LEASEHOLD_CALL`.
pub(super) fn run(row: &Row) {
    if row.alone && std::env::var_os(ALONE).is_none() {
        return run_in_another_process();
    }
    let mut stage = (row.stage)();
    let only = std::env::var("LEASEHOLD_CALL").unwrap_or_default();
    let chosen = |call: &Call| call.name.contains(&only) && stage.offers(call.name);
    let calls: Vec<Call> = calls::all().into_iter().filter(chosen).collect();
    assert!(!calls.is_empty(), "no call has {only:?} in its name");
    let waiters = Arc::new(Waiters::before(stage.listener()));
    let client = stage
        .builder()
        .io_timeout(stage.io_timeout())
        .listener(waiters.clone())
        .build()
        .expect("all is well");
    let other = stage.other();
    let mut wrong = Vec::new();
    let bystander = Bystander::new(&*stage, &client);
    let mut outcomes = std::thread::scope(|s| {
        let _ends = Finally(|| bystander.ends.store(true, Ordering::SeqCst));
        for client in &bystander.clients {
            s.spawn(|| bystander.stand(client));
        }
        wait_until("the bystander holds its locks", || {
            bystander.stands.load(Ordering::SeqCst) == bystander.clients.len()
        });
        let clients = (&client, &other);
        meet(&calls, &mut *stage, clients, &waiters, &bystander.name, &mut wrong)
    });
    bystander.judge(&mut wrong);
    judge(row, stage.io_timeout(), &calls, &outcomes, &mut wrong);
    let snapshot = client.snapshot();
    if !snapshot.holds().is_empty() || !snapshot.waits().is_empty() {
        wrong.push(format!("the client's tables are not empty: {snapshot:?}"));
    }
    wrong.extend(client.close(CAP).err().map(|e| format!("it does not close: {e}")));
    for ending in outcomes.iter_mut().flat_map(|met| std::mem::take(&mut met.endings)) {
        wrong.extend(
            ending().err().map(|e| format!("what a call has left is not cleared away: {e}")),
        );
    }
    wrong.extend(other.close(CAP).err().map(|e| format!("it does not close: {e}")));
    let table = table(row, &calls, &outcomes);
    let tables = kept_dir().join("conditions");
    std::fs::create_dir_all(&tables).expect("the directory of tables");
    std::fs::write(tables.join(format!("{}.txt", row.name)), &table).expect("the table");
    assert!(
        wrong.is_empty(),
        "{table}\n{}: {} are wrong:\n{}",
        row.name,
        wrong.len(),
        wrong.join("\n")
    );
    stage.assert_clean();
}

/// Runs this test again. What it prints is shown if it fails.
fn run_in_another_process() {
    let thread = std::thread::current();
    let test = thread.name().expect("the test harness names its threads");
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let ended =
        command.args([test, "--exact", "--nocapture"]).env(ALONE, "1").output().expect("it starts");
    let (out, err) =
        (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert!(ended.status.success() && out.contains("1 passed"), "{out}\n{err}");
}

/// Is done also if the row panics: its scope waits for threads that wait for this.
struct Finally<F: FnMut()>(F);

impl<F: FnMut()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A cell whose call was made, or could not be prepared.
struct Met {
    outcome: Option<Outcome>,
    answer: Result<()>,
    endings: Vec<Ending>,
}

/// Prepares, begins the condition, makes all calls, and ends it.
fn meet(
    calls: &[Call],
    stage: &mut dyn Stage,
    clients: (&LockClient, &LockClient),
    waiters: &Waiters,
    beside: &str,
    wrong: &mut Vec<String>,
) -> Vec<Met> {
    let steps = Steps::default();
    let names: Vec<String> = (0..calls.len()).map(|cell| stage.name(cell)).collect();
    std::thread::scope(|s| {
        let _steps = Finally(|| {
            steps.let_go(Moment::Begun);
            steps.let_go(Moment::Over);
        });
        let mut threads = Vec::new();
        for (call, name) in calls.iter().zip(&names) {
            let steps = &steps;
            threads.push(s.spawn(move || {
                let cell = Cell::new(clients, name, steps, waiters);
                let mut answer = (call.run)(&cell);
                for _ in 0..3 {
                    // On a busy machine a preparation may find no answer in time.
                    if cell.has_passed() || !answer.as_ref().is_err_and(Error::is_outage) {
                        break;
                    }
                    answer = (call.run)(&cell);
                }
                let (outcome, endings) = cell.finish();
                Met { outcome, answer, endings }
            }));
        }
        assert!(steps.all_reach(Moment::Prepared, calls.len(), LONGEST), "the preparation ends");
        stage.begin(&[&names[..], &[beside.to_owned()]].concat());
        steps.let_go(Moment::Begun);
        let until = Instant::now() + LONGEST;
        while !steps.all_reach(Moment::Answered, calls.len(), ms(20)) {
            count_connections(stage, wrong);
            if Instant::now() > until {
                wrong.push(
                    "calls have no answer while the condition lasts: they are the longest below"
                        .to_owned(),
                );
                break;
            }
        }
        count_connections(stage, wrong);
        stage.end();
        steps.let_go(Moment::Over);
        threads.into_iter().map(|thread| thread.join().expect("a call does not panic")).collect()
    })
}

fn count_connections(stage: &mut dyn Stage, wrong: &mut Vec<String>) {
    if let Some((now, most)) = stage.connections()
        && now > most
    {
        wrong.push(format!("{now} connections, of {most} that the client may have"));
    }
}

fn judge(row: &Row, io: Duration, calls: &[Call], outcomes: &[Met], wrong: &mut Vec<String>) {
    for (call, Met { outcome, answer, .. }) in calls.iter().zip(outcomes) {
        let Some(outcome) = outcome else {
            wrong.push(format!("{}: its preparation failed: {answer:?}", call.name));
            continue;
        };
        let right = (row.answers)(call.class);
        if !right.contains(&outcome.kind) {
            wrong.push(format!(
                "{}: {:?} is not among {right:?}: {}",
                call.name, outcome.kind, outcome.text
            ));
        }
        if outcome.after > bound(call, io) {
            wrong.push(format!(
                "{}: it took {:?}, and may take {:?}",
                call.name,
                outcome.after,
                bound(call, io)
            ));
        }
        if outcome.kind.is_some() && !row.says.iter().any(|word| outcome.text.contains(word)) {
            wrong.push(format!("{}: {:?} does not say {:?}", call.name, outcome.text, row.says));
        }
    }
}

fn table(row: &Row, calls: &[Call], outcomes: &[Met]) -> String {
    let mut lines = vec![format!("{}: {}", row.name, row.words)];
    for (call, Met { outcome, answer, .. }) in calls.iter().zip(outcomes) {
        let text = match outcome {
            Some(outcome) => {
                let kind = outcome.kind.map_or("done".to_owned(), |kind| format!("{kind:?}"));
                format!("{kind:<14} {:>7.3} s  {}", outcome.after.as_secs_f64(), outcome.text)
            }
            None => format!("not made: {answer:?}"),
        };
        lines.push(format!("{:<44} {:<8} {text}", call.name, format!("{:?}", call.class)));
    }
    lines.join("\n")
}
