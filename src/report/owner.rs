//! Who a client is, described for people, and the text from which other clients read it.

use std::fmt::{self, Write};
use std::time::Duration;

use crate::base::error::{Result, invalid};

/// The longest label, in characters: labels appear in log lines.
const LONGEST_LABEL: usize = 100;
/// In characters.
pub(crate) const LONGEST_CLIENT_NAME: usize = 64;
/// Maximum number of holds, the oldest ones, whose age is written.
pub(crate) const MOST_AGES: usize = 32;
/// Maximum number of bytes of names that are written: a client may hold thousands of locks, and
/// writes this text every third of a lease.
const MOST_NAMES_BYTES: usize = 16 * 1024;
/// Maximum number of names that are read, whoever wrote them.
const MOST_NAMED_HOLDS: usize = 4096;

/// Who a client is, for people: a label, and the process it runs in. See
/// [`Builder::owner`](crate::Builder::owner).
///
/// `Display` writes it as `billing-7 (pid 4711 on host-a)`. What another client says about itself
/// is not verified: it helps to find a holder, and proves nothing.
///
/// [As JSON](crate::observe#as-json) it is an object with `label`, `pid` and `host`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HolderOwner {
    label: String,
    pid: u32,
    host: String,
}

impl HolderOwner {
    /// This process. Without a label, the name of the program.
    ///
    /// # Errors
    /// `InvalidInput` for a label that is not 1 to 100 characters, or has control characters.
    pub(crate) fn of_this_process(label: Option<&str>) -> Result<Self> {
        if let Some(label) = label.filter(|label| !is_plain(label)) {
            let why = format!(
                "the owner {label:?} is not 1 to {LONGEST_LABEL} characters without control characters"
            );
            return Err(invalid(why));
        }
        let label = label.map_or_else(program_name, str::to_owned);
        Ok(Self { label, pid: std::process::id(), host: host_name() })
    }

    /// The label, or the name of the program.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The process id, on its host.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The name of the host, as its system reports it.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Reads what another client wrote about itself. `None` for text that this crate never writes:
    /// otherwise, whoever can write to the server could put line breaks into the logs of others.
    pub(crate) fn read(label: &str, pid: &str, host: &str) -> Option<Self> {
        let pid = pid.parse().ok()?;
        (is_plain(label) && is_plain(host)).then(|| Self {
            label: label.to_owned(),
            pid,
            host: host.to_owned(),
        })
    }
}

impl fmt::Display for HolderOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {} on {})", self.label, self.pid, self.host)
    }
}

fn is_plain(text: &str) -> bool {
    (1..=LONGEST_LABEL).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

/// The name of a file or a host as a valid label.
fn plain(name: &str, otherwise: &str) -> String {
    let name: String = name.chars().filter(|c| !c.is_control()).take(LONGEST_LABEL).collect();
    if name.is_empty() { otherwise.to_owned() } else { name }
}

/// The name of the program as a client's name: letters, digits and `-_.:` only, for `CLIENT LIST`
/// and the names of threads.
pub(crate) fn program_as_client_name() -> String {
    let fit = |c: char| if is_in_client_name(c) { c } else { '-' };
    program_name().chars().map(fit).take(LONGEST_CLIENT_NAME).collect()
}

pub(crate) fn is_in_client_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.:".contains(c)
}

fn program_name() -> String {
    let program = std::env::current_exe().ok();
    let name = program
        .as_deref()
        .and_then(|path| path.file_stem())
        .map(|name| name.to_string_lossy().into_owned());
    plain(&name.unwrap_or_default(), "unknown program")
}

fn host_name() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    plain(&name, "unknown host")
}

/// What a client publishes about itself: who it is, and how long its holds have lasted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) owner: HolderOwner,
    /// How long it lives unless it is written again. A reader computes its age from the time that
    /// is left, without comparing clocks.
    pub(crate) ttl: Duration,
    /// For each hold, the number in its holder id, and how long it had lasted. Earlier releases
    /// read this, and not the names.
    pub(crate) ages: Vec<(u64, Duration)>,
    /// What it holds: the oldest holds, as many as fit.
    pub(crate) holds: Vec<NamedHold>,
    /// How many more holds it has.
    pub(crate) unlisted: u64,
}

/// One hold of a client, as it is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedHold {
    /// The part after the client id in the holder id, or the whole id of permits.
    pub(crate) id: String,
    pub(crate) age: Duration,
    /// The name with the prefix of the client.
    pub(crate) key: String,
}

impl NamedHold {
    fn to_line(&self) -> String {
        format!("\nhold={}:{} {}", self.id, self.age.as_millis(), escaped(&self.key))
    }

    fn parse(line: &str) -> Option<Self> {
        let (front, key) = line.strip_prefix("hold=")?.split_once(' ')?;
        let (id, age) = front.split_once(':')?;
        Some(Self {
            id: id.to_owned(),
            age: Duration::from_millis(age.parse().ok()?),
            key: unescaped(key),
        })
    }
}

/// A name may contain anything, and each entry of the text is one line.
fn escaped(key: &str) -> String {
    key.replace('%', "%25").replace('\n', "%0A").replace('\r', "%0D")
}

fn unescaped(key: &str) -> String {
    key.replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
}

impl Announcement {
    /// `holds`: the oldest come first. Of thousands, only those that fit are made.
    pub(crate) fn new(
        owner: HolderOwner,
        ttl: Duration,
        ages: Vec<(u64, Duration)>,
        holds: impl ExactSizeIterator<Item = NamedHold>,
    ) -> Self {
        let all = holds.len();
        let mut bytes = 0;
        let has_room = |hold: &NamedHold| {
            bytes += hold.to_line().len();
            bytes <= MOST_NAMES_BYTES
        };
        let holds: Vec<NamedHold> = holds.take_while(has_room).collect();
        Self { owner, ttl, ages, unlisted: (all - holds.len()) as u64, holds }
    }

    /// One line for each entry, readable by people as well.
    pub(crate) fn to_text(&self) -> String {
        let Self { owner: HolderOwner { label, pid, host }, ttl, ages, holds, unlisted } = self;
        let mut text =
            format!("label={label}\npid={pid}\nhost={host}\nttl_ms={}\nheld_ms=", ttl.as_millis());
        for (place, (number, age)) in ages.iter().enumerate() {
            let space = if place == 0 { "" } else { " " };
            let _ = write!(text, "{space}{number}:{}", age.as_millis());
        }
        for hold in holds {
            text.push_str(&hold.to_line());
        }
        if *unlisted > 0 {
            let _ = write!(text, "\nunlisted={unlisted}");
        }
        text
    }

    /// Lines that a later release added are ignored. `None` if something is missing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let line =
            |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let millis = |text: &str| text.parse().ok().map(Duration::from_millis);
        let age = |one: &str| {
            let (number, age) = one.split_once(':')?;
            Some((number.parse().ok()?, millis(age)?))
        };
        Some(Self {
            owner: HolderOwner::read(line("label")?, line("pid")?, line("host")?)?,
            ttl: millis(line("ttl_ms")?)?,
            ages: line("held_ms")?.split_whitespace().filter_map(age).take(MOST_AGES).collect(),
            // Earlier releases do not write these lines.
            holds: text.lines().filter_map(NamedHold::parse).take(MOST_NAMED_HOLDS).collect(),
            unlisted: line("unlisted").and_then(|number| number.parse().ok()).unwrap_or(0),
        })
    }

    /// How long a hold has lasted, by an announcement that expires in `left`. `None` if the
    /// announcement does not mention it: it is younger, or there are too many.
    pub(crate) fn age_of(&self, number: u64, left: Duration) -> Option<Duration> {
        let known = self.ages.iter().find(|(one, _)| *one == number).map(|(_, age)| *age);
        known
            .map(|age| age + self.ttl.saturating_sub(left))
            .or_else(|| self.age_of_hold(&number.to_string(), left))
    }

    /// The same for the hold with this [id](NamedHold::id).
    pub(crate) fn age_of_hold(&self, id: &str, left: Duration) -> Option<Duration> {
        let hold = self.holds.iter().find(|hold| hold.id == id)?;
        Some(hold.age + self.ttl.saturating_sub(left))
    }
}

#[cfg(test)]
#[path = "owner_tests.rs"]
mod tests;
