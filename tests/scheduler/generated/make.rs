//! Makes a program from a seed.

use super::program::{
    Client, Code, End, Ending, Family, Fire, Inside, Lead, Micros, Mode, Pace, Program, Request,
    Settings, Step, Take, Terms, Thread, Wait, When,
};

/// What a program is about besides taking and giving back. One at a time: a program of all faults
/// explains every outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theme {
    Plain,
    /// Calls that are cancelled, clients that are closed.
    Ends,
    /// Holds that the store loses, by force or by time.
    Losses,
    /// Requests that fail.
    Failures,
    /// Outages.
    Outages,
    /// Code of the user that panics or blocks.
    Foreign,
}

const THEMES: [Theme; 6] =
    [Theme::Plain, Theme::Ends, Theme::Losses, Theme::Failures, Theme::Outages, Theme::Foreign];

/// Steele, Lea, Flood: Fast splittable pseudorandom number generators (SplitMix64).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    pub(super) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// True once in so many times.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

struct Maker {
    dice: Dice,
    theme: Theme,
    settings: Settings,
    things: Vec<Family>,
    /// Most takes are alike: what happens between two kinds of take is rare, what happens between
    /// alike ones is where threads of a client meet.
    mode: Vec<Mode>,
    cancels: bool,
}

const LONG: Micros = Micros::ms(30_000);
const SHORT: Micros = Micros::ms(300);

pub(crate) fn make(seed: u64) -> Program {
    let mut dice = Dice(seed);
    let theme = dice.of(&THEMES);
    let families = [
        Family::Mutex,
        Family::Mutex,
        Family::Mutex,
        Family::ReadWrite,
        Family::ReadWrite,
        Family::Fair,
        Family::Semaphore,
        Family::Counting,
    ];
    let first = dice.of(&families);
    let things = match (first, dice.below(6)) {
        (Family::Mutex, 0) => vec![first, Family::Mutex],
        (_, 1) => vec![first, dice.of(&families)],
        (_, 2) if dice.once_in(2) => vec![first, Family::Latch],
        _ => vec![first],
    };
    // What is more than a lock has programs of its own.
    let more = [Family::Job, Family::Job, Family::Election, Family::Election, Family::Limiter];
    let things = match theme {
        Theme::Foreign => things,
        _ if !dice.once_in(4) => things,
        _ if dice.once_in(6) => vec![dice.of(&more), dice.of(&more)],
        _ => vec![dice.of(&more)],
    };
    let mut settings = settings(&mut dice, theme);
    // The numbers of terms are tokens.
    settings.tokens |= things.contains(&Family::Election);
    let mode = things.iter().map(|family| any_mode(&mut dice, *family, &things)).collect();
    let mut maker = Maker { dice, theme, settings, things, mode, cancels: false };
    let threads = maker.threads();
    Program { settings: maker.settings, things: maker.things, threads }
}

fn settings(dice: &mut Dice, theme: Theme) -> Settings {
    let lease = match theme {
        Theme::Losses | Theme::Outages => dice.of(&[SHORT, LONG]),
        _ if dice.once_in(8) => SHORT,
        _ => LONG,
    };
    let mut settings = Settings {
        lease,
        outage: if theme == Theme::Outages {
            dice.of(&[Micros::ms(2_000), lease, lease])
        } else {
            lease
        },
        permits: dice.of(&[1, 2, 2]),
        tokens: !dice.once_in(4),
        races: dice.once_in(3),
        listener: Code::Calm,
        callbacks: Code::Calm,
        logger: Code::Calm,
    };
    if theme == Theme::Foreign {
        match dice.below(5) {
            0 => settings.listener = Code::Panics,
            1 | 2 => settings.listener = Code::Blocks,
            _ => settings.logger = Code::Panics,
        }
    }
    if theme == Theme::Losses {
        settings.callbacks = dice.of(&[Code::Calm, Code::Calm, Code::Panics, Code::Blocks]);
    }
    settings
}

fn any_mode(dice: &mut Dice, family: Family, things: &[Family]) -> Mode {
    let several = things.iter().filter(|thing| **thing == Family::Mutex).count() > 1;
    match family {
        Family::Mutex if several && dice.once_in(3) => dice.of(&[Mode::All, Mode::OwnedAll]),
        Family::Mutex | Family::Fair => dice.of(&[Mode::Plain, Mode::Plain, Mode::Owned]),
        Family::ReadWrite => dice.of(&[
            Mode::Read,
            Mode::Read,
            Mode::OwnedRead,
            Mode::Write,
            Mode::Write,
            Mode::OwnedWrite,
        ]),
        Family::Semaphore | Family::Counting | Family::Latch => {
            dice.of(&[Mode::OnePermit, Mode::TwoPermits])
        }
        Family::Job | Family::Election | Family::Limiter => Mode::Plain,
    }
}

impl Maker {
    fn threads(&mut self) -> Vec<Thread> {
        self.cancels = self.theme == Theme::Ends && !self.dice.once_in(3);
        // What one thread learns of an outage must serve many.
        let is_crowd = self.theme == Theme::Outages && self.dice.once_in(3);
        let count = if is_crowd { 8 } else { self.dice.of(&[2, 3, 3, 4, 4, 5]) };
        // Within one client, threads hand holds to each other.
        let both = if is_crowd { 10 } else { self.dice.of(&[2, 3, 3, 4]) };
        let mut threads: Vec<Thread> = (0..count)
            .map(|_| {
                let client = if self.dice.below(both) > 0 { Client::One } else { Client::Other };
                Thread { client, steps: self.steps(client) }
            })
            .collect();
        if self.cancels {
            let steps = vec![Step::Sleep(self.moment()), Step::Cancel];
            threads.push(Thread { client: Client::One, steps });
        }
        threads
    }

    fn steps(&mut self, client: Client) -> Vec<Step> {
        let mut steps = Vec::new();
        for _ in 0..self.dice.of(&[1, 1, 2, 2, 3]) {
            if self.dice.once_in(4) {
                steps.push(Step::Sleep(self.moment()));
            }
            if let Some(event) = self.event(client) {
                steps.push(event);
            }
            let thing = self.dice.below(self.things.len());
            match self.things[thing] {
                Family::Latch => steps.push(Step::CountDown(thing)),
                Family::Job => steps.push(self.of_job(thing)),
                Family::Election => steps.push(self.of_election(thing)),
                Family::Limiter => steps.push(self.of_limiter(thing)),
                _ => steps.push(Step::Take(self.take(thing))),
            }
        }
        if let Some(latch) = self.things.iter().position(|thing| *thing == Family::Latch)
            && self.dice.once_in(2)
        {
            steps.push(Step::WaitFor(latch));
        }
        self.end_with(&mut steps);
        steps
    }

    /// Only the last step of a thread may forget its guard: the thread would wait for itself.
    fn end_with(&mut self, steps: &mut [Step]) {
        let lasts = self.dice.once_in(6);
        if let Some(Step::Take(take)) = steps.last_mut()
            && lasts
            && self.settings.logger == Code::Calm
            && (!take.mode.is_owned() || matches!(take.terms, Terms::Lease(_) | Terms::MaxHold(_)))
        {
            take.end = End::Forget;
        }
    }

    /// Something of the theme.
    fn event(&mut self, client: Client) -> Option<Step> {
        let thing = self.dice.below(self.things.len());
        let has_latch = self.things.contains(&Family::Latch);
        let counts =
            matches!(self.things[thing], Family::Counting | Family::Latch | Family::Limiter);
        if self.dice.once_in(3) {
            return None;
        }
        match self.theme {
            Theme::Plain | Theme::Foreign if self.settings.logger == Code::Panics => {
                Some(self.failure())
            }
            Theme::Plain | Theme::Foreign => None,
            Theme::Ends if has_latch || self.dice.once_in(2) => None,
            Theme::Ends => {
                let who = self.dice.of(&[client, Client::One]);
                Some(if self.dice.once_in(2) { Step::Close(who) } else { Step::StopWaiting(who) })
            }
            Theme::Losses if counts || self.dice.once_in(2) => None,
            Theme::Losses => {
                let time = self.dice.of(&[Micros::ms(200), Micros::ms(40_000)]);
                Some(match self.dice.below(4) {
                    0 | 1 => Step::Force(thing),
                    2 => Step::Lose(thing),
                    _ => Step::Advance(time),
                })
            }
            Theme::Failures => Some(self.failure()),
            Theme::Outages if self.dice.once_in(2) => None,
            Theme::Outages => {
                let times = [1, 100, 250, 290, 310, 1_000, 5_000, 100_000];
                let time = Micros::ms(self.dice.of(&times));
                Some(if self.dice.once_in(4) {
                    Step::Hang(Micros::ms(100_000))
                } else {
                    Step::Cut(time)
                })
            }
        }
    }

    fn failure(&mut self) -> Step {
        let requests = [
            Request::Acquire,
            Request::Acquire,
            Request::Release,
            Request::Release,
            Request::Release,
            Request::Subscribe,
            Request::Renew,
            Request::Extend,
        ];
        // The planted bugs that need a logger whose panics are not caught are about these. Any other
        // log line would fail there for another reason.
        let logs = self.settings.logger == Code::Panics;
        let of_a_job = [Request::Acquire, Request::Release, Request::Release, Request::Inspect];
        let request = match self.things[0] {
            _ if logs => self.dice.of(&requests[..5]),
            Family::Job => self.dice.of(&of_a_job),
            _ => self.dice.of(&requests),
        };
        let when = match request {
            _ if logs => self.dice.of(&[When::Before, When::After]),
            Request::Acquire => {
                self.dice.of(&[When::Before, When::After, When::After, When::NotConfirmed])
            }
            _ => self.dice.of(&[When::Before, When::After]),
        };
        Step::Fail(request, when)
    }

    /// A time of the size of a step, of a gap between clients, or of a lease.
    fn moment(&mut self) -> Micros {
        match self.settings.lease {
            SHORT => self.dice.of(&[
                Micros(20),
                Micros(600),
                Micros::ms(5),
                Micros::ms(100),
                Micros::ms(290),
                Micros::ms(310),
            ]),
            _ => self.dice.of(&[
                Micros(20),
                Micros(300),
                Micros(600),
                Micros::ms(3),
                Micros::ms(12),
                Micros::ms(400),
            ]),
        }
    }

    /// Few occurrences, so that threads meet.
    fn of_job(&mut self, thing: usize) -> Step {
        let occurrence = self.dice.of(&[1, 1, 1, 2]);
        match self.dice.below(10) {
            0 => Step::Reopen(thing, occurrence),
            1 | 2 => {
                let times = [Micros(0), Micros::ms(5), Micros::ms(400), Micros::ms(4_000)];
                Step::AwaitDone(thing, occurrence, self.dice.of(&times))
            }
            _ => {
                let works = if self.dice.once_in(2) { Micros(0) } else { self.moment() };
                let endings =
                    [Ending::Done, Ending::Done, Ending::Done, Ending::Fails, Ending::Panics];
                Step::Fire(Fire { thing, occurrence, works, ending: self.dice.of(&endings) })
            }
        }
    }

    fn of_election(&mut self, thing: usize) -> Step {
        if self.dice.once_in(6) {
            return Step::AskFor(thing);
        }
        let stay = if self.dice.once_in(2) { Micros(0) } else { self.moment() };
        let endings = [
            Ending::Done,
            Ending::Done,
            Ending::Resigns,
            Ending::Resigns,
            Ending::Fails,
            Ending::Panics,
        ];
        let cancellable = self.cancels && self.dice.once_in(2);
        Step::Lead(Lead { thing, stay, ending: self.dice.of(&endings), cancellable })
    }

    fn of_limiter(&mut self, thing: usize) -> Step {
        if self.dice.once_in(6) {
            return Step::SetRate(thing);
        }
        let wait = if self.dice.once_in(2) { Wait::Ever } else { self.wait() };
        Step::Pace(Pace { thing, permits: self.dice.of(&[1, 1, 2]), wait })
    }

    fn take(&mut self, thing: usize) -> Take {
        let mode = if self.dice.once_in(3) {
            any_mode(&mut self.dice, self.things[thing], &self.things)
        } else {
            self.mode[thing]
        };
        let cancellable = self.cancels && self.dice.once_in(2);
        let (terms, wait) = (self.terms(thing, mode), self.wait());
        let inside = self.inside(thing, mode, terms);
        let ends =
            [End::Unlock, End::Unlock, End::Unlock, End::Drop, End::Panic, End::DropElsewhere];
        let end = match self.dice.of(&ends) {
            End::DropElsewhere if !mode.is_owned() || self.settings.logger == Code::Panics => {
                End::Unlock
            }
            end => end,
        };
        Take { mode, thing, wait, cancellable, terms, inside, end }
    }

    fn wait(&mut self) -> Wait {
        match self.dice.below(8) {
            0 => Wait::Never,
            1 | 2 => {
                Wait::For(self.dice.of(&[Micros(50), Micros(700), Micros::ms(1), Micros::ms(3)]))
            }
            3 => {
                Wait::For(self.dice.of(&[Micros::ms(300), Micros::ms(2_000), Micros::ms(200_000)]))
            }
            _ => Wait::Ever,
        }
    }

    fn terms(&mut self, thing: usize, mode: Mode) -> Terms {
        let family = self.things[thing];
        let rarely = if self.theme == Theme::Losses { 3 } else { 8 };
        if matches!(family, Family::Counting | Family::Latch) || !self.dice.once_in(rarely) {
            return Terms::Usual;
        }
        let may_stay = !matches!(mode, Mode::Read | Mode::OwnedRead) && family != Family::Semaphore;
        match self.dice.below(3) {
            0 if may_stay => Terms::MinHold(self.dice.of(&[Micros::ms(2), Micros::ms(20)])),
            // A multi-lock has none of its own.
            1 if !mode.takes_all() => {
                let near = Micros(10_000_000 + 2 * self.dice.below(200) as u64);
                Terms::MaxHold(if self.settings.lease == LONG {
                    near
                } else {
                    self.dice.of(&[Micros::ms(100), SHORT])
                })
            }
            _ => Terms::Lease(self.dice.of(&[Micros::ms(20), Micros::ms(50), SHORT])),
        }
    }

    fn inside(&mut self, thing: usize, mode: Mode, terms: Terms) -> Vec<Inside> {
        let mut inside = Vec::new();
        if self.dice.once_in(6) {
            inside.push(self.dice.of(&[Inside::Again, Inside::AgainForLonger]));
        }
        if self.dice.once_in(2) {
            let stay = match terms {
                Terms::Lease(lease) => {
                    self.dice.of(&[Micros(lease.0 - 1_000), Micros(lease.0 * 2), Micros::ms(1)])
                }
                // Its guard lives on.
                Terms::MaxHold(most) if self.settings.lease == LONG => Micros(most.0 + 60_000_000),
                Terms::MaxHold(most) => Micros(most.0 * 3),
                _ => self.moment(),
            };
            inside.push(Inside::Stay(stay));
        }
        if self.dice.once_in(10) && self.things[thing] != Family::Counting {
            // A short lease that is extended for long is looked at every few milliseconds.
            let most = if matches!(terms, Terms::Lease(_)) { SHORT } else { self.settings.lease };
            inside.push(Inside::Extend(self.dice.of(&[Micros::ms(100), SHORT, most])));
        }
        if matches!(mode, Mode::Write | Mode::OwnedWrite) && self.dice.once_in(4) {
            inside.push(Inside::Downgrade);
        }
        inside
    }
}
