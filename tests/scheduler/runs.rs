//! Runs the scenarios in turn until the time is over, and keeps the schedule that failed.

use std::collections::BTreeMap;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use leasehold::os::{Check, Failure, Order, explore, replay};
use shuttle::{Config, FailurePersistence};

use crate::arguments::Arguments;
use crate::scenarios::{SCENARIOS, Scenario};
use crate::stage::OnPurpose;

/// The number of schedules of one scenario in a row. The first only counts the steps, which the
/// priorities of the others need.
const BATCH: usize = 40;

/// Priorities come first: they find what chance does not, because they delay one thread for long.
const ORDERS: [Order; 4] = [Order::Priorities(3), Order::Priorities(2), Order::Random, Order::Priorities(4)];

pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.list {
        SCENARIOS.iter().for_each(|scenario| println!("{}", scenario.name));
        return ExitCode::SUCCESS;
    }
    prepare_panics();
    crate::scenarios::install_logger();
    match &arguments.replay {
        Some(file) => replay_file(file),
        None => explore_all(&arguments),
    }
}

fn explore_all(arguments: &Arguments) -> ExitCode {
    let chosen: Vec<&Scenario> = SCENARIOS.iter().filter(|scenario| scenario.name.contains(&arguments.only)).collect();
    if chosen.is_empty() {
        eprintln!("no scenario has {:?} in its name: see --list", arguments.only);
        return ExitCode::FAILURE;
    }
    let seed = arguments.seed.unwrap_or_else(fresh_seed);
    println!("scheduler: seed {seed}, {} scenarios", chosen.len());
    let (began, mut counts, mut failed) = (Instant::now(), BTreeMap::<&str, usize>::new(), Vec::new());
    let is_over = |done: usize| arguments.schedules.map_or(began.elapsed() >= arguments.duration, |most| done >= most);
    for round in 0_u64.. {
        let mut ran = false;
        for scenario in &chosen {
            let done = counts.get(scenario.name).copied().unwrap_or(0);
            if is_over(done) || failed.contains(&scenario.name) {
                continue;
            }
            ran = true;
            let order = ORDERS[(round % ORDERS.len() as u64) as usize];
            match batch(scenario, order, seed.wrapping_add(round)) {
                Ok(count) => *counts.entry(scenario.name).or_default() += count,
                Err(Failure(why)) => {
                    report(scenario, order, seed, done, &why);
                    failed.push(scenario.name);
                    if arguments.first {
                        println!("scheduler: after {} schedules in all", counts.values().sum::<usize>());
                        return ExitCode::FAILURE;
                    }
                }
            }
        }
        if !ran {
            break;
        }
    }
    let (schedules, seconds) = (counts.values().sum::<usize>(), began.elapsed().as_secs_f64());
    println!("scheduler: {schedules} schedules in {seconds:.0} s ({:.0} a second)", schedules as f64 / seconds);
    let ran = |name: &&str| counts.contains_key(name) || failed.contains(name);
    let never: Vec<_> = chosen.iter().map(|one| one.name).filter(|name| !ran(name)).collect();
    if !never.is_empty() {
        eprintln!("the time was over before these scenarios ran: {}", never.join(", "));
    }
    match never.is_empty() && failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Runs on a thread of its own: a thread on which an execution has failed counts as panicking
/// afterwards.
fn batch(scenario: &'static Scenario, order: Order, seed: u64) -> Result<usize, Failure> {
    crate::scenarios::calm_logger();
    let check = Check { run: scenario.run, limit: scenario.limit };
    let run = move || explore(check, order, seed, BATCH, config());
    std::thread::Builder::new().name(scenario.name.to_owned()).spawn(run).expect("a thread").join().unwrap_or_else(
        |payload| Err(Failure(format!("the scheduler itself panicked: {:?}", payload.downcast_ref::<String>()))),
    )
}

fn report(scenario: &Scenario, order: Order, seed: u64, done: usize, why: &str) {
    println!("scheduler: {} FAILED after {done} schedules (seed {seed}, {order:?}): {why}", scenario.name);
    match newest_schedule() {
        Some(written) => {
            let kept = failures().join(format!("{}-{seed}.schedule", scenario.name));
            let named = fs::read_to_string(&written).map(|schedule| format!("{}\n{schedule}", scenario.name));
            match named.and_then(|text| fs::write(&kept, text)) {
                Ok(()) => println!("again: sh tests/scheduler.sh --replay {}", kept.display()),
                Err(e) => println!("its schedule is in {}, but could not be kept: {e}", written.display()),
            }
            let _ = fs::remove_file(written);
        }
        None => println!("its schedule was not written: repeat it with --only {} --seed {seed}", scenario.name),
    }
}

fn replay_file(file: &Path) -> ExitCode {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(e) => {
            eprintln!("{}: {e}", file.display());
            return ExitCode::FAILURE;
        }
    };
    let (name, schedule) = text.split_once('\n').unwrap_or((&text, ""));
    let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.name == name.trim()) else {
        eprintln!("{}: it begins with {name:?}, which is not a scenario", file.display());
        return ExitCode::FAILURE;
    };
    let check = Check { run: scenario.run, limit: scenario.limit };
    let schedule = schedule.to_owned();
    match std::thread::spawn(move || replay(check, &schedule, config())).join() {
        Ok(Ok(_)) => {
            println!("scheduler: {} passed with this schedule", scenario.name);
            ExitCode::SUCCESS
        }
        Ok(Err(Failure(why))) => {
            println!("scheduler: {} FAILED again: {why}", scenario.name);
            ExitCode::FAILURE
        }
        Err(_) => {
            println!("scheduler: the schedule does not fit this build of {}", scenario.name);
            ExitCode::FAILURE
        }
    }
}

fn config() -> Config {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::File(Some(failures()));
    config
}

fn failures() -> PathBuf {
    PathBuf::from("target/shuttle/failures")
}

fn newest_schedule() -> Option<PathBuf> {
    let files = fs::read_dir(failures()).ok()?.filter_map(|file| Some(file.ok()?.path()));
    let written = |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("schedule"));
    files.filter(written).max_by_key(|file| file.metadata().and_then(|data| data.modified()).ok())
}

/// The scheduler's own hook writes the schedule of each execution that panics. A panic that belongs
/// to a scenario is not a failure.
fn prepare_panics() {
    fs::create_dir_all(failures()).expect("the directory of failed schedules");
    let nothing =
        Check { run: || leasehold::os::thread::spawn(|| ()).join().expect("it ends"), limit: crate::stage::SOON };
    explore(nothing, Order::Random, 0, 1, config()).expect("an execution of nothing");
    let writes = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        if !panicked.payload().is::<OnPurpose>() {
            writes(panicked);
        }
    }));
}

fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 % 1_000_000_000
}
