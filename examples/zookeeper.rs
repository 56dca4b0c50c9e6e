//! A nightly report that one of several instances writes, elected by a lock in ZooKeeper. The
//! holder is cut off in the middle of its work: its guard reports the loss before anybody else has
//! the lock, and its late write is refused.
//!
//! The cut is real: the connections of one instance run through a relay in this program, which
//! stops forwarding and closes nothing, as a firewall or a dead switch does.
//!
//! A Java service takes turns on the same lock with Curator, under the same chroot:
//!
//! ```java
//! InterProcessMutex lock = new InterProcessMutex(curator, "/nightly/report");
//! ```
//!
//! `cargo run --features zookeeper --example zookeeper -- zookeeper://localhost:2181/example`
//!
//! Any ZooKeeper from 3.5 on works, such as that of `docker run -p 2181:2181 zookeeper`. Only a
//! node for the chroot stays there.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold::fencing::{Claim, FenceGate, FencingToken};
use leasehold::{ErrorKind, LockClient, OwnedMutexGuard};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The session timeout that is requested. A server with default settings grants no less than 4 s.
const LEASE: Duration = Duration::from_secs(2);
const LONGEST_CUT: Duration = Duration::from_secs(60);

/// Which instance wrote the report of each night. Here it is in this process; for a table use
/// `SqlFence`.
type Reports = FenceGate<BTreeMap<u32, &'static str>>;

struct Instance {
    name: &'static str,
    client: LockClient,
}

impl Instance {
    fn start(name: &'static str, url: &str) -> leasehold::Result<Self> {
        // Each instance has its own session, as if it ran on its own machine.
        let client = LockClient::builder().url(url).lease(LEASE).client_name(name).build()?;
        Ok(Self { name, client })
    }

    /// Waits until it is elected, and claims the reports: from then on no earlier holder can write
    /// them.
    fn elected<'r>(
        &self,
        reports: &'r Reports,
    ) -> leasehold::Result<(OwnedMutexGuard, Claim<'r, Nights>)> {
        let guard = self.client.mutex("nightly/report").lock_owned()?;
        // The number of the change that created this holder's node: the next holder's is larger.
        let token: FencingToken = guard.fencing_token()?;
        let claim = reports.claim(token)?;
        Ok((guard, claim))
    }

    /// One night's job. Returns false if another instance has done it.
    fn write_report(&self, night: u32, reports: &Reports) -> leasehold::Result<bool> {
        let (guard, claim) = self.elected(reports)?;
        let is_due = claim.read(|all| !all.contains_key(&night))?;
        if is_due {
            // ... the work ...
            guard.ensure_held()?;
            claim.write(|all| all.insert(night, self.name))?;
        }
        guard.unlock()?;
        Ok(is_due)
    }
}

type Nights = BTreeMap<u32, &'static str>;

fn main() -> Outcome<()> {
    let url = std::env::args().nth(1).ok_or("a URL is needed: zookeeper://host:2181/chroot")?;
    let relay = Relay::before(&url)?;
    let (a, b, c) = (
        Instance::start("a", &relay.url)?,
        Instance::start("b", &url)?,
        Instance::start("c", &url)?,
    );
    println!("sessions of {:?}", a.client.lease());
    let reports = FenceGate::new(Nights::new());

    one_of_three(1, [&a, &b, &c], &reports)?;
    cut_off(2, &a, &b, &relay, &reports)?;
    one_of_three(3, [&a, &b, &c], &reports)?;

    let nights: Vec<u32> = reports.into_inner().into_keys().collect();
    if nights != [1, 2, 3] {
        return Err(format!("reports of the nights {nights:?}").into());
    }
    println!("each night has one report, and no late one");
    Ok(())
}

fn one_of_three(night: u32, instances: [&Instance; 3], reports: &Reports) -> Outcome<()> {
    let wrote = std::thread::scope(|s| {
        let all = instances.map(|one| s.spawn(|| one.write_report(night, reports)));
        all.into_iter()
            .map(|one| one.join().expect("no panic"))
            .collect::<leasehold::Result<Vec<bool>>>()
    })?;
    let elected = instances.iter().zip(wrote).filter(|(_, wrote)| *wrote).map(|(one, _)| one.name);
    println!("night {night}: written by {}", elected.collect::<String>());
    Ok(())
}

/// The holder is cut off before it writes.
fn cut_off(
    night: u32,
    late: &Instance,
    next: &Instance,
    relay: &Relay,
    reports: &Reports,
) -> Outcome<()> {
    let (guard, claim) = late.elected(reports)?;
    let start = Instant::now();
    relay.cut();
    std::thread::scope(|s| -> Outcome<()> {
        let successor = s.spawn(|| -> leasehold::Result<bool> {
            let (theirs, claim) = next.elected(reports)?;
            let believed = guard.is_held();
            println!(
                "  after {:.1?} {} has the lock: token {}",
                start.elapsed(),
                next.name,
                claim.token()
            );
            claim.write(|all| all.insert(night, next.name))?;
            theirs.unlock()?;
            Ok(believed)
        });
        // A job with a loop of its own checks `is_held` before each step.
        if !guard.wait_lost(LONGEST_CUT).is_lost() {
            return Err("the holder was cut off, and believes".into());
        }
        println!(
            "night {night}: {} is cut off; after {:.1?} it knows that it may have lost",
            late.name,
            start.elapsed()
        );
        if successor.join().expect("no panic")? {
            return Err("two believed in the lock at the same time".into());
        }
        Ok(())
    })?;
    // As if it had been suspended between its last check and its write: only the token helps.
    match claim.write(|all| all.insert(night, late.name)) {
        Err(error) if error.kind() == ErrorKind::Stale => {
            println!("  the late write is refused: {error}");
        }
        _ => return Err("a late write was taken".into()),
    }
    relay.heal();
    match guard.unlock() {
        Err(error) if error.kind() == ErrorKind::Lost => Ok(()),
        other => Err(format!("the unlock of a lost lock says {other:?}").into()),
    }
}

/// The relay between an instance and ZooKeeper.
struct Relay {
    url: String,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_cut: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// Starts a relay to the first server of the URL.
    fn before(url: &str) -> Outcome<Self> {
        let rest = url
            .strip_prefix("zookeeper://")
            .ok_or("the URL is not zookeeper://host:2181/chroot")?;
        let (authority, chroot) = rest.split_once('/').unwrap_or((rest, ""));
        let (identity, hosts) = match authority.rsplit_once('@') {
            Some((identity, hosts)) => (format!("{identity}@"), hosts),
            None => (String::new(), authority),
        };
        let first = hosts.split(',').next().unwrap_or(hosts);
        let server = if first.contains(':') { first.to_owned() } else { format!("{first}:2181") };

        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("zookeeper://{identity}{}/{chroot}", listener.local_addr()?);
        let state = Arc::new(State::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                if let Err(error) = shared.carry(&near, &server) {
                    eprintln!("the relay cannot reach {server}: {error}");
                }
            }
        });
        Ok(Self { url, state })
    }

    /// From now on nothing is forwarded, in either direction.
    fn cut(&self) {
        self.state.is_cut.store(true, Ordering::SeqCst);
    }

    /// Ends the connections, because their streams are incomplete; new ones work.
    fn heal(&self) {
        self.state.is_cut.store(false, Ordering::SeqCst);
        for stream in self.state.streams.lock().expect("no panic").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl State {
    fn carry(self: &Arc<Self>, near: &TcpStream, server: &str) -> std::io::Result<()> {
        let far = TcpStream::connect(server)?;
        for (from, to) in [(near, &far), (&far, near)] {
            from.set_nodelay(true)?;
            self.streams.lock().expect("no panic").push(from.try_clone()?);
            let (mut from, mut to, state) = (from.try_clone()?, to.try_clone()?, self.clone());
            std::thread::spawn(move || {
                let mut chunk = [0; 4096];
                while let Ok(length @ 1..) = from.read(&mut chunk) {
                    if !state.is_cut.load(Ordering::SeqCst)
                        && to.write_all(&chunk[..length]).is_err()
                    {
                        break;
                    }
                }
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
        Ok(())
    }
}
