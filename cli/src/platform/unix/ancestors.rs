//! The processes that this one was started under.

use leasehold::observe::HolderOwner;

/// No chain of parent processes is longer.
const DEEPEST: usize = 1000;

/// The `leasehold` processes above this one, where the system shows them (Linux).
pub(crate) struct Ancestors {
    host: String,
    processes: Vec<u32>,
}

impl Ancestors {
    pub(crate) fn of_this_process() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { host, processes: ancestors() }
    }

    pub(crate) fn include(&self, owner: &HolderOwner) -> bool {
        owner.host() == self.host && self.processes.contains(&owner.pid())
    }
}

fn ancestors() -> Vec<u32> {
    let mut all = Vec::new();
    let mut next = rustix::process::getppid().and_then(|pid| u32::try_from(pid.as_raw_pid()).ok());
    while let Some(pid) = next.filter(|pid| *pid > 1 && all.len() < DEEPEST) {
        all.push(pid);
        next = parent_of(pid);
    }
    // Any other program may release its lock before this process ends.
    let program = |of: &str| {
        Some(std::fs::read_link(format!("/proc/{of}/exe")).ok()?.file_name()?.to_owned())
    };
    let own = program("self");
    all.retain(|pid| own.is_some() && program(&pid.to_string()) == own);
    all
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may contain spaces.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}
