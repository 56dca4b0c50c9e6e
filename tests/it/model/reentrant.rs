//! Locks that a thread can re-enter: the plain one, the fair one, the write side.

use leasehold::{
    FairMutex, FairMutexGuard, LockClient, OwnedFairMutexGuard, OwnedMutexGuard,
    OwnedRwLockWriteGuard, ReentrantMutex, ReentrantMutexGuard, Result, RwLock, RwLockWriteGuard,
};

use super::{Actor, NAME, Outcome, Run, in_mysql, on_each_server};

const STEPS: usize = 400;
/// The client that each thread uses: two threads share one.
const CLIENT_OF: [usize; 4] = [0, 0, 1, 2];

trait Lock: Clone + Send + 'static {
    type Bound: 'static;
    type Owned: Send + 'static;

    fn of(client: &LockClient) -> Self;
    fn try_bound(&self, timed: bool) -> Result<Option<Self::Bound>>;
    fn try_owned(&self) -> Result<Option<Self::Owned>>;
    fn force_unlock(&self) -> Result<bool>;
    /// Whether the lock is held, its hold count, and its token.
    fn look(guard: &Self::Bound) -> (bool, u32, u64);
    fn look_owned(guard: &Self::Owned) -> (bool, u32, u64);
    fn unlock(guard: Self::Bound) -> Result<()>;
    fn unlock_owned(guard: Self::Owned) -> Result<()>;
}

macro_rules! lock {
    ($lock:ident by $made:ident, $bound:ident by $try:ident and $try_for:ident, $owned:ident by $try_owned:ident) => {
        impl Lock for $lock {
            type Bound = $bound;
            type Owned = $owned;

            fn of(client: &LockClient) -> Self {
                client.$made(NAME)
            }

            fn try_bound(&self, timed: bool) -> Result<Option<$bound>> {
                if timed { self.$try_for(std::time::Duration::ZERO) } else { self.$try() }
            }

            fn try_owned(&self) -> Result<Option<$owned>> {
                self.$try_owned()
            }

            fn force_unlock(&self) -> Result<bool> {
                self.force_unlock()
            }

            fn look(guard: &$bound) -> (bool, u32, u64) {
                (guard.is_held(), guard.hold_count(), guard.fencing_token().unwrap().get())
            }

            fn look_owned(guard: &$owned) -> (bool, u32, u64) {
                (guard.is_held(), guard.hold_count(), guard.fencing_token().unwrap().get())
            }

            fn unlock(guard: $bound) -> Result<()> {
                guard.unlock()
            }

            fn unlock_owned(guard: $owned) -> Result<()> {
                guard.unlock()
            }
        }
    };
}

lock!(
    ReentrantMutex by mutex,
    ReentrantMutexGuard by try_lock and try_lock_for,
    OwnedMutexGuard by try_lock_owned
);
lock!(FairMutex by fair, FairMutexGuard by try_lock and try_lock_for, OwnedFairMutexGuard by try_lock_owned);
lock!(RwLock by rw_lock, RwLockWriteGuard by try_write and try_write_for, OwnedRwLockWriteGuard by try_write_owned);

struct Thread<L: Lock> {
    lock: L,
    bound: Vec<L::Bound>,
    owned: Option<L::Owned>,
}

/// What one thread holds. `gone`: the hold is gone at the server, whether the thread knows it or
/// not.
#[derive(Debug, Default, Clone, Copy)]
struct Mine {
    levels: usize,
    gone: bool,
    owned: bool,
    owned_gone: bool,
}

#[derive(Default)]
struct Model {
    mine: [Mine; 4],
    /// The count at the server is unknown, because a reply was lost.
    loose: bool,
    token: u64,
}

impl Model {
    /// The holder at the server, by client, and its hold count.
    fn standing(&self) -> Option<(usize, usize)> {
        let of = |(n, mine): (usize, &Mine)| match mine {
            Mine { owned: true, owned_gone: false, .. } => Some((CLIENT_OF[n], 1)),
            Mine { levels: 1.., gone: false, .. } => Some((CLIENT_OF[n], mine.levels)),
            _ => None,
        };
        let mut standing = self.mine.iter().enumerate().filter_map(of);
        let first = standing.next();
        assert!(standing.next().is_none(), "the model itself admits two holders");
        first
    }

    fn expire(&mut self) {
        for mine in &mut self.mine {
            mine.gone = mine.levels > 0;
            mine.owned_gone = mine.owned;
        }
    }
}

fn run<L: Lock>(mut run: Run) {
    let clients = [run.client(), run.client(), run.client()];
    let ids = clients.each_ref().map(|client| client.id().to_owned());
    let actors = CLIENT_OF.map(|n| {
        let lock = L::of(&clients[n]);
        Actor::new(move || Thread { lock, bound: Vec::new(), owned: None })
    });
    let mut model = Model::default();
    for _ in 0..STEPS {
        let (mut who, step) = (run.roll(4), run.roll(16));
        if let 6..=10 | 13 = step {
            // Mostly a thread that holds something; otherwise few operations would have an effect.
            let held = |n: &usize| {
                if step == 13 { model.mine[*n].owned } else { model.mine[*n].levels > 0 }
            };
            who = run.pick((0..4).filter(held)).unwrap_or(who);
        }
        let (actor, mine) = (&actors[who], model.mine[who]);
        let free = model.standing().is_none();
        let mut soon = false;
        match step {
            0..=5 => {
                // A timed attempt waits for a thread of its own client, which may not know that its
                // hold is gone.
                let timed =
                    run.chance(4) && model.mine.iter().all(|mine| !mine.gone && !mine.owned_gone);
                run.note(format!("{who} tries, {} levels, gone {}", mine.levels, mine.gone));
                let broken = run.maybe_break();
                let (outcome, looked) = actor.run(move |thread: &mut Thread<L>| {
                    let outcome = Outcome::of_try(thread.lock.try_bound(timed), |guard| {
                        thread.bound.push(guard);
                    });
                    (outcome, thread.bound.last().map(L::look))
                });
                let wanted = match (mine.levels > 0, free) {
                    (true, _) if mine.gone => Outcome::LOST,
                    (true, _) | (false, true) => Outcome::Won,
                    (false, false) => Outcome::Busy,
                };
                soon = run.answered(outcome, &[wanted], broken);
                // Nothing is sent after a lost re-entry: the next call corrects the count.
                model.loose =
                    if mine.levels > 0 && !mine.gone { soon } else { model.loose && !free };
                if outcome == Outcome::Won {
                    model.mine[who].levels += 1;
                    let (held, count, token) = looked.unwrap();
                    run.same("held, how often", &(held, count as usize), &(true, mine.levels + 1));
                    assert!(
                        token > model.token || (mine.levels > 0 && token == model.token),
                        "{}",
                        run.story()
                    );
                    model.token = token;
                }
            }
            6..=10 if mine.levels > 0 => {
                let (which, reported) = (run.roll(mine.levels), !run.chance(3));
                run.note(format!(
                    "{who} unlocks one of {}, gone {}, reported {reported}",
                    mine.levels, mine.gone
                ));
                let broken = run.maybe_break();
                let outcome = actor.run(move |thread: &mut Thread<L>| {
                    let guard = thread.bound.swap_remove(which);
                    if reported {
                        return Outcome::of_release(L::unlock(guard));
                    }
                    drop(guard);
                    Outcome::Done
                });
                let allowed: &[_] = match mine.gone {
                    _ if !reported => &[Outcome::Done],
                    false => &[Outcome::Done],
                    // A repeat cannot distinguish its own first attempt from a loss.
                    true if broken && mine.levels == 1 => &[Outcome::Done, Outcome::LOST],
                    true => &[Outcome::LOST],
                };
                let unknown = run.answered(outcome, allowed, broken);
                let mine = &mut model.mine[who];
                mine.levels -= 1;
                soon = unknown || (broken && !reported);
                if !mine.gone {
                    model.loose = soon && mine.levels > 0;
                }
                mine.gone &= mine.levels > 0;
            }
            11 | 12 if !mine.owned => {
                run.note(format!("{who} tries for an owned one"));
                let broken = run.maybe_break();
                let (outcome, looked) = actor.run(|thread: &mut Thread<L>| {
                    let outcome = Outcome::of_try(thread.lock.try_owned(), |guard| {
                        thread.owned = Some(guard);
                    });
                    (outcome, thread.owned.as_ref().map(L::look_owned))
                });
                soon = run.answered(
                    outcome,
                    &[if free { Outcome::Won } else { Outcome::Busy }],
                    broken,
                );
                if outcome == Outcome::Won {
                    (model.mine[who].owned, model.loose) = (true, false);
                    let (held, count, token) = looked.unwrap();
                    run.same("held, how often", &(held, count), &(true, 1));
                    assert!(token > model.token, "{}", run.story());
                    model.token = token;
                }
            }
            11..=13 if mine.owned => {
                run.note(format!("{who} unlocks its owned one, gone {}", mine.owned_gone));
                let broken = run.maybe_break();
                let outcome = actor.run(|thread: &mut Thread<L>| {
                    Outcome::of_release(L::unlock_owned(thread.owned.take().unwrap()))
                });
                let allowed: &[_] = match mine.owned_gone {
                    false => &[Outcome::Done],
                    true if broken => &[Outcome::Done, Outcome::LOST],
                    true => &[Outcome::LOST],
                };
                soon = run.answered(outcome, allowed, broken);
                let mine = &mut model.mine[who];
                (mine.owned, mine.owned_gone) = (false, false);
            }
            14 if run.chance(2) => {
                run.note("the lease ends".into());
                run.place.delete_all();
                model.expire();
            }
            15 if run.chance(2) => {
                run.note(format!("{who} frees it by force"));
                let freed = actor.run(|thread: &mut Thread<L>| thread.lock.force_unlock().unwrap());
                run.same("freed", &freed, &!free);
                if freed {
                    model.expire();
                }
            }
            15 => run.place.forget_scripts(),
            _ => continue,
        }
        let count = |count: usize| if model.loose { None } else { Some(count) };
        let standing = model.standing().map(|(n, levels)| (ids[n].clone(), count(levels)));
        // There is no other key: no entry in a queue, no marker of a waiting writer.
        run.stands(soon, &(standing, vec![]), || {
            let mut held = run.place.held();
            assert!(held.levels.len() <= 1 && held.read_levels == 0, "{held:?}\n{}", run.story());
            let id = |holder: String| holder.split(':').next().unwrap().to_owned();
            let standing =
                held.levels.pop_first().map(|(holder, levels)| (id(holder), count(levels)));
            (standing, held.others)
        });
        for (actor, mine) in actors.iter().zip(model.mine) {
            let (bound, owned) = actor.run(|thread: &mut Thread<L>| {
                (thread.bound.last().map(L::look), thread.owned.as_ref().map(L::look_owned))
            });
            // The client may or may not know yet that this hold is gone.
            if let (Some((held, count, _)), false) = (bound, mine.gone) {
                run.same("held, how often", &(held, count as usize), &(true, mine.levels));
            }
            if let (Some((held, ..)), false) = (owned, mine.owned_gone) {
                run.same("held", &held, &true);
            }
        }
    }
    drop((actors, clients));
    run.end();
}

on_each_server! {
    the_plain_lock_does_what_its_model_says: "plain" by run::<ReentrantMutex>;
    the_fair_lock_does_what_its_model_says: "fair" by run::<FairMutex>;
    the_write_side_does_what_its_model_says: "write" by run::<RwLock>;
}

in_mysql! {
    the_plain_lock_does_what_its_model_says: "plain" by run::<ReentrantMutex>;
    the_write_side_does_what_its_model_says: "write" by run::<RwLock>;
}
