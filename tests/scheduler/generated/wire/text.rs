//! The text of a program over servers: a line for the settings, and one for each step.

use std::fmt;

use super::{
    Connects, Mishap, Program, Request, Restart, Section, Settings, Side, Step, Thing, Thread,
};
use crate::generated::text::{Words, name_of};

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Settings { servers, clients, connections, lease, kills } = &self.settings;
        writeln!(
            f,
            "wire servers {servers} clients {clients} connections {connections} lease {lease} kills {kills}"
        )?;
        for (n, thing) in self.things.iter().enumerate() {
            writeln!(f, "name {} {}", name_of(n), thing.word())?;
        }
        for thread in &self.threads {
            writeln!(f, "thread {}", thread.client)?;
            for step in &thread.steps {
                writeln!(f, "    {step}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Section(section) => section.fmt(f),
            Self::Sleep(time) => write!(f, "sleep {time}"),
            Self::Next(server, request, mishap) => {
                write!(f, "next {server} {} {mishap}", request.word())
            }
            Self::EndConnections(server) => write!(f, "end-connections {server}"),
            Self::FlushScripts(server) => write!(f, "flush-scripts {server}"),
            Self::AnswersLate(server, time) => write!(f, "answers-late {server} {time}"),
            Self::RunsLate(server, time) => write!(f, "runs-late {server} {time}"),
            Self::Restart(Restart { server, keeps, away }) => {
                write!(f, "restart {server} keeps {keeps} away {away}")
            }
            Self::Connects(how) => write!(f, "connects {}", how.word()),
            Self::Close(time) => write!(f, "close {time}"),
        }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thing, side, wait, stay } = self;
        write!(f, "section {} {} {wait} stay {stay}", name_of(*thing), side.word())
    }
}

impl fmt::Display for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RunsLate(time) => write!(f, "runs-late {time}"),
            Self::AnsweredLate(time) => write!(f, "answered-late {time}"),
            Self::Refused(time) => write!(f, "refused {time}"),
            Self::CutBefore => f.write_str("cut-before"),
            Self::CutAfter => f.write_str("cut-after"),
            Self::AnsweredTwice => f.write_str("answered-twice"),
        }
    }
}

/// Reads a program. The error names the word that is none.
pub(crate) fn parse(text: &str) -> Result<Program, String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut first = Words::of(lines.next().ok_or("the text is empty")?);
    first.next()?;
    let settings = Settings {
        servers: first.value(|word| word.parse().ok())?,
        clients: first.value(|word| word.parse().ok())?,
        connections: first.value(|word| word.parse().ok())?,
        lease: first.key_and_time()?,
        kills: first.value(|word| word.parse().ok())?,
    };
    let mut program = Program { settings, things: Vec::new(), threads: Vec::new() };
    for line in lines {
        let mut words = Words::of(line);
        match words.next()? {
            "name" => {
                words.next()?;
                program.things.push(words.read(Thing::of)?);
            }
            "thread" => {
                program.threads.push(Thread { client: words.number()?, steps: Vec::new() });
            }
            first => {
                let step = step(first, &mut words)?;
                let thread = program.threads.last_mut().ok_or("a step before the first thread")?;
                thread.steps.push(step);
            }
        }
    }
    Ok(program)
}

fn step(first: &str, words: &mut Words<'_>) -> Result<Step, String> {
    Ok(match first {
        "section" => Step::Section(Section {
            thing: words.thing()?,
            side: words.read(Side::of)?,
            wait: words.wait()?,
            stay: words.key_and_time()?,
        }),
        "sleep" => Step::Sleep(words.time()?),
        "next" => Step::Next(words.number()?, words.read(Request::of)?, mishap(words)?),
        "end-connections" => Step::EndConnections(words.number()?),
        "flush-scripts" => Step::FlushScripts(words.number()?),
        "answers-late" => Step::AnswersLate(words.number()?, words.time()?),
        "runs-late" => Step::RunsLate(words.number()?, words.time()?),
        "restart" => Step::Restart(Restart {
            server: words.number()?,
            keeps: words.value(|word| word.parse().ok())?,
            away: words.key_and_time()?,
        }),
        "connects" => Step::Connects(words.read(Connects::of)?),
        "close" => Step::Close(words.time()?),
        word => return Err(format!("{word:?} is no step")),
    })
}

fn mishap(words: &mut Words<'_>) -> Result<Mishap, String> {
    Ok(match words.next()? {
        "runs-late" => Mishap::RunsLate(words.time()?),
        "answered-late" => Mishap::AnsweredLate(words.time()?),
        "refused" => Mishap::Refused(words.time()?),
        "cut-before" => Mishap::CutBefore,
        "cut-after" => Mishap::CutAfter,
        "answered-twice" => Mishap::AnsweredTwice,
        word => return Err(format!("{word:?} happens to no request")),
    })
}
