//! A scheduled job and one of its occurrences, with the names under which a store keeps them.

use std::sync::Arc;

use crate::base::error::{Result, invalid};
use crate::base::job_keys::{DONE, LAST, LEASE, job_of_lease};
use crate::base::lock_name::{Kind, LockName};

/// The longest label of an occurrence, in bytes.
const LONGEST_LABEL: usize = 128;

/// The lease with this key, for a store that lists what it has.
pub(crate) fn lease_at(key: &str) -> Option<LockName> {
    let job = job_of_lease(key)?;
    Some(LockName::of_job(&job.into(), Kind::Job, key.to_owned()))
}

/// A job and one of its occurrences.
#[derive(Debug, Clone)]
pub(crate) struct JobName {
    /// Whoever holds it runs an occurrence.
    pub(crate) lease: Arc<LockName>,
    /// What is known of the occurrence: attempts, and by whom and when it was done.
    pub(crate) record: Arc<LockName>,
    /// The newest occurrence that was done, and the one that was begun last.
    pub(crate) last: Arc<str>,
    pub(crate) occurrence: Arc<str>,
}

impl JobName {
    /// `job`: its name as the user gave it, and with the prefix of the client.
    ///
    /// # Errors
    /// `InvalidInput` for a label that a store could not keep, or that could be confused with that
    /// of another job, and for a name whose keys would be those of another job.
    pub(crate) fn new(job: &LockName, occurrence: &str) -> Result<Self> {
        check_label(occurrence).map_err(|e| e.for_name(&job.name))?;
        check_name(job)?;
        let tag =
            if job.key.contains('{') { job.key.to_string() } else { format!("{{{}}}", job.key) };
        let of = |kind, key| {
            let part = LockName::of_job(&job.name, kind, key);
            // It is reported as the job.
            if let Some(counters) = job.counters.get() {
                drop(part.counters.set(counters.clone()));
            }
            Arc::new(part)
        };
        Ok(Self {
            lease: of(Kind::Job, format!("{LEASE}{tag}")),
            // A slash, which no label has: a colon could also be part of a name with braces.
            record: of(Kind::Done, format!("{DONE}{tag}/{occurrence}")),
            last: format!("{LAST}{tag}").into(),
            occurrence: occurrence.into(),
        })
    }
}

/// The tag of a name without braces is that name in braces.
fn check_name(job: &LockName) -> Result<()> {
    let inner = job.key.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    if inner.is_none_or(|inner| inner.contains('{')) {
        return Ok(());
    }
    let why = "a job with this name would have the keys of the one without the braces";
    Err(invalid(why).for_name(&job.name))
}

fn check_label(label: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:+,@".contains(c);
    let is_good = (1..=LONGEST_LABEL).contains(&label.len())
        && label.chars().all(fits)
        && !matches!(label, "." | "..");
    if is_good {
        return Ok(());
    }
    let why = format!(
        "the occurrence {label:?} is not 1 to {LONGEST_LABEL} ASCII letters, digits and characters of \"-_.:+,@\""
    );
    Err(invalid(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;
    use crate::base::job_keys::is_key_of_job;

    fn job(name: &str, occurrence: &str) -> Result<JobName> {
        JobName::new(&LockName::new("", name, Kind::Job).unwrap(), occurrence)
    }

    #[test]
    fn the_keys_of_a_job_share_its_tag() {
        let plain = job("report", "2026-11-23T02:00Z").unwrap();
        assert_eq!(&*plain.lease.key, "leasehold_job:{report}");
        assert_eq!(&*plain.record.key, "leasehold_done:{report}/2026-11-23T02:00Z");
        assert_eq!(&*plain.last, "leasehold_last:{report}");
        let tagged = job("a{b}c", "1").unwrap();
        assert_eq!(&*tagged.record.key, "leasehold_done:a{b}c/1");
        for job in [plain, tagged] {
            for key in [&*job.lease.key, &*job.record.key, &*job.last] {
                assert!(is_key_of_job(key));
                assert!(LockName::new("", key, Kind::Mutex).is_err());
            }
        }
        assert!(!is_key_of_job("leasehold_job:x"));
        assert_eq!(job_of_lease("leasehold_job:{report}"), Some("report"));
        assert_eq!(job_of_lease("leasehold_job:a{b}c"), Some("a{b}c"));
        assert_eq!(job_of_lease("leasehold_job:x"), None);
    }

    #[test]
    fn no_two_names_have_the_same_keys() {
        for bad in ["{report}", "{}", "{a}b}"] {
            // Some of them are refused before.
            let name = LockName::new("", bad, Kind::Job);
            let error = name.and_then(|name| JobName::new(&name, "1")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}");
        }
        for good in ["{a}:b", "a{b}", "report"] {
            assert!(job(good, "1").is_ok(), "{good}");
        }
        let prefixed = LockName::new("app:", "{report}", Kind::Job).unwrap();
        assert!(JobName::new(&prefixed, "1").is_ok());
    }

    #[test]
    fn a_label_has_no_slash_and_a_length() {
        assert!(job("n", &"x".repeat(LONGEST_LABEL)).is_ok());
        for bad in ["", "a/b", "a b", "a=b", "{a}", ".", "..", "é", &"x".repeat(129)] {
            assert_eq!(job("n", bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }
}
