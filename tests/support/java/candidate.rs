//! A process of ours that stands for election, beside holders of Redisson or Curator.

use std::time::Duration;

use leasehold::{Error, ErrorKind, Leader, LeaderWatch};

use crate::rig::{Child, ms, wait_until};
use crate::stress::builder;

/// What a leader of ours writes for others.
const DATA: &[u8] = b"ours";

/// Each of its terms lasts until somebody asks for the leadership: then it resigns.
pub(crate) struct Candidate(Child);

impl Candidate {
    pub(crate) fn start(url: &str, lease: Duration, election: &str) -> Self {
        let lease = lease.as_millis().to_string();
        let env = [
            ("LEASEHOLD_TEST_URL", url),
            ("LEASEHOLD_TEST_LEASE", &lease),
            ("LEASEHOLD_TEST_NAME", election),
        ];
        let mut child = Child::spawn("java::candidate::standing_process", &env);
        child.expect("ready");
        Self(child)
    }

    /// Returns when it waits for the leadership.
    pub(crate) fn waits(&mut self) {
        self.0.say("waits");
        self.0.expect("waits");
    }

    /// Returns the number of its next term when that has begun.
    pub(crate) fn leads(&mut self) -> u64 {
        self.0.expect("leads ").parse().unwrap()
    }

    /// Returns when its term has been told to end.
    pub(crate) fn ended(&mut self) {
        self.0.expect("ended");
    }

    /// The only end at which it closes its client.
    pub(crate) fn stop(mut self) {
        self.0.say("stop");
        self.0.expect("stopped");
        self.0.wait();
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }
}

#[test]
#[ignore = "a program for other tests"]
fn standing_process() {
    let value = |name: &str| std::env::var(name).unwrap();
    let lease = ms(value("LEASEHOLD_TEST_LEASE").parse().unwrap());
    let client = builder(&value("LEASEHOLD_TEST_URL")).lease(lease).build().unwrap();
    let election = client.election(value("LEASEHOLD_TEST_NAME")).with_data(DATA);
    println!("@@ready");
    std::thread::scope(|s| {
        let runs = s.spawn(|| {
            election.run(|term| {
                println!("@@leads {}", term.number().get());
                while !term.cancel_token().wait_timeout(ms(10)) {
                    if term.is_requested() {
                        term.resign();
                    }
                }
                println!("@@ended");
                Ok::<(), Error>(())
            })
        });
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if line == "stop" {
                break;
            }
            wait_until("it waits", || !client.snapshot().waits().is_empty());
            println!("@@waits");
        }
        client.stop_waiting();
        assert_eq!(runs.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    });
    client.close(ms(5000)).unwrap();
    println!("@@stopped");
}

/// Whether it is a leader of ours, in this term.
pub(crate) fn is_ours(leader: Option<&Leader>, term: u64) -> bool {
    leader.is_some_and(|leader| {
        leader.data() == DATA && leader.term().is_some_and(|number| number.get() == term)
    })
}

/// Whether Java leads: a leader without a term.
pub(crate) fn is_java(leader: Option<&Leader>) -> bool {
    leader.is_some_and(|leader| leader.term().is_none() && leader.data().is_empty())
}

/// Watches until such a leader is seen, and checks that no term went back on the way.
#[track_caller]
pub(crate) fn watch_until(watch: &mut LeaderWatch, is_such: impl Fn(Option<&Leader>) -> bool) {
    let mut highest = None;
    for leader in watch {
        let leader = leader.unwrap();
        let term = leader.as_ref().and_then(Leader::term);
        assert!(term.is_none() || term >= highest, "{leader:?} after {highest:?}");
        highest = highest.max(term);
        if is_such(leader.as_ref()) {
            return;
        }
    }
    panic!("the watch has ended");
}
