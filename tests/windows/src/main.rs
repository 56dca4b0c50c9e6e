//! A program on Windows that a test on Linux directs. Each line of its input is an instruction for
//! one of its threads, and each line of its output is an answer, after the name of that thread.

use std::collections::HashMap;
use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use leasehold::observe::HolderOwner;
use leasehold::{Held, LockClient, LossWait, Redlock, Result, Tls};

/// More than a test waits.
const LONG: Duration = Duration::from_secs(600);
/// How many permits the semaphores have.
const PERMITS: u32 = 2;

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["agent", url, lease] => agent(url, lease, Tls::new()),
        ["agent", url, lease, authority] => agent(url, lease, Tls::new().ca_file(authority)),
        // A command of `leasehold run` that starts a process and goes on, as that process does.
        ["family", mark] => {
            let child = Command::new(std::env::current_exe()?).args(["stay", mark]).spawn()?;
            answer("family", &format!("started {}", child.id()));
            std::thread::sleep(LONG);
            Ok(())
        }
        ["exit", status] => std::process::exit(status.parse::<u32>()?.cast_signed()),
        ["stay", _] => {
            std::thread::sleep(LONG);
            Ok(())
        }
        _ => Err("usage: agent URL LEASE_MS [CA_FILE] | family MARK | stay MARK | exit STATUS".into()),
    }
}

/// In one write, because several threads answer.
fn answer(thread: &str, text: &str) {
    let _ = stdout().write_all(format!("{thread} {text}\n").as_bytes());
}

fn agent(url: &str, lease: &str, tls: Tls) -> std::result::Result<(), Box<dyn Error>> {
    let lease = Duration::from_millis(lease.parse()?);
    let builder = LockClient::builder().lease(lease).owner("agent");
    let builder = if url.contains(' ') { builder.redlock(Redlock::new(url.split(' '))) } else { builder.url(url) };
    let client = if url.starts_with("rediss") { builder.tls(tls) } else { builder }.build()?;
    answer("main", &format!("ready {} {}", std::process::id(), std::env::var("COMPUTERNAME")?));
    let mut threads: HashMap<String, Sender<String>> = HashMap::new();
    for line in stdin().lock().lines() {
        let line = line?;
        let Some((thread, instruction)) = line.split_once(' ') else { break };
        let sender = threads.entry(thread.to_owned()).or_insert_with(|| {
            let (sender, instructions) = channel();
            let (name, client) = (thread.to_owned(), client.clone());
            std::thread::spawn(move || Agent { client, guards: Vec::new() }.obey(&name, &instructions));
            sender
        });
        sender.send(instruction.to_owned())?;
    }
    // What is held is released when the threads end.
    drop(threads);
    client.close(Duration::from_secs(20))?;
    answer("main", "closed");
    Ok(())
}

/// A guard of any kind, in a box.
trait Guard: Held {
    fn give_up(self: Box<Self>) -> Result<()>;
}

impl<G: Held> Guard for G {
    fn give_up(self: Box<Self>) -> Result<()> {
        Held::unlock(*self)
    }
}

/// Threads that are between a lock and its unlock in [`Agent::compete`].
static INSIDE: AtomicU32 = AtomicU32::new(0);

/// A thread and what it holds.
struct Agent {
    client: LockClient,
    guards: Vec<Box<dyn Guard>>,
}

impl Agent {
    fn obey(mut self, thread: &str, instructions: &Receiver<String>) {
        for instruction in instructions {
            let done = self.carry_out(&instruction);
            answer(thread, &done.unwrap_or_else(|e| format!("error {:?} {e}", e.kind())));
        }
    }

    fn carry_out(&mut self, instruction: &str) -> Result<String> {
        let words: Vec<&str> = instruction.split(' ').collect();
        match words[..] {
            ["lock", kind, name] => {
                let guard = self.take(kind, name, LONG)?.expect("it has long enough");
                self.guards.push(guard);
                Ok("held".to_owned())
            }
            ["try", kind, name] => {
                let guard = self.take(kind, name, Duration::ZERO)?;
                let said = if guard.is_some() { "held" } else { "taken" };
                self.guards.extend(guard);
                Ok(said.to_owned())
            }
            ["is_held"] => Ok(self.last().is_held().to_string()),
            ["wait_lost"] => Ok(match self.last().wait_lost(LONG) {
                LossWait::Lost => format!("lost {}", self.last().is_held()),
                other => format!("{other:?}"),
            }),
            ["unlock"] => self.guards.pop().expect("it holds something").give_up().map(|()| "freed".to_owned()),
            ["owner", name] => {
                let holder = self.client.mutex(name).holder()?;
                let owner = holder.as_ref().and_then(|holder| holder.owner()).map(HolderOwner::to_string);
                Ok(owner.unwrap_or_else(|| "nobody".to_owned()))
            }
            ["count_down", name] => self.client.latch(name).count_down().map(|left| left.to_string()),
            ["await", name] => self.client.latch(name).wait().map(|()| "open".to_owned()),
            ["compete", name, times] => self.compete(name, times.parse().expect("a number")),
            _ => Ok("not an instruction".to_owned()),
        }
    }

    fn last(&self) -> &dyn Guard {
        &**self.guards.last().expect("it holds something")
    }

    fn take(&self, kind: &str, name: &str, time: Duration) -> Result<Option<Box<dyn Guard>>> {
        fn boxed<G: Guard + 'static>(guard: Option<G>) -> Option<Box<dyn Guard>> {
            guard.map(|guard| Box::new(guard) as Box<dyn Guard>)
        }
        let client = &self.client;
        match kind {
            "mutex" => client.mutex(name).try_lock_for(time).map(boxed),
            "fair" => client.fair(name).try_lock_for(time).map(boxed),
            "read" => client.rw_lock(name).try_read_for(time).map(boxed),
            "write" => client.rw_lock(name).try_write_for(time).map(boxed),
            "permit" => {
                let semaphore = client.semaphore(name);
                semaphore.try_set_permits(PERMITS)?;
                semaphore.try_acquire_for(time).map(boxed)
            }
            other => panic!("no kind of lock: {other}"),
        }
    }

    fn compete(&self, name: &str, times: u32) -> Result<String> {
        for _ in 0..times {
            let guard = self.client.lock(name)?;
            if INSIDE.fetch_add(1, Ordering::SeqCst) > 0 {
                return Ok("two at the same time".to_owned());
            }
            std::thread::yield_now();
            INSIDE.fetch_sub(1, Ordering::SeqCst);
            guard.unlock()?;
        }
        Ok("done".to_owned())
    }
}
