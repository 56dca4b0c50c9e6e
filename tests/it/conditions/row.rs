//! A condition: how it is staged, and what must be true while it lasts.

use std::sync::Arc;
use std::time::Duration;

use leasehold::observe::Listener;
use leasehold::{Builder, ErrorKind, LockClient};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What a call does, which decides what it may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Sends nothing.
    Local,
    /// Takes a lock that is free.
    Take,
    /// Takes permits that are free, of a semaphore whose number of permits was set before.
    TakePermit,
    /// Waits already when the condition begins. What it waits for is given back when the condition
    /// is over.
    Wait,
    /// The same for permits, whose number was set before.
    WaitForPermit,
    /// The same for permits that come back at a time that is known: it asks nothing until then.
    WaitForRate,
    /// Reads what is stored under a name.
    Look,
    /// Reads all names, over a connection of its own.
    List,
    /// Changes a hold, and keeps it.
    Keep,
    /// Enters a hold once more.
    Reenter,
    /// Changes something else that is stored.
    Change,
    /// Frees a lock, whoever has it. It is sent only once: a repeat could force out the next holder.
    Force,
    /// Gives a hold back, and answers.
    Release,
    /// Gives permits without leases back: whether they were taken, the server does not know.
    Return,
    /// Gives a hold back, and cannot answer.
    Drop,
    /// Reports what it finds, and cannot fail.
    Report,
}

impl Class {
    /// Whether it waits already when the condition begins.
    pub(super) fn waits(self) -> bool {
        matches!(self, Self::Wait | Self::WaitForPermit)
    }

    /// Whether the answer is that of a request which is made under the condition.
    pub(super) fn asks(self) -> bool {
        !self.waits()
            && !matches!(self, Self::Local | Self::Drop | Self::Report | Self::WaitForRate)
    }
}

/// The answers that are right: none is success.
pub(super) type Answers = &'static [Option<ErrorKind>];

pub(super) const DONE: Answers = &[None];

/// What each call that asks the store answers.
pub(super) fn if_it_asks(class: Class, answers: Answers) -> Answers {
    if class.asks() { answers } else { DONE }
}

pub(super) fn unreachable(class: Class) -> Answers {
    if_it_asks(class, &[Some(ErrorKind::Unreachable)])
}

pub(super) struct Row {
    pub(super) name: &'static str,
    /// The condition, for the guide.
    pub(super) words: &'static str,
    pub(super) stage: Box<dyn Fn() -> Box<dyn Stage>>,
    /// What the calls of a class answer.
    pub(super) answers: fn(Class) -> Answers,
    /// One of these is in the text of each error.
    pub(super) says: &'static [&'static str],
    /// The condition concerns the whole process, so the row has one of its own.
    pub(super) alone: bool,
}

/// A row in which everything works, until [`Row::failing`] says otherwise.
pub(super) fn row<S: Stage + 'static>(words: &'static str, stage: impl Fn() -> S + 'static) -> Row {
    let stage = Box::new(move || Box::new(stage()) as Box<dyn Stage>);
    Row { name: "", words, stage, answers: |_| DONE, says: &[], alone: false }
}

impl Row {
    pub(super) fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    pub(super) fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    pub(super) fn failing(
        mut self,
        answers: fn(Class) -> Answers,
        says: &'static [&'static str],
    ) -> Self {
        (self.answers, self.says) = (answers, says);
        self
    }
}

pub(super) const NO_MORE_FILES: &str = "The process may open no more files";

/// Those that are open stay open, whatever the limit.
pub(super) fn may_open_files(may: bool) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    let soft = if may { hard } else { 3 };
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("it may be changed");
}

/// A deployment, and what happens to it.
pub(super) trait Stage {
    /// The client that the condition concerns.
    fn builder(&self) -> Builder;

    /// The client's I/O timeout.
    fn io_timeout(&self) -> Duration;

    /// The client's listener, if the condition needs one.
    fn listener(&self) -> Option<Arc<dyn Listener>> {
        None
    }

    /// A client that holds what others wait for.
    fn other(&self) -> LockClient;

    /// The name of a cell.
    fn name(&self, cell: usize) -> String {
        format!("job-{cell}")
    }

    /// The name of a bystander, see [`spares_others`](Self::spares_others). So is what begins with
    /// it, in braces.
    fn beside(&self) -> String {
        "beside".to_owned()
    }

    /// Calls concern these names. The last one is the bystander's.
    fn begin(&mut self, names: &[String]);

    fn end(&mut self);

    /// Whether the condition spares a name of the same client that no call of the row uses.
    fn spares_others(&self) -> bool {
        false
    }

    /// Whether the deployment supports a call.
    fn offers(&self, _call: &str) -> bool {
        true
    }

    /// The number of connections of the client, and how many it may have. None while the server
    /// cannot count them.
    fn connections(&mut self) -> Option<(usize, usize)> {
        None
    }

    /// Waits until nothing is left, after the clients were closed.
    fn assert_clean(&mut self);
}
