//! Runs the library under a scheduler that chooses at each step which thread runs next, over the
//! store in memory with its faults. `sh tests/scheduler.sh` builds and runs it: see
//! `CONTRIBUTING.md`.

#[cfg(shuttle)]
mod arguments;
#[cfg(shuttle)]
mod book;
#[cfg(shuttle)]
mod generated;
#[cfg(shuttle)]
mod redis;
#[cfg(shuttle)]
mod runs;
#[cfg(shuttle)]
mod scenarios;
#[cfg(shuttle)]
mod stage;
#[cfg(shuttle)]
mod wire;

#[cfg(shuttle)]
fn main() -> std::process::ExitCode {
    runs::main()
}

#[cfg(not(shuttle))]
fn main() -> std::process::ExitCode {
    eprintln!("this needs a build with --cfg shuttle: run sh tests/scheduler.sh");
    std::process::ExitCode::FAILURE
}
