//! Who a client is, for people, and how that is written where other clients can read it.

use std::fmt::{self, Write};
use std::time::Duration;

use crate::base::error::{Error, ErrorKind, Result};

/// The longest label, in characters: it stands in log lines.
const LONGEST_LABEL: usize = 100;
/// In characters.
pub(crate) const LONGEST_CLIENT_NAME: usize = 64;
/// Of so many holds, the oldest ones, it is written how long they had lasted.
pub(crate) const MOST_AGES: usize = 32;

/// Who a client is, for people: a label, and the process it runs in. See
/// [`Builder::owner`](crate::Builder::owner).
///
/// `Display` writes it as `billing-7 (pid 4711 on host-a)`. What another client says of itself is
/// taken as it is: it may be used to find a holder, and proves nothing.
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
            let why = format!("the owner {label:?} is not 1 to {LONGEST_LABEL} characters without control characters");
            return Err(Error::new(ErrorKind::InvalidInput, why));
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

    /// The name of the host, as its system has it.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What another client wrote of itself. `None` for what none of this crate writes: whoever can
    /// write to the server could otherwise put line breaks into the logs of others.
    pub(crate) fn read(label: &str, pid: &str, host: &str) -> Option<Self> {
        let pid = pid.parse().ok()?;
        (is_plain(label) && is_plain(host)).then(|| Self { label: label.to_owned(), pid, host: host.to_owned() })
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

/// Whatever a file or a host may be called, made fit.
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
    let name = program.as_deref().and_then(|path| path.file_stem()).map(|name| name.to_string_lossy().into_owned());
    plain(&name.unwrap_or_default(), "unknown program")
}

fn host_name() -> String {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").unwrap_or_default();
    plain(&name, "unknown host")
}

/// What a client writes of itself: who it is, and how long its holds have lasted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Announcement {
    pub(crate) owner: HolderOwner,
    /// How long it lives unless it is written anew. Whoever reads it learns from what is left of
    /// that how old it is, without comparing clocks.
    pub(crate) ttl: Duration,
    /// Of each hold, the number in its holder id, and how long it had lasted.
    pub(crate) ages: Vec<(u64, Duration)>,
}

impl Announcement {
    /// One line for each thing, for people as well.
    pub(crate) fn to_text(&self) -> String {
        let Self { owner: HolderOwner { label, pid, host }, ttl, ages } = self;
        let mut text = format!("label={label}\npid={pid}\nhost={host}\nttl_ms={}\nheld_ms=", ttl.as_millis());
        for (place, (number, age)) in ages.iter().enumerate() {
            let space = if place == 0 { "" } else { " " };
            let _ = write!(text, "{space}{number}:{}", age.as_millis());
        }
        text
    }

    /// A later release may add lines, which are passed over. `None` if something is missing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let line = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let millis = |text: &str| text.parse().ok().map(Duration::from_millis);
        let age = |one: &str| {
            let (number, age) = one.split_once(':')?;
            Some((number.parse().ok()?, millis(age)?))
        };
        Some(Self {
            owner: HolderOwner::read(line("label")?, line("pid")?, line("host")?)?,
            ttl: millis(line("ttl_ms")?)?,
            ages: line("held_ms")?.split_whitespace().filter_map(age).take(MOST_AGES).collect(),
        })
    }

    /// How long a hold has lasted, by an announcement that expires in `left`. `None` for one that
    /// it does not mention: it is younger, or there are too many.
    pub(crate) fn age_of(&self, number: u64, left: Duration) -> Option<Duration> {
        let (_, age) = self.ages.iter().find(|(one, _)| *one == number)?;
        Some(*age + self.ttl.saturating_sub(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(label: &str) -> Result<HolderOwner> {
        HolderOwner::of_this_process(Some(label))
    }

    #[test]
    fn labels_are_checked() {
        for good in ["billing-7", "x", "Rechnung Nr. 7 (Köln)", "=", &"é".repeat(LONGEST_LABEL)] {
            assert_eq!(owner(good).unwrap().label(), good);
        }
        for bad in ["", "a\nb", "\u{7f}", "tab\t", &"x".repeat(LONGEST_LABEL + 1)] {
            assert_eq!(owner(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
        }
    }

    #[test]
    fn without_a_label_it_is_the_program() {
        let owner = HolderOwner::of_this_process(None).unwrap();
        assert!(owner.label().starts_with("leasehold"), "{owner}");
        assert_eq!(owner.pid(), std::process::id());
        assert!(!owner.host().is_empty());
        assert_eq!(owner.to_string(), format!("{} (pid {} on {})", owner.label, owner.pid, owner.host));
        assert_eq!(plain("\n", "otherwise"), "otherwise");
        assert_eq!(plain("a\nb", "otherwise"), "ab");
    }

    #[test]
    fn what_is_written_is_read() {
        for ages in
            [vec![], vec![(1, Duration::from_millis(12_000))], vec![(7, Duration::ZERO), (u64::MAX, Duration::MAX)]]
        {
            let ages: Vec<_> = ages.into_iter().map(|(n, age)| (n, age.min(Duration::from_millis(u64::MAX)))).collect();
            let one = Announcement { owner: owner("a=b c").unwrap(), ttl: Duration::from_secs(30), ages };
            assert_eq!(Announcement::parse(&one.to_text()), Some(one.clone()));
            assert_eq!(Announcement::parse(&format!("new=1\n{}\nmore=2", one.to_text())), Some(one));
        }
    }

    #[test]
    fn what_nobody_writes_is_not_believed() {
        let text = "label=a\npid=1\nhost=h\nttl_ms=30000\nheld_ms=1:5";
        assert!(Announcement::parse(text).is_some());
        for (part, other) in
            [("label=a", "label="), ("pid=1", "pid=x"), ("host=h", "host=a\u{1b}[2J"), ("ttl_ms=30000", "")]
        {
            assert_eq!(Announcement::parse(&text.replace(part, other)), None, "{part}");
        }
        assert_eq!(Announcement::parse(""), None);
        assert_eq!(
            Announcement::parse(&text.replace("1:5", "x:y 1 2:3")).unwrap().ages,
            [(2, Duration::from_millis(3))]
        );
    }

    #[test]
    fn an_age_grows_with_the_age_of_what_says_it() {
        let seconds = Duration::from_secs;
        let one = Announcement { owner: owner("a").unwrap(), ttl: seconds(30), ages: vec![(3, seconds(12))] };
        assert_eq!(one.age_of(3, seconds(30)), Some(seconds(12)));
        assert_eq!(one.age_of(3, seconds(21)), Some(seconds(21)));
        assert_eq!(one.age_of(3, seconds(31)), Some(seconds(12)), "a reply that was long under way");
        assert_eq!(one.age_of(4, seconds(30)), None);
    }
}
