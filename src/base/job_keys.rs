//! The keys of scheduled jobs. They are spelled alike in every store.

pub(super) const LEASE: &str = "leasehold_job:";
pub(super) const DONE: &str = "leasehold_done:";
pub(super) const LAST: &str = "leasehold_last:";

/// Whether this can be a key of a job: those contain a brace, so `leasehold_job:x` is free.
pub(crate) fn is_key_of_job(key: &str) -> bool {
    [LEASE, DONE, LAST]
        .iter()
        .any(|prefix| key.strip_prefix(prefix).is_some_and(|rest| rest.contains('{')))
}

/// The job that has this key as its lease.
pub(crate) fn job_of_lease(key: &str) -> Option<&str> {
    job_of_tag(key.strip_prefix(LEASE)?)
}

/// The key under which a user knows what has this key: that of the job, if a job has it.
#[cfg(feature = "testing")]
pub(crate) fn key_for_user(key: &str) -> &str {
    let record = || key.strip_prefix(DONE)?.rsplit_once('/').and_then(|(tag, _)| job_of_tag(tag));
    job_of_lease(key).or_else(record).unwrap_or(key)
}

fn job_of_tag(tag: &str) -> Option<&str> {
    let inner = tag.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    inner.filter(|name| !name.contains('{')).or_else(|| tag.contains('{').then_some(tag))
}
