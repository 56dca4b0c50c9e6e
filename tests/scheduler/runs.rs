//! Runs the scenarios in turn and generated programs until the time is over, and keeps the schedule
//! that failed.

use std::collections::BTreeMap;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::os::{Check, Failure, Order, explore, replay};
use shuttle::{Config, FailurePersistence};

use crate::arguments::Arguments;
use crate::generated::{self, Failed, Ran};
use crate::scenarios::{SCENARIOS, Scenario};
use crate::stage::OnPurpose;

/// The number of schedules of one scenario in a row. The first only counts the steps, which the
/// priorities of the others need.
const BATCH: usize = 40;

/// Priorities come first: they find what chance does not, because they delay one thread for long.
const ORDERS: [Order; 4] =
    [Order::Priorities(3), Order::Priorities(2), Order::Random, Order::Priorities(4)];

/// The first line of a file with a generated program; that with a scenario begins with its name.
const GENERATED: &str = "generated program";

/// Stands between a program and its schedule.
const SCHEDULE: &str = "schedule";

/// Whether a failure is about to be repeated, so that it is not worth a message.
static IS_QUIET: AtomicBool = AtomicBool::new(false);

/// Whether a schedule is repeated, so that what happens is of interest.
static IS_REPLAY: AtomicBool = AtomicBool::new(false);

/// Prints what happens in a schedule that is repeated.
pub(crate) fn tell(what: impl FnOnce() -> String) {
    if IS_REPLAY.load(Ordering::SeqCst) {
        eprintln!("{}", what());
    }
}

/// What is run under the scheduler.
#[derive(Clone)]
pub(crate) enum Subject {
    Scenario(&'static Scenario),
    Program(generated::Program),
}

impl Subject {
    fn name(&self) -> &str {
        match self {
            Self::Scenario(scenario) => scenario.name,
            Self::Program(_) => "generated",
        }
    }

    /// To be called on the thread that runs it.
    fn check(&self) -> Check {
        match self {
            Self::Scenario(scenario) => Check { run: scenario.run, limit: scenario.limit },
            Self::Program(program) => program.check(),
        }
    }

    /// What a file says of it, before the schedule.
    fn text(&self) -> String {
        match self {
            Self::Scenario(scenario) => format!("{}\n", scenario.name),
            Self::Program(program) => format!("{GENERATED}\n{program}{SCHEDULE}\n"),
        }
    }
}

pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    if arguments.list {
        for scenario in SCENARIOS {
            println!("{}", scenario.name);
        }
        return ExitCode::SUCCESS;
    }
    prepare_panics();
    crate::scenarios::install_logger();
    if let Some(file) = &arguments.replay {
        return replay_file(file);
    }
    if let Some(file) = &arguments.program {
        return explore_program(file, &arguments);
    }
    let passed = if arguments.generated {
        explore_programs(&arguments, arguments.duration)
    } else {
        explore_all(&arguments)
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Makes programs until the time is over. Returns whether all did what they should.
fn explore_programs(arguments: &Arguments, share: Duration) -> bool {
    let seed = arguments.seed.unwrap_or_else(fresh_seed);
    let began = Instant::now();
    let (mut ran, mut failures) = (Ran::default(), 0);
    while let Some(failed) = generated::explore(seed, began + share, &mut ran) {
        failures += 1;
        report_program(&failed, began.elapsed(), ran);
        if arguments.first {
            break;
        }
    }
    let Ran { programs, schedules } = ran;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "scheduler: seed {seed}, {programs} generated programs, {schedules} schedules in {seconds:.0} s"
    );
    failures == 0
}

fn report_program(failed: &Failed, after: Duration, ran: Ran) {
    let Ran { programs, schedules } = ran;
    let (seconds, why) = (after.as_secs_f64(), &failed.why.0);
    let subject = Subject::Program(failed.program.clone());
    println!(
        "scheduler: a program FAILED after {seconds:.1} s, {programs} programs, {schedules} schedules: {why}"
    );
    println!("{}", failed.program);
    // Once more, and this time its schedule is written.
    match batch(&subject, failed.order, failed.seed, generated::MOST, false) {
        Ok(_) => println!("it does not fail again with the same schedules"),
        Err(_) => keep_schedule(&subject, failed.seed),
    }
}

/// Runs one program under many schedules.
fn explore_program(file: &Path, arguments: &Arguments) -> ExitCode {
    let read = fs::read_to_string(file).map_err(|e| e.to_string());
    let program = read.and_then(|text| {
        let program = text.strip_prefix(GENERATED).unwrap_or(&text);
        generated::Program::parse(
            program.split_once(&format!("\n{SCHEDULE}\n")).map_or(program, |(program, _)| program),
        )
    });
    let program = match program {
        Ok(program) => program,
        Err(why) => {
            eprintln!("{}: {why}", file.display());
            return ExitCode::FAILURE;
        }
    };
    let (began, mut ran) = (Instant::now(), Ran::default());
    let seed = arguments.seed.unwrap_or_else(fresh_seed);
    if let Some(failed) =
        generated::explore_one(&program, seed, began + arguments.duration, &mut ran)
    {
        report_program(&failed, began.elapsed(), ran);
        return ExitCode::FAILURE;
    }
    println!("scheduler: {} schedules of this program", ran.schedules);
    ExitCode::SUCCESS
}

/// Returns whether all scenarios ran and did what they should.
fn explore_all(arguments: &Arguments) -> bool {
    let chosen: Vec<&Scenario> =
        SCENARIOS.iter().filter(|scenario| scenario.name.contains(&arguments.only)).collect();
    if chosen.is_empty() {
        eprintln!("no scenario has {:?} in its name: see --list", arguments.only);
        return false;
    }
    let seed = arguments.seed.unwrap_or_else(fresh_seed);
    println!("scheduler: seed {seed}, {} scenarios", chosen.len());
    let (began, mut counts, mut failed) =
        (Instant::now(), BTreeMap::<&str, usize>::new(), Vec::new());
    // Each scenario runs in the first round, however busy the machine is.
    let is_over = |round: u64, done: usize| {
        let is_late = round > 0 && began.elapsed() >= arguments.duration;
        arguments.schedules.map_or(is_late, |most| done >= most)
    };
    for round in 0_u64.. {
        let mut ran = false;
        for scenario in &chosen {
            let done = counts.get(scenario.name).copied().unwrap_or(0);
            if is_over(round, done) || failed.contains(&scenario.name) {
                continue;
            }
            ran = true;
            let order = ORDERS[(round % ORDERS.len() as u64) as usize];
            match batch(&Subject::Scenario(scenario), order, seed.wrapping_add(round), BATCH, false)
            {
                Ok(count) => *counts.entry(scenario.name).or_default() += count,
                Err(Failure(why)) => {
                    report(scenario, order, seed, done, &why);
                    failed.push(scenario.name);
                    if arguments.first {
                        println!(
                            "scheduler: after {} schedules in all",
                            counts.values().sum::<usize>()
                        );
                        return false;
                    }
                }
            }
        }
        if !ran {
            break;
        }
    }
    let (schedules, seconds) = (counts.values().sum::<usize>(), began.elapsed().as_secs_f64());
    println!(
        "scheduler: {schedules} schedules in {seconds:.0} s ({:.0} a second)",
        schedules as f64 / seconds
    );
    failed.is_empty()
}

/// Runs on a thread of its own: a thread on which an execution has failed counts as panicking
/// afterwards.
pub(crate) fn batch(
    subject: &Subject,
    order: Order,
    seed: u64,
    times: usize,
    is_quiet: bool,
) -> Result<usize, Failure> {
    crate::scenarios::logger_panics(false);
    IS_QUIET.store(is_quiet, Ordering::SeqCst);
    let ran = on_a_thread(subject, move |check| {
        let mut config = config();
        if is_quiet {
            config.failure_persistence = FailurePersistence::None;
        }
        explore(check, order, seed, times, config)
    });
    IS_QUIET.store(false, Ordering::SeqCst);
    ran.unwrap_or_else(|| Err(Failure("the scheduler itself panicked".to_owned())))
}

/// `None`: the scheduler itself panicked.
fn on_a_thread(
    subject: &Subject,
    run: impl FnOnce(Check) -> Result<usize, Failure> + Send + 'static,
) -> Option<Result<usize, Failure>> {
    let thread = std::thread::Builder::new().name(subject.name().to_owned());
    let subject = subject.clone();
    let runs = move || {
        let ran = run(subject.check());
        generated::forget();
        ran
    };
    thread.spawn(runs).expect("a thread").join().ok()
}

fn report(scenario: &'static Scenario, order: Order, seed: u64, done: usize, why: &str) {
    println!(
        "scheduler: {} FAILED after {done} schedules (seed {seed}, {order:?}): {why}",
        scenario.name
    );
    keep_schedule(&Subject::Scenario(scenario), seed);
}

fn keep_schedule(subject: &Subject, seed: u64) {
    match newest_schedule() {
        Some(written) => {
            let kept = failures().join(format!("{}-{seed}.schedule", subject.name()));
            let named = fs::read_to_string(&written)
                .map(|schedule| format!("{}{schedule}", subject.text()));
            match named.and_then(|text| fs::write(&kept, text)) {
                Ok(()) => println!("again: sh tests/scheduler.sh --replay {}", kept.display()),
                Err(e) => {
                    println!(
                        "its schedule is in {}, but could not be kept: {e}",
                        written.display()
                    );
                }
            }
            let _ = fs::remove_file(written);
        }
        None => println!("its schedule was not written: repeat it with --seed {seed}"),
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
    let (subject, schedule) = match read_schedule(&text) {
        Ok(read) => read,
        Err(why) => {
            eprintln!("{}: {why}", file.display());
            return ExitCode::FAILURE;
        }
    };
    let schedule = schedule.to_owned();
    IS_REPLAY.store(true, Ordering::SeqCst);
    match on_a_thread(&subject, move |check| replay(check, &schedule, config())) {
        Some(Ok(_)) => {
            println!("scheduler: {} passed with this schedule", subject.name());
            ExitCode::SUCCESS
        }
        Some(Err(Failure(why))) => {
            println!("scheduler: {} FAILED again: {why}", subject.name());
            ExitCode::FAILURE
        }
        None => {
            println!("scheduler: the schedule does not fit this build of {}", subject.name());
            ExitCode::FAILURE
        }
    }
}

/// A scenario or a program, and the schedule in which it failed.
fn read_schedule(text: &str) -> Result<(Subject, &str), String> {
    let (name, rest) = text.split_once('\n').unwrap_or((text, ""));
    if name == GENERATED {
        let (program, schedule) =
            rest.split_once(&format!("\n{SCHEDULE}\n")).ok_or("it has no schedule")?;
        return Ok((Subject::Program(generated::Program::parse(program)?), schedule));
    }
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name.trim());
    let scenario =
        scenario.ok_or_else(|| format!("it begins with {name:?}, which is not a scenario"))?;
    Ok((Subject::Scenario(scenario), rest))
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
    let written = |file: &PathBuf| {
        file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("schedule"))
    };
    files.filter(written).max_by_key(|file| file.metadata().and_then(|data| data.modified()).ok())
}

/// The scheduler's own hook writes the schedule of each execution that panics. A panic that belongs
/// to a scenario is not a failure.
fn prepare_panics() {
    fs::create_dir_all(failures()).expect("the directory of failed schedules");
    let nothing = Check {
        run: || leasehold::os::thread::spawn(|| ()).join().expect("it ends"),
        limit: crate::stage::SOON,
    };
    explore(nothing, Order::Random, 0, 1, config()).expect("an execution of nothing");
    let writes = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        if !panicked.payload().is::<OnPurpose>() && !IS_QUIET.load(Ordering::SeqCst) {
            writes(panicked);
        }
    }));
}

fn fresh_seed() -> u64 {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 % 1_000_000_000
}
