//! The text of a program: a line for the settings, one for the names, and one for each step. It is
//! read back word by word.

use std::fmt;

use super::program::{
    Client, Code, End, Ending, Family, Fire, Inside, Lead, Micros, Mode, Pace, Program, Request,
    Settings, Step, Take, Terms, Thread, Wait, When,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

pub(crate) fn name_of(thing: usize) -> &'static str {
    NAMES[thing]
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0ms"),
            us if us % 1000 == 0 => write!(f, "{}ms", us / 1000),
            us => write!(f, "{us}us"),
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.settings)?;
        for (thing, family) in self.things.iter().enumerate() {
            writeln!(f, "name {} {}", name_of(thing), family.word())?;
        }
        for thread in &self.threads {
            writeln!(f, "thread {}", thread.client.word())?;
            for step in &thread.steps {
                writeln!(f, "    {step}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lease, outage, permits, tokens, races, listener, callbacks, logger } = self;
        let (listener, callbacks, logger) = (listener.word(), callbacks.word(), logger.word());
        write!(
            f,
            "settings lease {lease} outage {outage} permits {permits} tokens {tokens} races {races} "
        )?;
        write!(f, "listener {listener} callbacks {callbacks} logger {logger}")
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Take(take) => take.fmt(f),
            Self::Sleep(time) => write!(f, "sleep {time}"),
            Self::Cancel => f.write_str("cancel"),
            Self::Close(client) => write!(f, "close {}", client.word()),
            Self::StopWaiting(client) => write!(f, "stop-waiting {}", client.word()),
            Self::Force(thing) => write!(f, "force {}", name_of(*thing)),
            Self::Lose(thing) => write!(f, "lose {}", name_of(*thing)),
            Self::Advance(time) => write!(f, "advance {time}"),
            Self::Cut(time) => write!(f, "cut {time}"),
            Self::Hang(time) => write!(f, "hang {time}"),
            Self::Fail(request, when) => write!(f, "fail {} {}", request.word(), when.word()),
            Self::CountDown(thing) => write!(f, "count-down {}", name_of(*thing)),
            Self::WaitFor(thing) => write!(f, "wait-for {}", name_of(*thing)),
            Self::Fire(fire) => fire.fmt(f),
            Self::AwaitDone(thing, occurrence, time) => {
                write!(f, "await-done {} {occurrence} {time}", name_of(*thing))
            }
            Self::Reopen(thing, occurrence) => write!(f, "reopen {} {occurrence}", name_of(*thing)),
            Self::Lead(lead) => lead.fmt(f),
            Self::AskFor(thing) => write!(f, "ask-for {}", name_of(*thing)),
            Self::Pace(pace) => pace.fmt(f),
            Self::SetRate(thing) => write!(f, "set-rate {}", name_of(*thing)),
        }
    }
}

impl fmt::Display for Fire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thing, occurrence, works, ending } = self;
        write!(f, "fire {} {occurrence} {works} {}", name_of(*thing), ending.word())
    }
}

impl fmt::Display for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thing, stay, ending, cancellable } = self;
        let how = if *cancellable { "cancellable " } else { "" };
        write!(f, "lead {} {stay} {how}{}", name_of(*thing), ending.word())
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pace {} {} {}", name_of(self.thing), self.permits, self.wait)
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ever => f.write_str("ever"),
            Self::Never => f.write_str("try"),
            Self::For(time) => time.fmt(f),
        }
    }
}

impl fmt::Display for Take {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "take {} {}", self.mode.word(), name_of(self.thing))?;
        match self.wait {
            Wait::Ever => {}
            Wait::Never => f.write_str(" try")?,
            Wait::For(time) => write!(f, " for {time}")?,
        }
        if self.cancellable {
            f.write_str(" cancellable")?;
        }
        match self.terms {
            Terms::Usual => {}
            Terms::Lease(time) => write!(f, " lease {time}")?,
            Terms::MaxHold(time) => write!(f, " max-hold {time}")?,
            Terms::MinHold(time) => write!(f, " min-hold {time}")?,
        }
        for inside in &self.inside {
            match inside {
                Inside::Stay(time) => write!(f, " stay {time}")?,
                Inside::Again => f.write_str(" again")?,
                Inside::AgainForLonger => f.write_str(" again-for-longer")?,
                Inside::Extend(time) => write!(f, " extend {time}")?,
                Inside::Downgrade => f.write_str(" downgrade")?,
            }
        }
        write!(f, " {}", self.end.word())
    }
}

/// Reads a program. The error names the word that is none.
pub(crate) fn parse(text: &str) -> Result<Program, String> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().ok_or("the text is empty")?;
    let settings = Words::of(first).settings()?;
    let mut program = Program { settings, things: Vec::new(), threads: Vec::new() };
    for line in lines {
        let mut words = Words::of(line);
        match words.next()? {
            "name" => {
                words.next()?;
                program.things.push(words.read(Family::of)?);
            }
            "thread" => {
                program.threads.push(Thread { client: words.read(Client::of)?, steps: Vec::new() });
            }
            first => {
                let step = words.step(first)?;
                program
                    .threads
                    .last_mut()
                    .ok_or("a step before the first thread")?
                    .steps
                    .push(step);
            }
        }
    }
    Ok(program)
}

/// The words of a line.
pub(super) struct Words<'t>(std::str::SplitWhitespace<'t>);

impl<'t> Words<'t> {
    pub(super) fn of(line: &'t str) -> Self {
        Self(line.split_whitespace())
    }

    pub(super) fn next(&mut self) -> Result<&'t str, String> {
        self.0.next().ok_or_else(|| "a line ends too early".to_owned())
    }

    pub(super) fn read<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let word = self.next()?;
        read(word).ok_or_else(|| format!("{word:?} is unknown"))
    }

    /// The value behind a key.
    pub(super) fn value<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        self.next()?;
        self.read(read)
    }

    pub(super) fn time(&mut self) -> Result<Micros, String> {
        self.read(time)
    }

    pub(super) fn key_and_time(&mut self) -> Result<Micros, String> {
        self.value(time)
    }

    pub(super) fn wait(&mut self) -> Result<Wait, String> {
        self.read(|word| match word {
            "ever" => Some(Wait::Ever),
            "try" => Some(Wait::Never),
            word => time(word).map(Wait::For),
        })
    }

    pub(super) fn thing(&mut self) -> Result<usize, String> {
        self.read(|word| NAMES.iter().position(|name| *name == word))
    }

    fn settings(&mut self) -> Result<Settings, String> {
        self.next()?;
        Ok(Settings {
            lease: self.key_and_time()?,
            outage: self.key_and_time()?,
            permits: self.value(|word| word.parse().ok())?,
            tokens: self.value(|word| word.parse().ok())?,
            races: self.value(|word| word.parse().ok())?,
            listener: self.value(Code::of)?,
            callbacks: self.value(Code::of)?,
            logger: self.value(Code::of)?,
        })
    }

    fn step(&mut self, first: &str) -> Result<Step, String> {
        Ok(match first {
            "take" => Step::Take(self.take()?),
            "sleep" => Step::Sleep(self.time()?),
            "cancel" => Step::Cancel,
            "close" => Step::Close(self.read(Client::of)?),
            "stop-waiting" => Step::StopWaiting(self.read(Client::of)?),
            "force" => Step::Force(self.thing()?),
            "lose" => Step::Lose(self.thing()?),
            "advance" => Step::Advance(self.time()?),
            "cut" => Step::Cut(self.time()?),
            "hang" => Step::Hang(self.time()?),
            "fail" => Step::Fail(self.read(Request::of)?, self.read(When::of)?),
            "count-down" => Step::CountDown(self.thing()?),
            "wait-for" => Step::WaitFor(self.thing()?),
            "fire" => Step::Fire(Fire {
                thing: self.thing()?,
                occurrence: self.number()?,
                works: self.time()?,
                ending: self.read(Ending::of)?,
            }),
            "await-done" => Step::AwaitDone(self.thing()?, self.number()?, self.time()?),
            "reopen" => Step::Reopen(self.thing()?, self.number()?),
            "lead" => Step::Lead(self.lead()?),
            "ask-for" => Step::AskFor(self.thing()?),
            "pace" => Step::Pace(Pace {
                thing: self.thing()?,
                permits: self.number()?,
                wait: self.wait()?,
            }),
            "set-rate" => Step::SetRate(self.thing()?),
            word => return Err(format!("{word:?} is no step")),
        })
    }

    pub(super) fn number<T: std::str::FromStr>(&mut self) -> Result<T, String> {
        self.read(|word| word.parse().ok())
    }

    fn lead(&mut self) -> Result<Lead, String> {
        let (thing, stay, how) = (self.thing()?, self.time()?, self.next()?);
        let cancellable = how == "cancellable";
        let ending = if cancellable { self.next()? } else { how };
        let ending = Ending::of(ending).ok_or_else(|| format!("{ending:?} ends no term"))?;
        Ok(Lead { thing, stay, ending, cancellable })
    }

    fn take(&mut self) -> Result<Take, String> {
        let (mode, thing) = (self.read(Mode::of)?, self.thing()?);
        let (wait, cancellable, terms, inside) = (Wait::Ever, false, Terms::Usual, Vec::new());
        let mut take = Take { mode, thing, wait, cancellable, terms, inside, end: End::Unlock };
        loop {
            match self.next()? {
                "try" => take.wait = Wait::Never,
                "for" => take.wait = Wait::For(self.time()?),
                "cancellable" => take.cancellable = true,
                "lease" => take.terms = Terms::Lease(self.time()?),
                "max-hold" => take.terms = Terms::MaxHold(self.time()?),
                "min-hold" => take.terms = Terms::MinHold(self.time()?),
                "stay" => take.inside.push(Inside::Stay(self.time()?)),
                "again" => take.inside.push(Inside::Again),
                "again-for-longer" => take.inside.push(Inside::AgainForLonger),
                "extend" => take.inside.push(Inside::Extend(self.time()?)),
                "downgrade" => take.inside.push(Inside::Downgrade),
                word => {
                    take.end =
                        End::of(word).ok_or_else(|| format!("{word:?} is no part of a take"))?;
                    return Ok(take);
                }
            }
        }
    }
}

fn time(word: &str) -> Option<Micros> {
    let number = |unit| word.strip_suffix(unit).and_then(|number| number.parse().ok());
    number("ms").map(Micros::ms).or_else(|| number("us").map(Micros))
}
