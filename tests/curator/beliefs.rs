//! The times in which holders believed that they held a lock, by the clock of the whole machine.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{LockClient, Result};

use crate::driver::now;
use crate::kinds::Held;
use crate::rig::{Child, ms};

/// A guard reported at both ends, and so in between, that it holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Belief {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) token: u64,
}

impl Belief {
    fn parse(line: &str) -> Self {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        Self { from: numbers[0], to: numbers[1], token: numbers[2] }
    }

    /// The beliefs that all processes have written to the file so far.
    pub(crate) fn read(path: &Path) -> Vec<Self> {
        std::fs::read_to_string(path).unwrap().lines().map(Self::parse).collect()
    }
}

/// The faults in the beliefs in a lock: two at the same time, or a token that is not larger than
/// the one before.
pub(crate) fn faults(mut beliefs: Vec<Belief>) -> Vec<String> {
    beliefs.sort_by_key(|belief| belief.from);
    let mut found = Vec::new();
    let mut last = Belief { from: 0, to: 0, token: 0 };
    for belief in beliefs {
        if belief.from <= last.to {
            let both = Duration::from_nanos(last.to.min(belief.to) - belief.from);
            found.push(format!("{last:?} and {belief:?} at the same time for {both:?}"));
        }
        if belief.token <= last.token {
            found.push(format!("{belief:?} has no larger token than {last:?}"));
        }
        if belief.to > last.to {
            last = belief;
        }
    }
    found
}

/// Checks for this long, or until it returns false. `None` if it returned false at once.
pub(crate) fn watch(held: &Held, span: Duration) -> Option<Belief> {
    let (start, mut believed) = (now(), None);
    loop {
        // Taken before the check: at this time it was held if the check says so.
        let at = now();
        if !held.is_held() {
            return believed;
        }
        believed.get_or_insert(Belief { from: at, to: at, token: held.token }).to = at;
        if Duration::from_nanos(at - start) >= span {
            return believed;
        }
        std::thread::sleep(ms(1));
    }
}

/// A process that acquires the lock `k` repeatedly, and writes its beliefs to a file.
pub(crate) struct Believer(Child);

impl Believer {
    pub(crate) fn start(url: &str, lease: Duration, file: &Path) -> Self {
        let lease = lease.as_millis().to_string();
        let env = [
            ("LEASEHOLD_TEST_URL", url),
            ("LEASEHOLD_TEST_LEASE", &lease),
            ("LEASEHOLD_TEST_FILE", file.to_str().unwrap()),
        ];
        let mut child = Child::spawn("beliefs::believing_process", &env);
        child.expect("ready");
        Self(child)
    }

    pub(crate) fn signal(&self, name: &str) {
        self.0.signal(name);
    }

    /// Makes it keep its next hold until that is lost, and waits until it has it.
    pub(crate) fn keep(&mut self) {
        self.0.say("keep");
        self.0.expect("keeps");
    }

    /// Returns when it has closed its client.
    pub(crate) fn stop(mut self) {
        self.0.say("stop");
        self.0.expect("stopped");
        self.0.wait();
    }
}

fn take(client: &LockClient, turn: u64) -> Result<Option<Held>> {
    // The mutex, the fair lock, and the multi-lock with one more name.
    let kind = &crate::kinds::KINDS[[0, 1, 3][usize::try_from(turn % 3).unwrap()]];
    kind.try_for(client, "k", Duration::from_secs(5))
}

#[test]
#[ignore = "a program for other tests"]
fn believing_process() {
    let value = |name: &str| std::env::var(name).unwrap();
    let lease = ms(value("LEASEHOLD_TEST_LEASE").parse().unwrap());
    let client = LockClient::builder()
        .url(value("LEASEHOLD_TEST_URL"))
        .lease(lease)
        .connect_lazily()
        .build()
        .unwrap();
    let path = value("LEASEHOLD_TEST_FILE");
    println!("@@ready");
    let (over, keep) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|s| {
        for worker in 0..2 {
            let (client, path, over, keep) = (&client, &path, &over, &keep);
            s.spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for turn in worker.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    let Ok(Some(held)) = take(client, turn) else {
                        std::thread::sleep(ms(5));
                        continue;
                    };
                    // Sometimes longer than the lease: the session must keep it.
                    let mut span = if turn % 40 == 39 { lease + ms(200) } else { ms(turn % 9) };
                    if keep.swap(false, Ordering::SeqCst) {
                        println!("@@keeps it");
                        span = Duration::from_secs(60);
                    }
                    // Written before the release, each line in a single write.
                    if let Some(Belief { from, to, token }) = watch(&held, span) {
                        file.write_all(format!("{from} {to} {token}\n").as_bytes()).unwrap();
                    }
                }
            });
        }
        while std::io::stdin()
            .lines()
            .next()
            .is_some_and(|line| line.is_ok_and(|line| line == "keep"))
        {
            keep.store(true, Ordering::SeqCst);
        }
        over.store(true, Ordering::SeqCst);
    });
    let _ = client.close(ms(5000));
    println!("@@stopped");
}

#[test]
fn two_at_a_time_are_found() {
    let belief = |from, to, token| Belief { from, to, token };
    assert_eq!(
        faults(vec![belief(10, 20, 2), belief(1, 9, 1), belief(21, 21, 3)]),
        Vec::<String>::new()
    );
    assert_eq!(faults(vec![belief(1, 9, 1), belief(9, 20, 2)]).len(), 1);
    // Also after a short belief.
    assert_eq!(
        faults(vec![belief(1, 50, 1), belief(60, 70, 2), belief(61, 62, 3), belief(65, 80, 4)])
            .len(),
        2
    );
    assert_eq!(faults(vec![belief(1, 9, 2), belief(10, 20, 2)]).len(), 1);
}
