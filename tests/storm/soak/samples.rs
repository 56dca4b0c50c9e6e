//! What is sampled: the processes that live to the end, and what the servers keep.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::deployment::Deployment;
use crate::run::Crew;

/// The samples of one store by series, each with its time in minutes.
pub(super) type Series = BTreeMap<String, Vec<(f64, f64)>>;

/// How many locks a process has taken, from what it has written so far.
#[derive(Default)]
struct Taken {
    read: u64,
    locks: u64,
}

impl Taken {
    /// Reads what has come since the last time.
    fn read_on(&mut self, journal: &Path) -> u64 {
        let mut file = File::open(journal).unwrap();
        file.seek(SeekFrom::Start(self.read)).unwrap();
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).unwrap();
        // The last line may be incomplete.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        let text = String::from_utf8_lossy(&bytes[..whole]);
        self.locks +=
            text.lines().filter(|line| line.split(' ').nth(3) == Some("got")).count() as u64;
        self.locks
    }
}

pub(super) struct Samples {
    store: String,
    file: PathBuf,
    series: Series,
    taken: BTreeMap<PathBuf, Taken>,
}

/// A number from `/proc/PID/status`, such as `VmRSS`.
fn status(pid: u32, field: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap()
}

/// The open files of a process, and how many of them are sockets.
fn files(pid: u32) -> (f64, f64) {
    let links = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok());
    let (sockets, others): (Vec<_>, Vec<_>) =
        links.partition(|link| link.to_string_lossy().starts_with("socket:"));
    ((sockets.len() + others.len()) as f64, sockets.len() as f64)
}

impl Samples {
    /// They are also written to a file in this directory, whatever happens to this process.
    pub(super) fn of(store: &str, into: &Path) -> Self {
        let file = into.join("samples.csv");
        Self { store: store.to_owned(), file, series: Series::new(), taken: BTreeMap::new() }
    }

    pub(super) fn take(&mut self, at: Duration, deployment: &dyn Deployment, crew: &Crew) {
        let mut sample = Vec::new();
        let mut locks = 0;
        for (index, (pid, journal)) in crew.steady().enumerate() {
            let (files, sockets) = files(pid);
            sample.push((format!("p{index} memory MB"), status(pid, "VmRSS") / 1024.0));
            sample.push((format!("p{index} threads"), status(pid, "Threads")));
            sample.push((format!("p{index} files"), files));
            sample.push((format!("p{index} sockets"), sockets));
            locks += self.taken.entry(journal.to_owned()).or_default().read_on(journal);
        }
        sample.push(("locks taken".to_owned(), locks as f64));
        for (name, value) in deployment.kept() {
            let (name, value) = if name == "bytes" {
                ("store MB", value as f64 / 1e6)
            } else {
                (name, value as f64)
            };
            sample.push((name.to_owned(), value));
        }
        self.add(at.as_secs_f64() / 60.0, sample);
    }

    fn add(&mut self, minutes: f64, sample: Vec<(String, f64)>) {
        let lines: String = sample
            .iter()
            .map(|(name, value)| format!("{},{minutes:.2},{name},{value}\n", self.store))
            .collect();
        let mut file = OpenOptions::new().append(true).create(true).open(&self.file).unwrap();
        // One write, because the other stores write to it as well.
        file.write_all(lines.as_bytes()).unwrap();
        for (name, value) in sample {
            self.series.entry(name).or_default().push((minutes, value));
        }
    }

    pub(super) fn into_series(self) -> Series {
        self.series
    }
}

#[test]
fn a_process_and_its_journal_are_read() {
    let pid = std::process::id();
    assert!(status(pid, "VmRSS") > 100.0 && status(pid, "Threads") >= 1.0);
    let dir = crate::rig::fresh_dir();
    let (before, sockets) = files(pid);
    let journal = dir.join("p0");
    let mut file = File::create(&journal).unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let now = files(pid);
    assert!(now.0 >= before + 2.0 || now.1 > sockets, "other tests run in this process");
    drop(socket);
    let mut taken = Taken::default();
    file.write_all(b"1 0 1 asks plain a - -\n2 0 1 got 7\n3 0 2 go").unwrap();
    assert_eq!(taken.read_on(&journal), 1);
    file.write_all(b"t 8\n").unwrap();
    assert_eq!(taken.read_on(&journal), 2);
    assert_eq!(taken.read_on(&journal), 2);
    let mut samples = Samples::of("redis", &dir);
    samples.add(1.0, vec![("keys".to_owned(), 3.0)]);
    samples.add(2.0, vec![("keys".to_owned(), 4.0)]);
    assert_eq!(
        fs::read_to_string(dir.join("samples.csv")).unwrap(),
        "redis,1.00,keys,3\nredis,2.00,keys,4\n"
    );
    assert_eq!(samples.into_series()["keys"], [(1.0, 3.0), (2.0, 4.0)]);
    fs::remove_dir_all(dir).unwrap();
}
