//! Makes a program over servers from a seed.

use super::{
    Connects, Mishap, Program, Request, Restart, Section, Settings, Side, Step, Thing, Thread,
};
use crate::generated::make::Dice;
use crate::generated::program::{Micros, Wait};

/// What happens to the servers. One thing at a time: a program of all faults explains every
/// outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theme {
    Plain,
    /// Connections that end, and answers that come twice.
    Ends,
    /// Requests that run late, are answered late, or are refused.
    Late,
    /// A server that is away for a while.
    Away,
    /// Connects that take long, or panic.
    Connects,
    /// A client that is closed.
    Closes,
}

const LONG: Micros = Micros::ms(30_000);
/// The lease where a master of a Redlock may forget: it does not vote for as long.
const SHORT: Micros = Micros::ms(2_000);

struct Maker {
    dice: Dice,
    theme: Theme,
    settings: Settings,
    things: Vec<Thing>,
    /// A server is away once: more than one master that forgets is more than a Redlock survives.
    has_restarted: bool,
}

pub(crate) fn make(seed: u64) -> Program {
    // Not the numbers of the program over the store in memory with this seed.
    let mut dice = Dice(!seed);
    let servers = dice.of(&[1, 1, 3]);
    let themes: &[Theme] = match servers {
        1 => &[Theme::Plain, Theme::Ends, Theme::Late, Theme::Away, Theme::Connects, Theme::Closes],
        _ => &[Theme::Ends, Theme::Late, Theme::Late, Theme::Away, Theme::Closes, Theme::Connects],
    };
    let theme = dice.of(themes);
    let settings = Settings {
        servers,
        clients: dice.of(&[1, 2]),
        connections: dice.of(&[1, 1, 2, 3]),
        lease: if servers > 1 && theme == Theme::Away { SHORT } else { LONG },
        kills: !dice.once_in(4),
    };
    let all = [Thing::Mutex, Thing::Mutex, Thing::Fair, Thing::Fair, Thing::ReadWrite];
    let things = [(); 3].map(|()| if servers > 1 { Thing::Mutex } else { dice.of(&all) }).into();
    let mut maker = Maker { dice, theme, settings, things, has_restarted: false };
    let threads = maker.threads();
    Program { settings: maker.settings, things: maker.things, threads }
}

impl Maker {
    fn threads(&mut self) -> Vec<Thread> {
        let count = self.dice.of(&[2, 3, 4, 4, 5]);
        let names = self.dice.of(&[1, 1, 2, 3]);
        let mut threads: Vec<Thread> = (0..count)
            .map(|n| {
                let client = self.dice.below(self.settings.clients);
                // A close gives up what others are still in the middle of.
                let own = (self.theme == Theme::Closes || self.dice.once_in(4)).then_some(n % 3);
                Thread { client, steps: self.steps(own, names) }
            })
            .collect();
        if self.theme == Theme::Closes {
            // No two threads under one name.
            threads.truncate(3);
            let time = Micros::ms(self.dice.of(&[10, 10, 2_000]));
            threads.push(Thread { client: 0, steps: vec![self.moment(), Step::Close(time)] });
        }
        threads
    }

    /// `own`: the only thing that it takes, of all of them; otherwise one of the first `names`.
    fn steps(&mut self, own: Option<usize>, names: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..self.dice.of(&[1, 2, 2, 3]) {
            if self.dice.once_in(3) {
                steps.push(self.moment());
            }
            if !self.dice.once_in(3) {
                steps.extend(self.event());
            }
            let thing = own.unwrap_or_else(|| self.dice.below(names));
            let side = self.dice.of(&[Side::Write, Side::Read]);
            let for_a_while = Wait::For(Micros::ms(self.dice.of(&[5, 400, 5_000, 5_000])));
            let wait = self.dice.of(&[Wait::Ever, Wait::Ever, for_a_while, Wait::Never]);
            let stay = Micros::ms(self.dice.of(&[0, 0, 0, 1, 30]));
            steps.push(Step::Section(Section { thing, side, wait, stay }));
        }
        steps
    }

    /// A pause as long as a few steps, a request, or a late answer.
    fn moment(&mut self) -> Step {
        Step::Sleep(self.dice.of(&[Micros(20), Micros(300), Micros::ms(2), Micros::ms(20)]))
    }

    fn event(&mut self) -> Option<Step> {
        let server = self.dice.below(self.settings.servers.into());
        match self.theme {
            Theme::Plain => self.dice.once_in(3).then_some(Step::FlushScripts(server)),
            Theme::Ends => Some(self.end(server)),
            Theme::Late | Theme::Closes => Some(self.late(server)),
            Theme::Away => self.away(server),
            Theme::Connects => Some(match self.dice.below(3) {
                // The threads of a Redlock's round are the library's.
                0 if self.settings.servers > 1 => Step::Connects(Connects::Late),
                0 => Step::Connects(self.dice.of(&[Connects::Late, Connects::Panics])),
                _ => Step::EndConnections(server),
            }),
        }
    }

    fn end(&mut self, server: usize) -> Step {
        let mishaps = [Mishap::CutBefore, Mishap::CutAfter, Mishap::AnsweredTwice];
        match self.dice.below(3) {
            0 => Step::EndConnections(server),
            _ => Step::Next(server, self.request(), self.dice.of(&mishaps)),
        }
    }

    fn late(&mut self, server: usize) -> Step {
        // A close waits for the last answer, and so do those who queue for its connection.
        let times: &[u64] = if self.theme == Theme::Closes { &[30, 300] } else { &[1, 5, 20, 30] };
        let time = Micros::ms(self.dice.of(times));
        let mishaps = [
            Mishap::RunsLate(time),
            Mishap::AnsweredLate(time),
            Mishap::Refused(time),
            Mishap::CutBefore,
            Mishap::CutAfter,
        ];
        match self.dice.below(6) {
            0 => Step::AnswersLate(server, time),
            1 => Step::RunsLate(server, time),
            2 => Step::EndConnections(server),
            _ => Step::Next(server, self.request(), self.dice.of(&mishaps)),
        }
    }

    fn away(&mut self, server: usize) -> Option<Step> {
        if self.has_restarted {
            // Other masters miss a request beside it.
            let misses = Step::Next(server, self.request(), Mishap::CutBefore);
            return (self.settings.servers > 1).then_some(misses);
        }
        self.has_restarted = true;
        // Only a Redlock survives a server without its data.
        let keeps = self.settings.servers == 1 || self.dice.once_in(3);
        let away = Micros::ms(self.dice.of(&[0, 1, 20, 400]));
        Some(Step::Restart(Restart { server, keeps, away }))
    }

    fn request(&mut self) -> Request {
        let [acquire, other, release] = match self.dice.of(&self.things) {
            _ if self.settings.servers > 1 => {
                [Request::RedlockAcquire, Request::RedlockAcquire, Request::Release]
            }
            Thing::Mutex => [Request::Acquire, Request::Acquire, Request::Release],
            Thing::Fair => [Request::FairAcquire, Request::FairAcquire, Request::FairRelease],
            Thing::ReadWrite => [Request::Read, Request::Write, Request::ReadWriteRelease],
        };
        self.dice.of(&[acquire, acquire, other, release, release, Request::Subscribe])
    }
}
