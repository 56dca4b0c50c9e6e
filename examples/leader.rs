//! One of several processes is the scheduler, and when it ends, another one goes on.
//!
//! Each stands for election. The leader numbers what it does with its term, and the resource
//! refuses lower numbers than it has seen: a leader that was suspended, and does not know yet that
//! another one leads, can change nothing. Everybody can see who leads, and ask the leader to give
//! way.
//!
//! `cargo run --example leader -- redis://127.0.0.1/`

use std::sync::Mutex;
use std::time::Duration;

use leasehold::fencing::FencingToken;
use leasehold::{CancelToken, Election, Error, ErrorKind, LockClient, Result, Term};

const TICK: Duration = Duration::from_millis(20);
const LEASE: Duration = Duration::from_secs(2);

/// What the leader changes: the highest term that it has seen, and how many changes there were.
#[derive(Default)]
struct Resource(Mutex<(Option<FencingToken>, u32)>);

impl Resource {
    fn change(&self, term: FencingToken) -> bool {
        let mut resource = self.0.lock().expect("nobody panics");
        let is_present = resource.0 <= Some(term);
        if is_present {
            *resource = (Some(term), resource.1 + 1);
        }
        is_present
    }
}

fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "redis://127.0.0.1/".to_owned());
    let resource = Resource::default();
    let end = CancelToken::new();
    let seen = LockClient::open(&url)?.election("scheduler").with_cancel(&end);
    std::thread::scope(|scope| {
        // Each thread represents a process.
        let process = |name: &'static str| {
            let (url, resource, end) = (&url, &resource, &end);
            scope.spawn(move || {
                let client = LockClient::builder()
                    .url(url)
                    .lease(LEASE)
                    .io_timeout(LEASE / 5 * 4)
                    .build()?;
                let election = client.election("scheduler").with_data(name).with_cancel(end);
                election.run(|term| lead(name, term, resource))
            })
        };
        let processes = [process("host-a"), process("host-b"), process("host-c")];
        // Three leaders, one after the other.
        for _ in 0..3 {
            let before = wait_for_leader(&seen, None)?;
            std::thread::sleep(TICK * 5);
            seen.request()?;
            wait_for_leader(&seen, Some(before))?;
        }
        end.cancel();
        for process in processes {
            let ended: Result<()> = process.join().expect("no process panics");
            assert_eq!(ended.expect_err("it was cancelled").kind(), ErrorKind::Cancelled);
        }
        Ok::<(), Error>(())
    })?;
    let (last, changes) = *resource.0.lock().expect("nobody panics");
    println!("the last term was {}, after {changes} changes", last.expect("there was a leader"));
    println!("no change of an earlier term came late");
    Ok(())
}

/// Works until somebody else asks for the leadership.
fn lead(name: &str, term: &Term, resource: &Resource) -> Result<()> {
    println!("{name} leads in the term {}", term.number());
    while !term.cancel_token().wait_timeout(TICK) {
        assert!(resource.change(term.number()), "another one leads by now");
        if term.is_requested() {
            term.resign();
        }
    }
    Ok(())
}

/// Waits for a leader with a higher term.
fn wait_for_leader(seen: &Election, before: Option<FencingToken>) -> Result<FencingToken> {
    loop {
        if let Some(term) = seen.leader()?.and_then(|leader| leader.term())
            && Some(term) > before
        {
            return Ok(term);
        }
        std::thread::sleep(TICK);
    }
}
