//! Small programs as plain data: what a generator makes, a stage plays, and a shrinker makes
//! smaller.

use std::time::Duration;

/// What the threads of two clients do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) settings: Settings,
    /// What is under the names "a", "b", ...
    pub(crate) things: Vec<Family>,
    pub(crate) threads: Vec<Thread>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) lease: Micros,
    pub(crate) outage: Micros,
    pub(crate) permits: u32,
    pub(crate) tokens: bool,
    /// Whether deadlines race with what happens before them.
    pub(crate) races: bool,
    pub(crate) listener: Code,
    pub(crate) callbacks: Code,
    pub(crate) logger: Code,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) client: Client,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Take(Take),
    Sleep(Micros),
    /// Cancels all calls that can be cancelled.
    Cancel,
    Close(Client),
    StopWaiting(Client),
    /// The client of this thread frees it by force.
    Force(usize),
    /// The store loses it.
    Lose(usize),
    Advance(Micros),
    Cut(Micros),
    /// The same, and each request takes an I/O timeout before it fails.
    Hang(Micros),
    Fail(Request, When),
    CountDown(usize),
    WaitFor(usize),
    Fire(Fire),
    /// Waits until this occurrence of a job is done.
    AwaitDone(usize, u8, Micros),
    /// Lets this occurrence of a job run again.
    Reopen(usize, u8),
    Lead(Lead),
    /// Asks the leader to give way.
    AskFor(usize),
    Pace(Pace),
    /// Sets a higher rate.
    SetRate(usize),
}

/// Runs an occurrence of a job, unless it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fire {
    pub(crate) thing: usize,
    pub(crate) occurrence: u8,
    pub(crate) works: Micros,
    pub(crate) ending: Ending,
}

/// Stands for election, until a term was led to its end. A first term that fails, panics or
/// resigns is followed by another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lead {
    pub(crate) thing: usize,
    pub(crate) stay: Micros,
    pub(crate) ending: Ending,
    pub(crate) cancellable: bool,
}

/// Takes permits of a rate limiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) thing: usize,
    pub(crate) permits: u32,
    pub(crate) wait: Wait,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Take {
    pub(crate) mode: Mode,
    pub(crate) thing: usize,
    pub(crate) wait: Wait,
    pub(crate) cancellable: bool,
    pub(crate) terms: Terms,
    pub(crate) inside: Vec<Inside>,
    pub(crate) end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Ever,
    Never,
    For(Micros),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terms {
    Usual,
    Lease(Micros),
    MaxHold(Micros),
    MinHold(Micros),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    Stay(Micros),
    /// One level more, given up before the outer one.
    Again,
    /// The same, given up after it.
    AgainForLonger,
    Extend(Micros),
    Downgrade,
}

/// A number of microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(pub(crate) u64);

impl Micros {
    pub(crate) const fn ms(ms: u64) -> Self {
        Self(ms * 1000)
    }

    pub(crate) const fn time(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

/// An enum whose values are single words in the text of a program.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum $name {
            $($variant),+
        }

        impl $name {
            pub(crate) fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            pub(crate) fn of(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

pub(super) use words;

words!(Client { One = "one", Other = "other" });
words!(
    /// What code of the user does when it is called.
    Code { Calm = "calm", Panics = "panics", Blocks = "blocks" }
);
words!(Family {
    Mutex = "mutex",
    Fair = "fair",
    ReadWrite = "read-write",
    Semaphore = "semaphore",
    Counting = "counting",
    Latch = "latch",
    Job = "job",
    Election = "election",
    Limiter = "limiter",
});
words!(
    /// How a closure ends: that of a job, or of the first term of a leader.
    Ending { Done = "done", Fails = "fails", Panics = "panics", Resigns = "resigns" }
);
words!(
    /// How something is taken. Two permits are all that there are, in most programs.
    Mode {
        Plain = "plain",
        Owned = "owned",
        Read = "read",
        OwnedRead = "owned-read",
        Write = "write",
        OwnedWrite = "owned-write",
        OnePermit = "one-permit",
        TwoPermits = "two-permits",
        All = "all",
        OwnedAll = "owned-all",
    }
);
words!(
    /// How a hold ends.
    End {
        Unlock = "unlock",
        Drop = "drop",
        DropElsewhere = "drop-elsewhere",
        Panic = "panic",
        Forget = "forget",
    }
);
words!(Request {
    Acquire = "acquire",
    Release = "release",
    Renew = "renew",
    Extend = "extend",
    Subscribe = "subscribe",
    ForceUnlock = "force-unlock",
    Inspect = "inspect",
});
words!(When { Before = "before", After = "after", NotConfirmed = "not-confirmed" });

impl Mode {
    /// Whether its guard may change threads. Such a guard outlives a thread that forgets it.
    pub(crate) fn is_owned(self) -> bool {
        !matches!(self, Self::Plain | Self::Read | Self::Write | Self::All)
    }

    pub(crate) fn takes_all(self) -> bool {
        matches!(self, Self::All | Self::OwnedAll)
    }
}

impl Program {
    pub(crate) fn steps(&self) -> impl Iterator<Item = (Client, &Step)> {
        self.threads.iter().flat_map(|thread| thread.steps.iter().map(|step| (thread.client, step)))
    }

    pub(crate) fn takes(&self) -> impl Iterator<Item = &Take> {
        self.steps()
            .filter_map(|(_, step)| if let Step::Take(take) = step { Some(take) } else { None })
    }

    pub(crate) fn any(&self, is_it: impl Fn(&Step) -> bool) -> bool {
        self.steps().any(|(_, step)| is_it(step))
    }

    /// What a take takes: one thing, or all mutexes.
    pub(crate) fn taken(&self, take: &Take) -> Vec<usize> {
        let mutexes = || {
            (0..self.things.len()).filter(|thing| self.things[*thing] == Family::Mutex).collect()
        };
        if take.mode.takes_all() { mutexes() } else { vec![take.thing] }
    }

    /// Whether requests fail, so that something may stay at the store until it is undone.
    pub(crate) fn has_failures(&self) -> bool {
        self.any(|step| matches!(step, Step::Cut(_) | Step::Hang(_) | Step::Fail(..)))
    }

    pub(crate) fn has_ended(&self, client: Client) -> bool {
        self.any(|step| matches!(step, Step::Close(ended) | Step::StopWaiting(ended) if *ended == client))
    }

    pub(crate) fn has_closed(&self, client: Client) -> bool {
        self.any(|step| matches!(step, Step::Close(closed) if *closed == client))
    }
}
