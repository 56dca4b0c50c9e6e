//! The order of a fair lock: waiters of several clients, some of which give up or die.

use std::collections::VecDeque;

use crossbeam_channel::Receiver;
use leasehold::{FairMutex, FairMutexGuard};

use super::{Actor, NAME, Outcome, Run, on_each_server};
use crate::rig::{CAP, ms, wait_until};

const STEPS: usize = 250;
const CLIENT_OF: [usize; 6] = [0, 0, 1, 1, 2, 2];

struct Thread {
    lock: FairMutex,
    guards: Vec<FairMutexGuard>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Mine {
    levels: usize,
    gone: bool,
    waits: bool,
}

struct Model {
    mine: [Mine; 6],
    /// The waiters, each with its holder id.
    queue: VecDeque<(usize, String)>,
    /// The waiters that died, wherever they are in the queue.
    dead: Vec<String>,
    answers: [Option<Receiver<Outcome>>; 6],
}

impl Model {
    fn holder(&self) -> Option<usize> {
        self.mine.iter().position(|mine| mine.levels > 0 && !mine.gone)
    }

    /// The lock was released: the first waiter has it now, and no other.
    fn pass_on(&mut self, run: &mut Run) {
        let Some((next, _)) = self.queue.pop_front() else { return };
        let answer = self.answers[next].take().unwrap().recv_timeout(CAP);
        run.note(format!("{next} gets it"));
        assert_eq!(answer, Ok(Outcome::Won), "it is the turn of {next}\n{}", run.story());
        self.mine[next] = Mine { levels: 1, gone: false, waits: false };
        for (other, _) in &self.queue {
            let early = self.answers[*other].as_ref().unwrap().try_recv();
            assert!(early.is_err(), "it is not the turn of {other}: {early:?}\n{}", run.story());
        }
    }
}

fn in_queue(run: &Run, dead: &[String]) -> Vec<String> {
    let mut queue = run.place.queue();
    queue.retain(|holder| !dead.contains(holder));
    queue
}

on_each_server! {
    a_fair_lock_is_given_in_the_order_of_its_model: "fair order" by give_in_order;
}

fn give_in_order(mut run: Run) {
    let clients = [run.client(), run.client(), run.client()];
    // `force_unlock` is sent only once, so it must not use a connection that may have been cut.
    let operator = run.place.client();
    let actors = CLIENT_OF.map(|n| {
        let lock = clients[n].fair(NAME);
        Actor::new(move || Thread { lock, guards: Vec::new() })
    });
    let mut model = Model {
        mine: [Mine::default(); 6],
        queue: VecDeque::new(),
        dead: Vec::new(),
        answers: [const { None }; 6],
    };
    let mut cut = false;
    for step in 0..STEPS {
        let who = run.roll(6);
        let (actor, mine) = (&actors[who], model.mine[who]);
        let free = model.holder().is_none();
        let idle = mine.levels == 0 && !mine.waits;
        let mut soon = false;
        match run.roll(17) {
            0..=5 if idle => {
                run.note(format!("{who} waits, free {free}"));
                // With a lost reply the waiter may fail or continue to wait after a repeat; the
                // model could not know which.
                let broken = free && run.maybe_break();
                let answer = actor.start(|thread: &mut Thread| {
                    Outcome::of_try(thread.lock.lock().map(Some), |guard| thread.guards.push(guard))
                });
                if free {
                    let got = answer.recv_timeout(CAP).expect("an answer");
                    soon = run.answered(got, &[Outcome::Won], broken);
                    model.mine[who].levels = usize::from(got == Outcome::Won);
                } else {
                    let before = model.queue.len();
                    wait_until(&format!("{who} is in the queue\n{}", run.story()), || {
                        in_queue(&run, &model.dead).len() > before
                    });
                    let holder = in_queue(&run, &model.dead).pop().unwrap();
                    model.queue.push_back((who, holder));
                    (model.mine[who].waits, model.answers[who]) = (true, Some(answer));
                }
            }
            6 | 7 if !mine.waits => {
                run.note(format!("{who} tries, {} levels, gone {}", mine.levels, mine.gone));
                let outcome = actor.run(|thread: &mut Thread| {
                    Outcome::of_try(thread.lock.try_lock(), |guard| thread.guards.push(guard))
                });
                let wanted = match mine.levels > 0 {
                    true if mine.gone => Outcome::LOST,
                    true => Outcome::Won,
                    false if free => Outcome::Won,
                    false => Outcome::Busy,
                };
                run.answered(outcome, &[wanted], false);
                model.mine[who].levels += usize::from(outcome == Outcome::Won);
            }
            8 | 9 if idle && !free => {
                run.note(format!("{who} waits for a moment"));
                let broken = run.maybe_break();
                let outcome = actor.run(|thread: &mut Thread| {
                    Outcome::of_try(thread.lock.try_lock_for(ms(5)), |guard| {
                        thread.guards.push(guard);
                    })
                });
                soon = run.answered(outcome, &[Outcome::Busy], broken);
            }
            10..=13 => {
                let Some(who) = run.pick((0..6).filter(|n| model.mine[*n].levels > 0)) else {
                    continue;
                };
                let mine = model.mine[who];
                run.note(format!("{who} unlocks one of {}, gone {}", mine.levels, mine.gone));
                let broken = run.maybe_break();
                let outcome = actors[who].run(|thread: &mut Thread| {
                    Outcome::of_release(thread.guards.pop().unwrap().unlock())
                });
                let allowed: &[_] = match mine.gone {
                    false => &[Outcome::Done],
                    // A repeat cannot distinguish its own first attempt from a loss.
                    true if (broken || cut) && mine.levels == 1 => &[Outcome::Done, Outcome::LOST],
                    true => &[Outcome::LOST],
                };
                soon = run.answered(outcome, allowed, broken);
                model.mine[who].levels -= 1;
                if mine.levels == 1 {
                    model.mine[who].gone = false;
                    if !mine.gone {
                        model.pass_on(&mut run);
                    }
                }
            }
            14 => {
                run.note("somebody frees it by force".into());
                let freed = operator.fair(NAME).force_unlock().unwrap();
                run.same("freed", &freed, &!free);
                if let Some(holder) = model.holder() {
                    model.mine[holder].gone = true;
                    model.pass_on(&mut run);
                }
            }
            15 if run.place.has_the_dead() => {
                // A leasehold waiter or a Redisson waiter: they differ only in the version of the
                // id.
                let version = if run.chance(2) { 8 } else { 4 };
                let dead = format!("00000000-0000-{version}000-8000-{step:012}:1");
                run.note(format!("{dead} waits, but is dead"));
                run.place.add_dead_waiter(&dead);
                model.dead.push(dead);
            }
            16 if run.chance(2) => {
                let Some(proxy) = &run.proxy else { continue };
                // A queued waiter that has not received that reply yet would fail.
                wait_until("all are answered", || proxy.is_at_rest());
                proxy.cut_all();
                run.note("all connections end".into());
                // From now on any idle connection may turn out to be closed, and a request sent
                // over it is repeated.
                cut = true;
            }
            _ => continue,
        }
        let order: Vec<String> = model.queue.iter().map(|(_, holder)| holder.clone()).collect();
        run.stands(soon, &order, || in_queue(&run, &model.dead));
        let holder = model.holder().map(|n| clients[CLIENT_OF[n]].id().to_owned());
        run.stands(soon, &holder, || {
            run.place
                .held()
                .levels
                .pop_first()
                .map(|(id, _)| id.split(':').next().unwrap().to_owned())
        });
    }
    while let Some(holder) = (0..6).find(|n| model.mine[*n].levels > 0) {
        let mine = model.mine[holder];
        actors[holder].run(|thread: &mut Thread| thread.guards.clear());
        model.mine[holder] = Mine::default();
        if !mine.gone {
            model.pass_on(&mut run);
        }
    }
    // The next client that asks removes the dead waiters.
    drop(clients[0].fair(NAME).lock().unwrap());
    drop((actors, clients, operator));
    run.end();
}
