//! Primitives that count: the semaphore with leases, the counting semaphore, the latch.

use leasehold::{CountingPermit, ErrorKind, PermitId, SemaphorePermit, SetPermits};

use super::{NAME, Outcome, Run, in_mysql, on_each_server};
use crate::rig::ms;

const STEPS: usize = 600;

/// One acquisition of a semaphore with leases.
struct Taken {
    guard: Option<SemaphorePermit>,
    /// Set if it was forgotten: then it is returned by this id.
    id: Option<PermitId>,
    permits: u32,
    members: Vec<Vec<u8>>,
    state: Lease,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lease {
    Live,
    /// Its lease has ended, and no call has removed it yet.
    Ended,
    /// Nothing of it is left at the server.
    Gone,
}

#[derive(Default)]
struct Permits {
    /// `None` if there is no semaphore.
    free: Option<i64>,
    taken: Vec<Taken>,
}

impl Permits {
    fn at_server(&self) -> i64 {
        self.taken
            .iter()
            .filter(|taken| taken.state != Lease::Gone)
            .map(|taken| i64::from(taken.permits))
            .sum()
    }

    fn is_ended(&self, n: usize) -> bool {
        self.taken[n].state == Lease::Ended
    }

    /// What every call on an existing semaphore does first.
    fn sweep(&mut self) {
        let Some(free) = &mut self.free else { return };
        for taken in self.taken.iter_mut().filter(|taken| taken.state == Lease::Ended) {
            *free += i64::from(taken.permits);
            taken.state = Lease::Gone;
        }
    }

    /// The result and the effect of a release.
    fn give_back(&mut self, n: usize) -> Outcome {
        let (permits, state) = (i64::from(self.taken[n].permits), self.taken[n].state);
        if state != Lease::Gone {
            self.free = self.free.map(|free| free + permits);
        }
        self.taken[n].state = Lease::Gone;
        if state == Lease::Live { Outcome::Done } else { Outcome::LOST }
    }

    fn delete(&mut self) -> bool {
        for taken in &mut self.taken {
            taken.state = Lease::Gone;
        }
        self.free.take().is_some()
    }
}

/// How many to acquire: mostly an available number, sometimes more than can ever exist.
fn a_few(run: &mut Run) -> u32 {
    match run.roll(16) {
        0 => 0,
        1 => 20,
        other => 1 + other as u32 % 3,
    }
}

/// How many to add, so that mostly some permits are free.
fn more_or_fewer(run: &mut Run, free: Option<i64>) -> i64 {
    let more = run.roll(5) as i64;
    if free.unwrap_or(0) > 5 { -more } else { more - 1 }
}

on_each_server! {
    the_semaphore_does_what_its_model_says: "semaphore" by semaphore;
    the_counting_semaphore_does_what_its_model_says: "counting semaphore" by counting_semaphore;
    the_latch_does_what_its_model_says: "latch" by latch;
}

in_mysql! {
    the_semaphore_does_what_its_model_says: "semaphore" by semaphore;
}

fn semaphore(mut run: Run) {
    let clients = [run.client(), run.client(), run.client()];
    let handles = clients.each_ref().map(|client| client.semaphore(NAME));
    let mut model = Permits::default();
    for _ in 0..STEPS {
        let handle = &handles[run.roll(3)];
        let mut soon = false;
        match run.roll(20) {
            0..=6 => {
                let (permits, timed) = (a_few(&mut run), run.chance(4));
                run.note(format!("take {permits}, timed {timed}"));
                let before = run.place.members();
                let broken = run.maybe_break();
                let mut guard = None;
                let tried = match (permits, timed) {
                    (1, false) => handle.try_acquire(),
                    (_, false) => handle.try_acquire_many(permits),
                    (_, true) => handle.try_acquire_many_for(permits, ms(1)),
                };
                let outcome = Outcome::of_try(tried, |won| guard = Some(won));
                if permits > 0 && !outcome.is_unknown() {
                    model.sweep();
                }
                let held = model.at_server();
                let wanted = match model.free {
                    _ if permits == 0 => Outcome::Failed(ErrorKind::InvalidInput),
                    None => Outcome::CONFLICT,
                    Some(free) if free >= i64::from(permits) => Outcome::Won,
                    // More than all permits together.
                    Some(free) if free + held < i64::from(permits) => Outcome::CONFLICT,
                    Some(_) => Outcome::Busy,
                };
                // It is unknown whether this call removed expired permits; what it acquired is
                // returned, and then the count is known.
                if broken && outcome.is_unknown() {
                    run.mend();
                    model.sweep();
                    let wanted = (model.free.unwrap_or(0), model.at_server());
                    run.stands(true, &wanted, || {
                        let semaphore = clients[0].semaphore(NAME);
                        let free = semaphore.available_permits().unwrap();
                        (free, i64::from(semaphore.acquired_permits().unwrap()))
                    });
                }
                soon = run.answered(outcome, &[wanted], broken);
                if let Some(guard) = guard {
                    run.same("permits", &guard.permits(), &permits);
                    model.free = model.free.map(|free| free - i64::from(permits));
                    let members = run
                        .place
                        .members()
                        .into_iter()
                        .filter(|member| !before.contains(member))
                        .collect();
                    model.taken.push(Taken {
                        guard: Some(guard),
                        id: None,
                        permits,
                        members,
                        state: Lease::Live,
                    });
                }
            }
            7..=10 => {
                let all = 0..model.taken.len();
                // Acquisitions whose lease has ended but which no call has removed are rare, so
                // they are released first.
                let ended = run.pick(
                    all.clone().filter(|n| model.taken[*n].guard.is_some() && model.is_ended(*n)),
                );
                let any = || run.pick(all.filter(|n| model.taken[*n].guard.is_some()));
                let Some(n) = ended.or_else(any) else { continue };
                let state = model.taken[n].state;
                run.note(format!("give back {} that are {state:?}", model.taken[n].permits));
                let broken = run.maybe_break();
                let outcome = Outcome::of_release(model.taken[n].guard.take().unwrap().release());
                let wanted = model.give_back(n);
                // A repeat cannot distinguish its own first attempt from a loss.
                let allowed = if broken { vec![wanted, Outcome::Done] } else { vec![wanted] };
                soon = run.answered(outcome, &allowed, broken);
                model.taken.swap_remove(n);
            }
            11 => {
                let all = 0..model.taken.len();
                let Some(n) = run.pick(all.filter(|n| model.taken[*n].guard.is_some())) else {
                    continue;
                };
                let taken = &mut model.taken[n];
                run.note(format!("forget {} that are {:?}", taken.permits, taken.state));
                let id = taken.guard.take().unwrap().forget();
                run.same("the id's text", &id.to_string().parse().unwrap(), &id);
                taken.id = Some(id);
            }
            12 | 13 => {
                let all = 0..model.taken.len();
                let Some(n) = run.pick(all.filter(|n| model.taken[*n].id.is_some())) else {
                    continue;
                };
                run.note(format!(
                    "give back {} by id, {:?}",
                    model.taken[n].permits, model.taken[n].state
                ));
                let outcome =
                    Outcome::of_release(handle.release(model.taken[n].id.as_ref().unwrap()));
                let wanted = model.give_back(n);
                run.answered(outcome, &[wanted], false);
                // Sometimes the id is kept, to be returned a second time.
                if !run.chance(3) {
                    model.taken.swap_remove(n);
                }
            }
            14 | 19 if run.place.has_the_dead() => {
                let all = 0..model.taken.len();
                let Some(n) = run.pick(all.filter(|n| model.taken[*n].state == Lease::Live)) else {
                    continue;
                };
                run.note(format!("the lease of {} ends", model.taken[n].permits));
                run.place.end_permits(&model.taken[n].members);
                model.taken[n].state = Lease::Ended;
                if run.place.frees_ended_permits_at_once() {
                    model.sweep();
                }
            }
            15 => {
                let permits = 3 + run.roll(6) as u32;
                run.note(format!("set {permits}"));
                run.maybe_break();
                let set = handle.try_set_permits(permits).unwrap();
                // The call counts the permits of an existing semaphore, which sweeps it.
                model.sweep();
                let wanted = match model.free.map(|free| free + model.at_server()) {
                    None => SetPermits::New,
                    Some(there_are) if there_are == i64::from(permits) => SetPermits::Same,
                    Some(there_are) => SetPermits::Different { current: there_are },
                };
                run.same("set", &set, &wanted);
                model.free.get_or_insert(i64::from(permits));
            }
            16 => {
                let more = more_or_fewer(&mut run, model.free);
                run.note(format!("add {more}"));
                run.maybe_break();
                match handle.add_permits(more) {
                    Ok(free) => {
                        let wanted = model.free.unwrap_or(0) + more;
                        run.same("free", &free, &wanted);
                        model.free = Some(wanted);
                    }
                    Err(e) => run.same("refused", &(e.kind(), more), &(ErrorKind::InvalidInput, 0)),
                }
            }
            17 => {
                run.note("look".into());
                let (free, held) =
                    (handle.available_permits().unwrap(), handle.acquired_permits().unwrap());
                model.sweep();
                run.same(
                    "free, held",
                    &(free, i64::from(held)),
                    &(model.free.unwrap_or(0), model.at_server()),
                );
            }
            18 if run.chance(8) => {
                run.note("delete".into());
                run.maybe_break();
                let deleted = handle.delete().unwrap();
                let wanted = model.delete();
                run.same("deleted", &deleted, &wanted);
            }
            _ => continue,
        }
        run.mend();
        let wanted = (model.free, usize::try_from(model.at_server()).unwrap());
        run.stands(soon, &wanted, || (run.place.free(), run.place.taken()));
        for taken in model.taken.iter().filter(|taken| taken.state == Lease::Live) {
            assert!(taken.guard.as_ref().is_none_or(SemaphorePermit::is_held), "{}", run.story());
        }
    }
    drop(model);
    drop((handles, clients));
    run.place.delete_all();
    run.end();
}

fn counting_semaphore(mut run: Run) {
    let clients = [run.client(), run.client(), run.client()];
    let handles = clients.each_ref().map(|client| client.counting_semaphore(NAME));
    let mut free = None;
    let mut taken: Vec<CountingPermit> = Vec::new();
    for _ in 0..STEPS {
        let handle = &handles[run.roll(3)];
        let mut soon = false;
        match run.roll(16) {
            0..=5 => {
                let (permits, timed) = (a_few(&mut run), run.chance(4));
                run.note(format!("take {permits}, timed {timed}"));
                let broken = run.maybe_break();
                let tried = match (permits, timed) {
                    (1, false) => handle.try_acquire(),
                    (_, false) => handle.try_acquire_many(permits),
                    (_, true) => handle.try_acquire_many_for(permits, ms(1)),
                };
                let outcome = Outcome::of_try(tried, |won| taken.push(won));
                let wanted = match permits {
                    0 => Outcome::Failed(ErrorKind::InvalidInput),
                    _ => match free {
                        None => Outcome::CONFLICT,
                        Some(free) if free >= i64::from(permits) => Outcome::Won,
                        Some(_) => Outcome::Busy,
                    },
                };
                soon = run.answered(outcome, &[wanted], broken);
                if outcome == Outcome::Won {
                    free = free.map(|free| free - i64::from(permits));
                }
            }
            6..=9 if !taken.is_empty() => {
                let n = run.roll(taken.len());
                let guard = taken.swap_remove(n);
                let permits = i64::from(guard.permits());
                run.note(format!("give back {permits}"));
                let broken = run.maybe_break();
                let outcome = Outcome::of_release(guard.release());
                soon = run.answered(outcome, &[Outcome::Done], broken);
                free = Some(free.unwrap_or(0) + permits);
            }
            10 if !taken.is_empty() => {
                let n = run.roll(taken.len());
                run.note(format!("forget {}", taken[n].permits()));
                taken.swap_remove(n).forget();
            }
            11 | 12 => {
                let permits = run.roll(6) as u32;
                run.note(format!("set {permits}"));
                run.maybe_break();
                let wanted = free.map_or(SetPermits::New, |free| SetPermits::SetBefore { free });
                run.same("set", &handle.try_set_permits(permits).unwrap(), &wanted);
                free.get_or_insert(i64::from(permits));
            }
            13 | 14 => {
                let more = more_or_fewer(&mut run, free);
                run.note(format!("add {more}"));
                run.maybe_break();
                match handle.add_permits(more) {
                    Ok(now) => {
                        free = Some(free.unwrap_or(0) + more);
                        run.same("free", &Some(now), &free);
                    }
                    Err(e) => run.same("refused", &(e.kind(), more), &(ErrorKind::InvalidInput, 0)),
                }
            }
            15 if run.chance(8) => {
                run.note("delete".into());
                run.maybe_break();
                run.same("deleted", &handle.delete().unwrap(), &free.take().is_some());
            }
            _ => continue,
        }
        run.mend();
        run.stands(soon, &free, || run.place.free());
        run.same("free", &handle.available_permits().unwrap(), &free.unwrap_or(0));
    }
    drop(taken);
    drop((handles, clients));
    run.place.delete_all();
    run.end();
}

fn latch(mut run: Run) {
    let clients = [run.client(), run.client(), run.client()];
    let handles = clients.each_ref().map(|client| client.latch(NAME));
    let mut left = 0;
    for _ in 0..STEPS {
        let handle = &handles[run.roll(3)];
        match run.roll(12) {
            0..=4 => {
                run.note("count down".into());
                run.maybe_break();
                left = u32::saturating_sub(left, 1);
                run.same("left", &handle.count_down().unwrap(), &left);
            }
            5 => {
                let count = run.roll(6) as u32;
                run.note(format!("try to set {count}"));
                run.maybe_break();
                match handle.try_set_count(count) {
                    Ok(set) => {
                        run.same("set", &(set, count > 0), &(left == 0, true));
                        left = if set { count } else { left };
                    }
                    Err(e) => {
                        run.same("refused", &(e.kind(), count), &(ErrorKind::InvalidInput, 0));
                    }
                }
            }
            6 => {
                let count = 1 + run.roll(5) as u32;
                run.note(format!("set {count}"));
                run.maybe_break();
                let wanted = if left == 0 { Outcome::Done } else { Outcome::CONFLICT };
                let outcome = Outcome::of_release(handle.set_count(count));
                run.answered(outcome, &[wanted], false);
                left = if left == 0 { count } else { left };
            }
            7..=9 => {
                run.note("wait".into());
                let open = match run.roll(3) {
                    0 => handle.try_wait(),
                    1 => handle.wait_for(ms(1)),
                    _ => handle.wait_until(std::time::Instant::now()),
                };
                run.same("open", &open.unwrap(), &(left == 0));
                if left == 0 {
                    handle.wait().unwrap();
                }
            }
            10 if run.chance(2) => {
                run.note("delete".into());
                run.maybe_break();
                run.same("deleted", &handle.delete().unwrap(), &(left > 0));
                left = 0;
            }
            _ => continue,
        }
        run.mend();
        run.same("left", &handle.count().unwrap(), &left);
        run.same("at the server", &run.place.free(), &(left > 0).then_some(i64::from(left)));
    }
    drop((handles, clients));
    run.place.delete_all();
    run.end();
}
