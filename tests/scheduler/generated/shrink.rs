//! Programs that are a little smaller than a given one.

use super::program::{
    Client, Code, End, Ending, Fire, Inside, Lead, Micros, Pace, Program, Step, Take, Terms, Wait,
};

/// The biggest cuts come first.
pub(crate) fn smaller(program: &Program) -> Vec<Program> {
    let mut smaller = Vec::new();
    let mut add = |change: &dyn Fn(&mut Program)| {
        let mut changed = program.clone();
        change(&mut changed);
        if changed != *program && !changed.threads.is_empty() {
            smaller.push(changed);
        }
    };
    for thread in 0..program.threads.len() {
        add(&|program| drop(program.threads.remove(thread)));
    }
    for (thread, step) in places(program) {
        add(&|program| drop(program.threads[thread].steps.remove(step)));
    }
    add(&|program| program.settings.races = false);
    add(&|program| program.settings.listener = Code::Calm);
    add(&|program| program.settings.callbacks = Code::Calm);
    add(&|program| program.settings.logger = Code::Calm);
    add(&|program| program.settings.tokens = true);
    add(&|program| program.settings.outage = program.settings.lease);
    for thread in 0..program.threads.len() {
        add(&|program| program.threads[thread].client = Client::One);
    }
    for (thread, step) in places(program) {
        add(&|program| simplify(&mut program.threads[thread].steps[step]));
    }
    for (thread, step) in places(program) {
        let Step::Take(take) = &program.threads[thread].steps[step] else { continue };
        for inside in 0..take.inside.len() {
            add(&|program| {
                take_at(program, thread, step).inside.remove(inside);
            });
            add(&|program| {
                if let Inside::Stay(time) = &mut take_at(program, thread, step).inside[inside] {
                    *time = Micros(time.0.min(1_000));
                }
            });
        }
        // A guard that nobody drops must end by itself.
        if take.end != End::Forget || !take.mode.is_owned() {
            add(&|program| take_at(program, thread, step).terms = Terms::Usual);
        }
        add(&|program| take_at(program, thread, step).cancellable = false);
        add(&|program| take_at(program, thread, step).wait = Wait::Ever);
        if take.end != End::Forget {
            add(&|program| take_at(program, thread, step).end = End::Unlock);
        }
    }
    let last = program.things.len() - 1;
    let uses_last = |step: &Step| match step {
        Step::Take(take) => program.taken(take).contains(&last),
        Step::Force(thing)
        | Step::Lose(thing)
        | Step::CountDown(thing)
        | Step::WaitFor(thing)
        | Step::Fire(Fire { thing, .. })
        | Step::AwaitDone(thing, ..)
        | Step::Reopen(thing, _)
        | Step::Lead(Lead { thing, .. })
        | Step::AskFor(thing)
        | Step::Pace(Pace { thing, .. })
        | Step::SetRate(thing) => *thing == last,
        _ => false,
    };
    if last > 0 && !program.any(uses_last) {
        add(&|program| {
            program.things.pop();
        });
    }
    smaller
}

/// A step of a job, an election or a limiter: the shortest of its kind.
fn simplify(step: &mut Step) {
    match step {
        Step::Fire(fire) => (fire.works, fire.ending) = (Micros(0), Ending::Done),
        Step::Lead(lead) => {
            (lead.stay, lead.ending, lead.cancellable) = (Micros(0), Ending::Done, false);
        }
        Step::Pace(pace) => (pace.permits, pace.wait) = (1, Wait::Ever),
        _ => {}
    }
}

fn places(program: &Program) -> Vec<(usize, usize)> {
    let of =
        |thread: usize| (0..program.threads[thread].steps.len()).map(move |step| (thread, step));
    (0..program.threads.len()).flat_map(of).collect()
}

fn take_at(program: &mut Program, thread: usize, step: usize) -> &mut Take {
    match &mut program.threads[thread].steps[step] {
        Step::Take(take) => take,
        other => unreachable!("{other} is no take"),
    }
}
