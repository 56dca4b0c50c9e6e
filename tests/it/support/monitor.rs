//! `MONITOR`: every command that a server runs, in order, those inside scripts included.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

use super::net::{Address, Stream};
use super::{CAP, became_true, unique_name, wait_until};

/// One command that the server ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// The server's clock, in microseconds since 1970.
    pub(crate) at_us: u64,
    /// The client's address; `lua` for a script. All clients of a unix socket have the same.
    pub(crate) client: String,
    /// The command and its arguments.
    pub(crate) words: Vec<Vec<u8>>,
}

impl Line {
    /// The command's name in upper case: scripts and clients disagree about it.
    pub(crate) fn name(&self) -> String {
        self.words.first().map(|word| String::from_utf8_lossy(word).to_uppercase()).unwrap_or_default()
    }

    /// A word as text; empty when there are not so many.
    pub(crate) fn word(&self, index: usize) -> String {
        self.words.get(index).map(|word| String::from_utf8_lossy(word).into_owned()).unwrap_or_default()
    }

    /// Whether a script ran it.
    pub(crate) fn is_lua(&self) -> bool {
        self.client == "lua"
    }

    /// `+1700000000.123456 [0 127.0.0.1:6000] "GET" "a\"b"`, without the plus.
    fn parse(line: &str) -> Option<Self> {
        let (at, rest) = line.split_once(" [")?;
        let (seconds, micros) = at.split_once('.')?;
        let (client, words) = rest.split_once("] ")?;
        let client = client.split_once(' ')?.1.to_owned();
        let at_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
        Some(Self { at_us, client, words: unquote(words) })
    }
}

/// Splits `"a" "b\x00"` into its words.
fn unquote(text: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match (byte, word.as_mut()) {
            (b'"', None) => word = Some(Vec::new()),
            (b'"', Some(_)) => words.extend(word.take()),
            (b'\\', Some(word)) => match bytes.next() {
                Some(b'x') => {
                    let digits = [bytes.next().unwrap_or(b'0'), bytes.next().unwrap_or(b'0')];
                    let digits = std::str::from_utf8(&digits).unwrap_or("0");
                    word.push(u8::from_str_radix(digits, 16).unwrap_or(0));
                }
                Some(b'n') => word.push(b'\n'),
                Some(b'r') => word.push(b'\r'),
                Some(b't') => word.push(b'\t'),
                Some(b'a') => word.push(7),
                Some(b'b') => word.push(8),
                Some(other) => word.push(other),
                None => {}
            },
            (byte, Some(word)) => word.push(byte),
            (_, None) => {}
        }
    }
    words
}

/// Collects from its start until its drop.
#[derive(Debug)]
pub(crate) struct Monitor {
    address: Address,
    password: Option<String>,
    stream: Stream,
    lines: Arc<Mutex<Vec<Line>>>,
    thread: Option<JoinHandle<()>>,
    /// The first word of what [`Monitor::lines`] sends to find the end; hidden from the caller.
    marker: String,
}

impl Monitor {
    #[track_caller]
    pub(super) fn start(address: Address, password: Option<&str>) -> Self {
        let stream = open(&address, password, "MONITOR\r\n");
        stream.set_read_timeout(None);
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut reply = String::new();
        reader.read_line(&mut reply).unwrap();
        assert_eq!(reply, "+OK\r\n", "the answer to MONITOR");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let into = lines.clone();
        let collect = move || {
            for line in reader.split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line);
                into.lock().extend(Line::parse(line.trim_start_matches('+').trim_end()));
            }
        };
        let thread = std::thread::Builder::new().name("test-monitor".to_owned()).spawn(collect).unwrap();
        let (marker, password) = (unique_name("monitor-marker"), password.map(str::to_owned));
        Self { address, password, stream, lines, thread: Some(thread), marker }
    }

    /// Everything that the server has run up to this call.
    pub(crate) fn lines(&self) -> Vec<Line> {
        // The server reports commands in the order in which it runs them, so what is before ours has been reported.
        let end = unique_name(&self.marker);
        // A raw stream, as the redis crate would add its own introduction to the commands.
        let mut stream = open(&self.address, self.password.as_deref(), &format!("ECHO {end}\r\n"));
        stream.read_exact(&mut [0]).expect("the server answers the end mark of its monitor");
        wait_until("the monitor reports its own end mark", CAP, || {
            self.lines.lock().iter().any(|line| line.word(1) == end)
        });
        let mut lines = self.lines_now();
        let end = lines.iter().position(|line| line.word(1) == end);
        lines.truncate(end.unwrap_or(lines.len()));
        // The marks of earlier calls.
        lines.retain(|line| !line.word(1).starts_with(&self.marker));
        lines
    }

    /// What has arrived; for a server that does not answer any more.
    pub(crate) fn lines_now(&self) -> Vec<Line> {
        self.lines.lock().clone()
    }

    /// How many of [`Self::lines`] are of this kind.
    pub(crate) fn count(&self, pred: impl Fn(&Line) -> bool) -> usize {
        self.lines().iter().filter(|line| pred(line)).count()
    }

    /// Waits until there is such a line.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, pred: impl Fn(&Line) -> bool) {
        let seen = became_true(CAP, || self.lines.lock().iter().any(&pred));
        assert!(seen, "waited {CAP:?} in vain until {what}; there was {:#?}", self.lines_now());
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A raw stream on which a request has been sent, after the password; the reply is the caller's.
#[track_caller]
fn open(address: &Address, password: Option<&str>, request: &str) -> Stream {
    let mut stream = address.connect().unwrap();
    stream.set_read_timeout(Some(CAP));
    if let Some(word) = password {
        stream.write_all(format!("AUTH {word}\r\n").as_bytes()).unwrap();
        let mut reply = *b"+OK\r\n";
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply, *b"+OK\r\n", "the answer to AUTH");
    }
    stream.write_all(request.as_bytes()).unwrap();
    stream
}
