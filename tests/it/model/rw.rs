//! The read-write lock: readers in parallel, reads inside a write hold, downgrades, refused
//! upgrades.

use leasehold::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Actor, NAME, Outcome, Run, in_mysql, on_each_server};
use crate::rig::ms;

const STEPS: usize = 600;
const CLIENT_OF: [usize; 4] = [0, 0, 1, 2];

struct Thread {
    lock: RwLock,
    reads: Vec<RwLockReadGuard>,
    writes: Vec<RwLockWriteGuard>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Mine {
    reads: usize,
    writes: usize,
    gone: bool,
    /// A reply was lost, or two threads share the hold: the counts at the server may differ from
    /// the client's until the hold ends.
    loose: bool,
    /// The number of its hold at the server: two reading threads of one client may share a hold.
    hold: usize,
}

impl Mine {
    fn holds(&self) -> bool {
        self.reads + self.writes > 0
    }

    fn stands(&self) -> bool {
        self.holds() && !self.gone
    }
}

/// A holder at the server: its client, whether it writes, and its count if that is known.
type Field = (String, bool, Option<usize>);

#[derive(Debug, Default, PartialEq)]
struct Standing {
    mode: Option<String>,
    fields: Vec<Field>,
    /// The number of read levels, if the counts are known.
    levels: Option<usize>,
    /// The marker of a waiting writer.
    others: Vec<String>,
}

struct Model {
    mine: [Mine; 4],
    ids: [String; 3],
}

impl Model {
    fn is_exact(&self) -> bool {
        self.mine.iter().all(|mine| !mine.stands() || !mine.loose)
    }

    fn wanted(&self) -> Standing {
        let exact = self.is_exact();
        let (mut standing, mut levels) = (Standing::default(), 0);
        let mut holds = Vec::new();
        for (n, mine) in self.mine.iter().enumerate().filter(|(_, mine)| mine.stands()) {
            if holds.contains(&mine.hold) {
                continue;
            }
            holds.push(mine.hold);
            let writes = mine.writes > 0;
            let count = if writes { mine.writes } else { mine.reads };
            standing.fields.push((self.ids[CLIENT_OF[n]].clone(), writes, exact.then_some(count)));
            // Only the client knows about reads inside a write hold.
            levels += if writes { 0 } else { mine.reads };
            standing.mode = Some(if writes { "write" } else { "read" }.to_owned());
        }
        standing.fields.sort();
        standing.levels = exact.then_some(levels);
        standing
    }

    /// The other thread of `n`'s client, if it reads: while its hold is new, `n` may join it, even
    /// if the server has lost it since.
    fn mate(&self, n: usize) -> Option<usize> {
        let is_mate = |other: &usize| *other != n && CLIENT_OF[*other] == CLIENT_OF[n];
        (0..4)
            .filter(is_mate)
            .find(|&other| self.mine[other].reads > 0 && self.mine[other].writes == 0)
    }

    /// Thread `n` was granted a new hold or joined that of its [mate](Self::mate). Only the server
    /// shows which.
    fn granted(&mut self, n: usize, holds_before: usize, run: &Run) {
        if self.holds_of(n, run) > holds_before {
            self.mine[n].hold = self.mine.iter().map(|mine| mine.hold).max().unwrap_or(0) + 1;
            return;
        }
        let mate = self.mate(n).expect("a thread to share a hold with");
        self.mine[mate].loose = true;
        let Mine { gone, hold, .. } = self.mine[mate];
        self.mine[n] = Mine { gone, hold, loose: true, ..self.mine[n] };
    }

    /// The number of holds of `n`'s client at the server.
    fn holds_of(&self, n: usize, run: &Run) -> usize {
        run.place
            .held()
            .levels
            .keys()
            .filter(|holder| holder.starts_with(&self.ids[CLIENT_OF[n]]))
            .count()
    }

    fn found(&self, run: &Run) -> Standing {
        let exact = self.is_exact();
        let held = run.place.held();
        let field = |(holder, count): (String, usize)| {
            let id = holder.split(':').next().unwrap().to_owned();
            (id, holder.ends_with(":write"), exact.then_some(count))
        };
        let mut fields: Vec<Field> = held.levels.into_iter().map(field).collect();
        fields.sort();
        Standing {
            mode: held.mode,
            fields,
            levels: exact.then_some(held.read_levels),
            others: held.others,
        }
    }
}

on_each_server! {
    the_read_write_lock_does_what_its_model_says: "read-write" by follow;
}

in_mysql! {
    the_read_write_lock_does_what_its_model_says: "read-write" by follow;
}

fn follow(mut run: Run) {
    let clients = [run.client(), run.client(), run.client()];
    let actors = CLIENT_OF.map(|n| {
        let lock = clients[n].rw_lock(NAME);
        Actor::new(move || Thread { lock, reads: Vec::new(), writes: Vec::new() })
    });
    let mut model = Model {
        mine: [Mine::default(); 4],
        ids: clients.each_ref().map(|client| client.id().to_owned()),
    };
    for _ in 0..STEPS {
        let (mut who, step) = (run.roll(4), run.roll(20));
        if step > 7 {
            // Mostly a thread that holds something; otherwise few operations would have an effect.
            let held = |n: &usize| {
                if (12..=16).contains(&step) {
                    model.mine[*n].writes > 0
                } else {
                    model.mine[*n].reads > 0
                }
            };
            who = run.pick((0..4).filter(held)).unwrap_or(who);
        }
        let (actor, mine) = (&actors[who], model.mine[who]);
        let read = model.mine.iter().any(|mine| mine.stands());
        let written = model.mine.iter().any(|mine| mine.stands() && mine.writes > 0);
        let (broken, soon);
        // Otherwise there would always be readers.
        let step = if step < 5 && !read && run.chance(2) { 5 } else { step };
        match step {
            0..=4 => {
                run.note(format!("{who} tries to read: {mine:?}"));
                let holds_before = model.holds_of(who, &run);
                broken = run.maybe_break();
                let outcome = actor.run(|thread: &mut Thread| {
                    Outcome::of_try(thread.lock.try_read(), |guard| thread.reads.push(guard))
                });
                let allowed: &[_] = match (mine.holds(), mine.gone) {
                    // The client decides this, and may not know yet that the hold is gone.
                    (true, true) if mine.writes > 0 => &[Outcome::Won, Outcome::LOST],
                    (true, true) => &[Outcome::LOST],
                    (true, false) => &[Outcome::Won],
                    (false, _) if written && model.mate(who).is_some() => {
                        &[Outcome::Busy, Outcome::Won]
                    }
                    (false, _) if written => &[Outcome::Busy],
                    (false, _) => &[Outcome::Won],
                };
                soon = run.answered(outcome, allowed, broken);
                model.mine[who].reads += usize::from(outcome == Outcome::Won);
                if !mine.holds() && outcome == Outcome::Won {
                    model.granted(who, holds_before, &run);
                }
            }
            5..=7 => {
                let timed = run.chance(4) && model.mine.iter().all(|mine| !mine.gone);
                run.note(format!("{who} tries to write, timed {timed}: {mine:?}"));
                broken = run.maybe_break();
                let outcome = actor.run(move |thread: &mut Thread| {
                    let tried = if timed {
                        thread.lock.try_write_for(ms(3))
                    } else {
                        thread.lock.try_write()
                    };
                    Outcome::of_try(tried, |guard| thread.writes.push(guard))
                });
                let allowed: &[_] = match (mine.writes > 0, mine.reads > 0) {
                    (true, _) if mine.gone => &[Outcome::LOST],
                    (true, _) => &[Outcome::Won],
                    // The client decides this, and may not know yet that the hold is gone.
                    (false, true) if mine.gone => &[Outcome::CONFLICT, Outcome::LOST],
                    // The thread would wait for itself.
                    (false, true) => &[Outcome::CONFLICT],
                    (false, false) if read => &[Outcome::Busy],
                    (false, false) => &[Outcome::Won],
                };
                soon = run.answered(outcome, allowed, broken);
                model.mine[who].writes += usize::from(outcome == Outcome::Won);
                if !mine.holds() && outcome == Outcome::Won {
                    model.granted(who, 0, &run);
                }
            }
            8..=11 | 18 | 19 if mine.reads > 0 => {
                let which = run.roll(mine.reads);
                run.note(format!("{who} leaves a read level: {mine:?}"));
                broken = run.maybe_break();
                let outcome = actor.run(move |thread: &mut Thread| {
                    Outcome::of_release(thread.reads.swap_remove(which).unlock())
                });
                let allowed: &[_] = match mine.gone {
                    false => &[Outcome::Done],
                    true if mine.writes > 0 || (broken && mine.reads == 1) => {
                        &[Outcome::Done, Outcome::LOST]
                    }
                    // The last one to leave sends a request to Redis.
                    true if model.mate(who).is_some() => &[Outcome::Done, Outcome::LOST],
                    true => &[Outcome::LOST],
                };
                soon = run.answered(outcome, allowed, broken);
                model.mine[who].reads -= 1;
            }
            12..=14 if mine.writes > 0 => {
                let which = run.roll(mine.writes);
                run.note(format!("{who} leaves a write level: {mine:?}"));
                broken = run.maybe_break();
                let outcome = actor.run(move |thread: &mut Thread| {
                    Outcome::of_release(thread.writes.swap_remove(which).unlock())
                });
                let allowed: &[_] = match mine.gone {
                    false => &[Outcome::Done],
                    true if broken && mine.writes + mine.reads == 1 => {
                        &[Outcome::Done, Outcome::LOST]
                    }
                    true => &[Outcome::LOST],
                };
                soon = run.answered(outcome, allowed, broken);
                model.mine[who].writes -= 1;
            }
            15 | 16 if mine.writes > 0 => {
                run.note(format!("{who} downgrades: {mine:?}"));
                broken = run.maybe_break();
                let outcome = actor.run(|thread: &mut Thread| {
                    let downgraded = thread.writes.pop().unwrap().downgrade();
                    Outcome::of_try(downgraded.map(Some), |guard| thread.reads.push(guard))
                });
                let wanted = if mine.gone { Outcome::LOST } else { Outcome::Won };
                soon = run.answered(outcome, &[wanted], broken);
                model.mine[who].writes -= 1;
                model.mine[who].reads += usize::from(outcome == Outcome::Won);
            }
            17 if run.chance(2) => {
                (broken, soon) = (false, false);
                if run.chance(2) {
                    run.note("all leases end".into());
                    run.place.delete_all();
                } else {
                    run.note(format!("{who} frees it by force"));
                    let freed = clients[CLIENT_OF[who]].rw_lock(NAME).force_unlock().unwrap();
                    run.same("freed", &freed, &read);
                }
                for mine in &mut model.mine {
                    mine.gone = mine.holds();
                }
            }
            _ => continue,
        }
        let mine = &mut model.mine[who];
        if mine.holds() {
            mine.loose |= broken && soon;
        } else {
            *mine = Mine::default();
        }
        run.stands(soon, &model.wanted(), || model.found(&run));
        for (actor, mine) in actors.iter().zip(model.mine).filter(|(_, mine)| mine.stands()) {
            let looked = actor.run(|thread: &mut Thread| {
                let reads = thread.reads.iter().map(|guard| (guard.is_held(), guard.hold_count()));
                reads
                    .chain(thread.writes.iter().map(|guard| (guard.is_held(), guard.hold_count())))
                    .collect::<Vec<_>>()
            });
            let levels = mine.reads + mine.writes;
            run.same(
                "held, how often",
                &looked,
                &vec![(true, u32::try_from(levels).unwrap()); levels],
            );
        }
    }
    drop((actors, clients));
    run.end();
}
