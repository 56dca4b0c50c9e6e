//! Ten processes whose clocks differ by up to 300 ms, with a job of 2 ms. Some of them die before
//! it, in it, and after it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;

use leasehold::{LockClient, Once};

use crate::rig::{Child, Server, fresh_dir, ms};

const PROCESSES: u64 = 10;
const OCCURRENCES: u32 = 24;
/// How much the clocks of neighbours differ.
const SKEW: std::time::Duration = ms(33);

/// What happens to the first attempt at an occurrence.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    DiesBefore,
    DiesInIt,
    DiesAfter,
    Fails,
    Lives,
}

fn fate(occurrence: u32) -> Fate {
    match occurrence {
        5 => Fate::DiesBefore,
        10 => Fate::DiesInIt,
        15 => Fate::DiesAfter,
        n if n % 7 == 3 => Fate::Fails,
        _ => Fate::Lives,
    }
}

/// The lines of all processes, in order: `began`, `worked` or `done`, and an occurrence.
fn lines(log: &Path) -> Vec<(String, u32)> {
    let text = std::fs::read_to_string(log).unwrap();
    let parse = |line: &str| {
        let (what, occurrence) = line.split_once(' ').expect("two words");
        (what.to_owned(), occurrence.parse().expect("a number"))
    };
    text.lines().map(parse).collect()
}

pub(super) fn ten_processes_do_each_occurrence_once(url: &str) {
    let dir = fresh_dir();
    let log = dir.join("log");
    let spawn = |number: u64| {
        let (number, log) = (number.to_string(), log.to_str().unwrap());
        let env = [
            ("LEASEHOLD_TEST_URL", url),
            ("LEASEHOLD_TEST_NUMBER", &number),
            ("LEASEHOLD_TEST_LOG", log),
        ];
        Child::spawn("once::processes::one_machine", &env)
    };
    let mut children: Vec<Child> = (0..PROCESSES).map(spawn).collect();
    let ended = children.iter_mut().map(|child| child.expect("ended ")).collect::<Vec<_>>();
    // Each death takes one of them.
    let lived = ended.iter().filter(|how| *how == "well").count();
    assert_eq!(lived as u64, PROCESSES - 3, "{ended:?}");
    drop(children);

    let mut times: BTreeMap<(String, u32), u32> = BTreeMap::new();
    for line in lines(&log) {
        *times.entry(line).or_default() += 1;
    }
    let count = |what: &str, n| times.get(&(what.to_owned(), n)).copied().unwrap_or(0);
    for n in 1..=OCCURRENCES {
        let (began, worked, done) = match fate(n) {
            Fate::Lives => (1, 1, 1),
            Fate::Fails | Fate::DiesBefore | Fate::DiesInIt => (2, 1, 1),
            // The one thing that is not promised.
            Fate::DiesAfter => (2, 2, 1),
        };
        let seen = [count("began", n), count("worked", n), count("done", n)];
        assert_eq!(seen, [began, worked, done], "occurrence {n}: {:?}", fate(n));
    }
    // One at a time, and in order. (A process says "done" some time after that was recorded.)
    let mut order = lines(&log);
    order.retain(|(what, _)| what != "done");
    assert!(order.is_sorted_by_key(|(_, n)| *n), "{order:?}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn ten_processes_on_redis() {
    let server = Server::start();
    ten_processes_do_each_occurrence_once(&server.url());
    // The lease of a process that died is gone, and what is left expires.
    server.assert_clean();
}

#[cfg(feature = "postgres")]
#[test]
fn ten_processes_on_postgres() {
    let server = crate::rig::Postgres::shared();
    ten_processes_do_each_occurrence_once(&server.url());
    server.assert_clean();
}

#[cfg(feature = "zookeeper")]
#[test]
fn ten_processes_on_zookeeper() {
    let server = crate::rig::zookeeper::ZooKeeper::shared("tickTime=100");
    ten_processes_do_each_occurrence_once(&server.url_in("/ten-processes"));
}

#[test]
#[ignore = "a program for other tests"]
fn one_machine() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let number: u32 = variable("LEASEHOLD_TEST_NUMBER").parse().unwrap();
    let log = variable("LEASEHOLD_TEST_LOG");
    // One write for each line: those of several processes do not mix.
    let mut log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    let mut say = |what: &str, n: u32| log.write_all(format!("{what} {n}\n").as_bytes()).unwrap();
    let die = || -> ! {
        println!("@@ended badly");
        std::process::abort()
    };
    // An idle machine needs a tenth of the lease for each of its calls.
    let builder = LockClient::builder().url(variable("LEASEHOLD_TEST_URL"));
    let client = builder.lease(ms(6000)).io_timeout(ms(5000)).build().unwrap();
    std::thread::sleep(SKEW * number);
    let mut seen = BTreeSet::new();
    for n in 1..=OCCURRENCES {
        let job = client.once("report", format!("{n:03}")).attempts(20);
        loop {
            let outcome = job.run(|run| {
                let fate = if run.attempt() == 1 { fate(n) } else { Fate::Lives };
                say("began", n);
                match fate {
                    Fate::DiesBefore => die(),
                    Fate::Fails => return Err("on purpose"),
                    _ => {}
                }
                std::thread::sleep(ms(2));
                if fate == Fate::DiesInIt {
                    die();
                }
                say("worked", n);
                if fate == Fate::DiesAfter {
                    die();
                }
                Ok(())
            });
            match outcome.unwrap() {
                Once::Done(()) => {
                    say("done", n);
                    break;
                }
                Once::AlreadyDone { .. } | Once::Passed { .. } => break,
                Once::Failed(_) | Once::Running { .. } => {}
                other => panic!("{n}: {other:?}"),
            }
            let _ = job.wait_done_for(ms(200)).unwrap();
        }
        assert!(seen.insert(n));
    }
    println!("@@ended well");
}
