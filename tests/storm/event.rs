//! What workers record: one event per line, one write per line, so that a killed process leaves
//! whole lines behind.
//!
//! `<time> <thread> <attempt> <word> <arguments..>`; times are nanoseconds of the clock that all
//! processes of the machine share and that counts the time for which it was suspended.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::str::FromStr;

pub(crate) type Nanos = u64;

pub(crate) fn now() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

pub(crate) const fn millis(n: u64) -> Nanos {
    n * 1_000_000
}

/// What is acquired, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Plain,
    Fair,
    Read,
    Write,
    Permit,
    Multi,
    /// The lease of a scheduled job, while an occurrence of it runs.
    Job,
    /// A term of an election.
    Leader,
    /// A permit without a lease: that of a process that is killed never comes back.
    Count,
}

impl Kind {
    /// All that have a lease.
    pub(crate) const ALL: [Self; 8] = [
        Self::Plain,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Permit,
        Self::Multi,
        Self::Job,
        Self::Leader,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Permit => "permit",
            Self::Multi => "multi",
            Self::Job => "job",
            Self::Leader => "leader",
            Self::Count => "count",
        }
    }

    pub(crate) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().chain([Self::Count]).find(|kind| kind.word() == word)
    }

    pub(crate) fn is_exclusive(self) -> bool {
        !matches!(self, Self::Read | Self::Permit | Self::Count)
    }
}

/// What a call is for, of a job or of an election.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Verb {
    /// It takes what the others below only ask about.
    #[default]
    Takes,
    /// It takes the leadership after it has resigned, and lets others lead first.
    StandsBack,
    /// `wait_done_for`.
    Waits,
    /// `forget`.
    Forgets,
    /// `request`: asks the leader to give way.
    Requests,
    /// `leader`: one look.
    Looks,
    /// `watch`, for a while.
    Watches,
}

const VERBS: [(Verb, &str); 7] = [
    (Verb::Takes, "takes"),
    (Verb::StandsBack, "stands-back"),
    (Verb::Waits, "waits"),
    (Verb::Forgets, "forgets"),
    (Verb::Requests, "requests"),
    (Verb::Looks, "looks"),
    (Verb::Watches, "watches"),
];

impl Verb {
    pub(crate) fn takes(self) -> bool {
        matches!(self, Self::Takes | Self::StandsBack)
    }

    fn word(self) -> &'static str {
        VERBS.iter().find(|(verb, _)| *verb == self).expect("all verbs are listed").1
    }

    fn of(word: &str) -> Option<Self> {
        VERBS.iter().find(|(_, own)| *own == word).map(|(verb, _)| *verb)
    }
}

/// A call of the latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LatchCall {
    /// `try_set_count`.
    Set(u32),
    Down,
    /// A short `wait_for`.
    Wait,
}

impl fmt::Display for LatchCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(count) => write!(f, "{count}"),
            Self::Down => write!(f, "down"),
            Self::Wait => write!(f, "wait"),
        }
    }
}

impl FromStr for LatchCall {
    type Err = std::num::ParseIntError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "down" => Ok(Self::Down),
            "wait" => Ok(Self::Wait),
            count => count.parse().map(Self::Set),
        }
    }
}

/// The result of `unlock` or of a failed call: the kind of the error, or `ok`.
pub(crate) type Answer = String;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    /// An acquire attempt begins. `patience`: how long it waits at most; `None` if forever.
    Asks { kind: Kind, names: Vec<String>, patience: Option<Nanos>, fixed: Option<Nanos> },
    /// It succeeded, with a token for each name, or without any.
    Got { tokens: Vec<u64> },
    /// It timed out.
    Vain,
    /// It failed.
    Failed { error: String, message: String },
    /// `is_held()` returned this, between the time of the event and `until`.
    Looked { held: bool, until: Nanos },
    /// The callback of the guard was called, with this reason.
    Told { reason: String },
    /// The guard's channel is disconnected, although the guard exists.
    Signalled,
    /// The unlock that began at the time of the event returned.
    Gave { answer: Answer, until: Nanos },
    /// What the attempt is, as soon as it has begun, if it does not simply take something.
    Calls(Verb),
    /// This occurrence of a job is asked for, as soon as the attempt has begun.
    Fires { occurrence: u64 },
    /// It runs, and the store has counted so many attempts at it.
    Runs { number: u32 },
    /// What a call for a job, or about a leader, has returned, in words; a watch does so often.
    Says { words: String },
    /// The leader has resigned.
    Resigned,
    /// The leader has learned that somebody asks for the leadership.
    Wanted,
    /// A call of the latch begins.
    Latch(LatchCall),
    /// It returned this; `None`: an error.
    Said { yes: Option<bool> },
    /// In a forked child: whether the parent's guard is held there, and the result of an acquire.
    Forked { held: bool, answer: Answer },
    /// A thread panicked.
    Panicked { message: String },
    /// The process has closed its client: how many more threads and sockets it has than before.
    Ended { threads: i64, sockets: i64, close: Answer },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) at: Nanos,
    pub(crate) thread: u32,
    pub(crate) attempt: u64,
    pub(crate) what: What,
}

fn numbers(list: &[u64]) -> String {
    if list.is_empty() {
        return "-".to_owned();
    }
    list.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

fn maybe(value: Option<Nanos>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} ", self.at, self.thread, self.attempt)?;
        match &self.what {
            What::Asks { kind, names, patience, fixed } => {
                write!(
                    f,
                    "asks {} {} {} {}",
                    kind.word(),
                    names.join(","),
                    maybe(*patience),
                    maybe(*fixed)
                )
            }
            What::Got { tokens } => write!(f, "got {}", numbers(tokens)),
            What::Vain => write!(f, "vain"),
            What::Failed { error, message } => write!(f, "failed {error} {}", one_line(message)),
            What::Looked { held, until } => write!(f, "looked {held} {until}"),
            What::Told { reason } => write!(f, "told {reason}"),
            What::Signalled => write!(f, "signalled"),
            What::Gave { answer, until } => write!(f, "gave {answer} {until}"),
            What::Fires { occurrence } => write!(f, "fires {occurrence}"),
            What::Runs { number } => write!(f, "runs {number}"),
            What::Says { words } => write!(f, "says {}", one_line(words)),
            What::Calls(verb) => write!(f, "calls {}", verb.word()),
            What::Resigned => write!(f, "resigned"),
            What::Wanted => write!(f, "wanted"),
            What::Latch(call) => write!(f, "latch {call}"),
            What::Said { yes } => {
                write!(f, "said {}", yes.map_or_else(|| "-".to_owned(), |yes| yes.to_string()))
            }
            What::Forked { held, answer } => write!(f, "forked {held} {answer}"),
            What::Panicked { message } => write!(f, "panicked {}", one_line(message)),
            What::Ended { threads, sockets, close } => {
                write!(f, "ended {threads} {sockets} {close}")
            }
        }
    }
}

fn parsed<T: FromStr>(word: Option<&str>) -> Option<T> {
    word?.parse().ok()
}

/// `-` stands for `None`.
fn maybe_parsed(word: Option<&str>) -> Option<Option<Nanos>> {
    let word = word?;
    if word == "-" { Some(None) } else { Some(Some(word.parse().ok()?)) }
}

impl Event {
    /// `None` for an incomplete line.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(5, ' ');
        let (at, thread, attempt) =
            (parsed(words.next())?, parsed(words.next())?, parsed(words.next())?);
        let (name, rest) = (words.next()?, words.next().unwrap_or_default());
        let mut words = rest.split(' ');
        let what = match name {
            "asks" => What::Asks {
                kind: Kind::of(words.next()?)?,
                names: words.next()?.split(',').map(str::to_owned).collect(),
                patience: maybe_parsed(words.next())?,
                fixed: maybe_parsed(words.next())?,
            },
            "got" if rest == "-" => What::Got { tokens: Vec::new() },
            "got" => What::Got {
                tokens: rest.split(',').map(|token| token.parse().ok()).collect::<Option<_>>()?,
            },
            "vain" => What::Vain,
            "failed" => {
                let (error, message) = rest.split_once(' ')?;
                What::Failed { error: error.to_owned(), message: message.to_owned() }
            }
            "looked" => What::Looked { held: parsed(words.next())?, until: parsed(words.next())? },
            "told" => What::Told { reason: rest.to_owned() },
            "signalled" => What::Signalled,
            "gave" => What::Gave { answer: words.next()?.to_owned(), until: parsed(words.next())? },
            "fires" => What::Fires { occurrence: parsed(words.next())? },
            "runs" => What::Runs { number: parsed(words.next())? },
            "says" => What::Says { words: rest.to_owned() },
            "calls" => What::Calls(Verb::of(words.next()?)?),
            "resigned" => What::Resigned,
            "wanted" => What::Wanted,
            "latch" => What::Latch(parsed(words.next())?),
            "said" if rest == "-" => What::Said { yes: None },
            "said" => What::Said { yes: Some(parsed(words.next())?) },
            "forked" => {
                What::Forked { held: parsed(words.next())?, answer: words.next()?.to_owned() }
            }
            "panicked" => What::Panicked { message: rest.to_owned() },
            "ended" => What::Ended {
                threads: parsed(words.next())?,
                sockets: parsed(words.next())?,
                close: words.next()?.to_owned(),
            },
            _ => return None,
        };
        Some(Self { at, thread, attempt, what })
    }
}

/// The file of one process.
pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn append_to(path: &Path) -> Self {
        Self(OpenOptions::new().append(true).create(true).open(path).unwrap())
    }

    pub(crate) fn write(&self, event: &Event) {
        // A single write, which the kernel appends atomically.
        (&self.0).write_all(format!("{event}\n").as_bytes()).unwrap();
    }

    pub(crate) fn note(&self, at: Nanos, thread: u32, attempt: u64, what: What) {
        self.write(&Event { at, thread, attempt, what });
    }
}

#[test]
fn events_are_read_as_they_were_written() {
    let asks = What::Asks {
        kind: Kind::Multi,
        names: vec!["a".to_owned(), "b".to_owned()],
        patience: Some(5),
        fixed: None,
    };
    let counts = What::Asks {
        kind: Kind::Count,
        names: vec!["c".to_owned()],
        patience: Some(0),
        fixed: None,
    };
    for what in [
        asks,
        counts,
        What::Got { tokens: vec![7, 8] },
        What::Got { tokens: Vec::new() },
        What::Vain,
        What::Failed { error: "Unreachable".to_owned(), message: "two words".to_owned() },
        What::Looked { held: true, until: 9 },
        What::Told { reason: "NotRenewed".to_owned() },
        What::Signalled,
        What::Gave { answer: "ok".to_owned(), until: 3 },
        What::Fires { occurrence: 17 },
        What::Runs { number: 2 },
        What::Says { words: "pausing 200".to_owned() },
        What::Calls(Verb::StandsBack),
        What::Calls(Verb::Watches),
        What::Resigned,
        What::Wanted,
        What::Latch(LatchCall::Set(2)),
        What::Latch(LatchCall::Wait),
        What::Said { yes: Some(true) },
        What::Said { yes: None },
        What::Forked { held: false, answer: "Forked".to_owned() },
        What::Panicked { message: "at the disco".to_owned() },
        What::Ended { threads: -1, sockets: 0, close: "ok".to_owned() },
    ] {
        let event = Event { at: 12, thread: 3, attempt: 4, what };
        assert_eq!(Event::parse(&event.to_string()), Some(event));
    }
    for half in ["", "12", "12 3", "12 3 4", "12 3 4 loo", "12 3 4 looked tr", "12 3 4 got 7,"] {
        assert_eq!(Event::parse(half), None, "{half:?}");
    }
}
