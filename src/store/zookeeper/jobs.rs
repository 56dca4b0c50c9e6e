//! Scheduled jobs. What is known of an occurrence is one persistent node, and what was last is
//! another. Whoever changes them names the node of the lease in the same transaction: an attempt
//! begins only while that exists, and ends with its deletion. So a request that runs late changes
//! nothing.

use std::time::Duration;

use super::client::Exchange;
use super::inspect::holder_in;
use super::names::Paths;
use super::queue::{
    TRIES, ZooKeeperResult, busy_directory, certain, children_in, data_in, is_there, transacted,
    unsettled,
};
use super::wire::{Code, Mode, Request, Stat, Transacted};
use super::{ZooKeeperStore, names};
use crate::base::deadline::ceil_millis;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::job_name::JobName;
use crate::base::log;
use crate::base::random;
use crate::os;
use crate::store::{AttemptEnd, BeginJob, EndJob, JobState, JobStore, UnknownOutcomes};

/// How many old records a call looks at. Each call leaves one record.
const SWEPT: usize = 4;

/// What is known of an occurrence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Record {
    attempts: u32,
    is_done: bool,
    /// It was forgotten since it, or a newer one, was done.
    is_open_again: bool,
    /// After it was written, in milliseconds: when the next attempt may begin, and until when it
    /// counts.
    pause: u64,
    keep: u64,
    /// Who has begun the last attempt, or done it.
    holder: String,
    by: String,
}

/// What was last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Last {
    /// The newest occurrence that was done; empty for none.
    newest: String,
    /// The attempt that was begun last.
    holder: String,
    occurrence: String,
    by: String,
}

/// Of a text in a node: lines of `key=value`.
fn value_of<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
}

impl Record {
    fn to_text(&self) -> String {
        let Self { attempts, is_done, is_open_again, pause, keep, holder, by } = self;
        let done = u8::from(*is_done);
        let again = u8::from(*is_open_again);
        format!(
            "attempts={attempts}\ndone={done}\nagain={again}\npause_ms={pause}\nkeep_ms={keep}\n\
             holder={holder}\nby={by}"
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let number = |key| value_of(text, key)?.parse::<u64>().ok();
        Some(Self {
            attempts: u32::try_from(number("attempts")?).ok()?,
            is_done: number("done")? == 1,
            is_open_again: number("again")? == 1,
            pause: number("pause_ms")?,
            keep: number("keep_ms")?,
            holder: value_of(text, "holder")?.to_owned(),
            by: value_of(text, "by")?.to_owned(),
        })
    }
}

impl Last {
    fn to_text(&self) -> String {
        let Self { newest, holder, occurrence, by } = self;
        format!("newest={newest}\nholder={holder}\noccurrence={occurrence}\nby={by}")
    }

    fn parse(text: &str) -> Option<Self> {
        let text_of = |key| value_of(text, key).map(str::to_owned);
        let newest = text_of("newest")?;
        let holder = text_of("holder")?;
        Some(Self { newest, holder, occurrence: text_of("occurrence")?, by: text_of("by")? })
    }
}

/// A node as it was read; the default and no version if there is none.
struct Read<T> {
    path: String,
    value: T,
    stat: Option<Stat>,
}

impl<T: Default> Read<T> {
    fn of(
        read: Option<(Vec<u8>, Stat)>,
        path: String,
        parse: fn(&str) -> Option<T>,
    ) -> ZooKeeperResult<Self> {
        let Some((data, stat)) = read else {
            return Ok(Self { path, value: T::default(), stat: None });
        };
        match std::str::from_utf8(&data).ok().and_then(parse) {
            Some(value) => Ok(Self { path, value, stat: Some(stat) }),
            None => {
                let why = format!("the node {path} has another text than that of a job");
                Err(certain(Error::new(ErrorKind::WrongType, why)))
            }
        }
    }
}

/// What is known of a job and an occurrence of it.
struct Known {
    record: Read<Record>,
    last: Read<Last>,
}

impl Known {
    /// What was kept for long enough counts no more, as if it were deleted. `now`: in milliseconds.
    fn drop_ended(&mut self, now: i64) {
        let Read { value, stat, .. } = &mut self.record;
        let age = stat.map_or(0, |stat| now.saturating_sub(stat.mtime));
        if u64::try_from(age).unwrap_or(0) > value.keep {
            *value = Record::default();
        }
    }

    /// Why the occurrence must not begin. `now`: by the clock of the leader, in milliseconds;
    /// unknown to a look, for which a pause is no reason.
    fn refusal(&self, occurrence: &str, most: u32, now: Option<i64>) -> Option<JobState> {
        let Self { record: Read { value: record, stat, .. }, last } = self;
        let written = stat.map_or(0, |stat| stat.mtime);
        let newest = &last.value.newest;
        if record.is_done {
            let at = Duration::from_millis(written.unsigned_abs());
            return Some(JobState::Done { by: record.by.clone(), at });
        }
        if !newest.is_empty() && occurrence <= &**newest && !record.is_open_again {
            return Some(JobState::Passed { newest: newest.clone() });
        }
        if record.attempts >= most {
            return Some(JobState::GaveUp { attempts: record.attempts });
        }
        let passed = u64::try_from(now?.saturating_sub(written)).unwrap_or(0);
        let left = record.pause.checked_sub(passed).filter(|left| *left > 0)?;
        Some(JobState::Pausing { left: Duration::from_millis(left) })
    }
}

impl ZooKeeperStore {
    fn last_path(&self, job: &JobName) -> String {
        Paths::new(&self.chroot, &job.last).base
    }

    /// Reads both nodes behind `first`, and whatever else is asked for behind them. What was last
    /// comes first: if the occurrence is done in between, its own node shows that, and it is not
    /// taken for one that has passed.
    fn read_job(
        &self,
        job: &JobName,
        first: Request,
        more: &[Request],
    ) -> ZooKeeperResult<(Known, Exchange)> {
        let record = self.paths(&job.record).base.clone();
        let last = self.last_path(job);
        let mut looks =
            vec![first, Request::get_data(&last, false), Request::get_data(&record, false)];
        looks.extend_from_slice(more);
        let exchange = self.ask(&looks)?;
        self.agreed_in(&exchange.replies[0])?;
        let read_last = data_in(&exchange.replies[1], &last)?;
        let read_record = data_in(&exchange.replies[2], &record)?;
        let record = Read::of(read_record, record, Record::parse)?;
        let last = Read::of(read_last, last, Last::parse)?;
        Ok((Known { record, last }, exchange))
    }

    /// The request that makes a node, or sets it if nobody else has since it was read.
    fn write<T>(&self, read: &Read<T>, text: &str) -> Request {
        match read.stat {
            Some(stat) => Request::set_data(&read.path, text.as_bytes(), stat.version),
            None => Request::create(&read.path, text.as_bytes(), self.acl, Mode::Persistent),
        }
    }

    /// Sends the changes in one transaction, with the directories of these nodes if they are
    /// missing. False: another client was faster: read again.
    fn change_job(&self, paths: &[&str], changes: &[Request]) -> ZooKeeperResult<bool> {
        let mut all = Vec::new();
        loop {
            let is_first = all.is_empty();
            all.extend_from_slice(changes);
            let exchange = self.ask(&[Request::multi(&all)])?;
            match transacted(&exchange.replies[0], &all, paths[0])? {
                Transacted::Made(_) => return Ok(true),
                Transacted::Refused { code: Code::NO_NODE, .. } if is_first => {
                    all = self
                        .missing(paths.iter().filter_map(|path| Some(path.rsplit_once('/')?.0)))?;
                    if all.is_empty() {
                        return Ok(false);
                    }
                }
                Transacted::Refused {
                    code: Code::NO_NODE | Code::NODE_EXISTS | Code::BAD_VERSION,
                    ..
                } => return Ok(false),
                Transacted::Refused { code, .. } => return Err(certain(code.to_error(paths[0]))),
            }
        }
    }

    fn look(&self, job: &JobName, most: u32) -> ZooKeeperResult<JobState> {
        let directory = &self.paths(&job.lease).base;
        let holders = [Request::children(directory, false)];
        let sync = Request::sync(&self.root());
        let (mut known, exchange) = self.read_job(job, sync, &holders)?;
        // By the clock of this machine, because an answer to a look has no time. An attempt begins
        // by that of the leader.
        known.drop_ended(i64::try_from(os::wall().as_millis()).unwrap_or(i64::MAX));
        let refusal = known.refusal(&job.occurrence, most, None);
        let nodes = children_in(&exchange.replies[3], directory)?.unwrap_or_default();
        let nodes = names::sorted(job.lease.kind, nodes);
        let is_settled = matches!(refusal, Some(JobState::Done { .. } | JobState::Passed { .. }));
        let Some(holder) = nodes.first().filter(|_| !is_settled) else {
            return Ok(refusal.unwrap_or(JobState::Open));
        };
        let last = &known.last.value;
        let has_begun = holder_in(last.holder.as_bytes(), holder) == last.holder;
        let (by, occurrence) = if has_begun {
            (last.by.clone(), Some(last.occurrence.clone()))
        } else {
            (names::id_of(holder).unwrap_or(holder).to_owned(), None)
        };
        Ok(JobState::Running { by, occurrence, left: None })
    }

    fn begin(&self, begin: &BeginJob<'_>) -> ZooKeeperResult<JobState> {
        let BeginJob { job, holder, by, attempts: most, keep } = *begin;
        let Some(own) = self.node_of(&job.lease, holder) else { return Ok(JobState::NotHeld) };
        let keep = ceil_millis(keep);
        for _ in 0..TRIES {
            let look = [Request::get_data(&own.path, false)];
            let (mut known, exchange) = self.read_job(job, self.client.quorum_check(), &look)?;
            let Some((_, lease)) = data_in(&exchange.replies[3], &own.path)? else {
                return Ok(JobState::NotHeld);
            };
            known.drop_ended(lease.ctime);
            let record = &known.record.value;
            let last = &known.last.value;
            if last.holder == holder.as_str() {
                return Ok(JobState::Begun { attempt: record.attempts.max(1) });
            }
            if let Some(refusal) = known.refusal(&job.occurrence, most, Some(lease.ctime)) {
                return Ok(refusal);
            }
            let attempt = record.attempts + 1;
            let holder = holder.as_str().to_owned();
            let by = by.to_owned();
            let record = Record {
                attempts: attempt,
                pause: 0,
                keep,
                holder: holder.clone(),
                by: by.clone(),
                ..record.clone()
            };
            let occurrence = job.occurrence.to_string();
            let last = Last { holder, occurrence, by, ..last.clone() };
            let changes = [
                Request::check(&own.path, -1),
                self.write(&known.record, &record.to_text()),
                self.write(&known.last, &last.to_text()),
            ];
            if self.change_job(&[&known.record.path, &known.last.path], &changes)? {
                self.sweep_records(job, lease.ctime);
                return Ok(JobState::Begun { attempt });
            }
        }
        Err(certain(busy_directory(&self.paths(&job.record).base)))
    }

    fn end(&self, end: &EndJob<'_>, unknowns: &UnknownOutcomes) -> ZooKeeperResult<bool> {
        let EndJob { job, holder, by, end, keep } = *end;
        let own = self.node_of(&job.lease, holder).map(|node| node.path);
        if let Some(own) = &own {
            // Before the requests are sent: the message about a node comes before the answer.
            self.client.unguard(std::slice::from_ref(own));
        }
        for _ in 0..TRIES {
            let look = own.as_ref().map(|own| Request::exists(own, false));
            let look = look.as_slice();
            let (known, exchange) = self.read_job(job, self.client.quorum_check(), look)?;
            let own = match own.as_ref().zip(exchange.replies.get(3)) {
                Some((own, reply)) => is_there(reply, own)?.then_some(own),
                None => None,
            };
            let record = &known.record.value;
            let last = &known.last.value;
            let Some(own) = own else {
                self.forget_deleted(&job.lease, holder);
                let generation = self.client.generation();
                let repeated = unsettled(unknowns).is_some_and(|u| u.generation == generation);
                let has_run = record.is_done && record.holder == holder.as_str();
                return Ok(end.ran_before(repeated) || end == AttemptEnd::Done && has_run);
            };
            let (pause, is_done) = match end {
                AttemptEnd::Done => (0, true),
                AttemptEnd::Failed { pause } => (ceil_millis(pause), false),
            };
            let newest = last.newest.clone().max(job.occurrence.to_string());
            let record = Record {
                attempts: record.attempts,
                is_done,
                is_open_again: record.is_open_again && !is_done,
                pause,
                keep: ceil_millis(keep),
                holder: holder.as_str().to_owned(),
                by: by.to_owned(),
            };
            let mut changes =
                vec![Request::delete(own), self.write(&known.record, &record.to_text())];
            let mut paths = vec![&*known.record.path];
            if is_done {
                let last = Last { newest, ..last.clone() };
                changes.push(self.write(&known.last, &last.to_text()));
                paths.push(&known.last.path);
            }
            if self.change_job(&paths, &changes)? {
                self.forget_deleted(&job.lease, holder);
                return Ok(true);
            }
        }
        Err(certain(busy_directory(&self.paths(&job.record).base)))
    }

    fn forget(&self, job: &JobName, keep: Duration) -> ZooKeeperResult<bool> {
        for _ in 0..TRIES {
            let (known, _) = self.read_job(job, self.client.quorum_check(), &[])?;
            let record = &known.record.value;
            let last = &known.last.value;
            let is_newest = last.newest == *job.occurrence;
            let was_known = is_newest || record.is_done || record.attempts > 0;
            let record = Record {
                attempts: 0,
                is_done: false,
                is_open_again: true,
                pause: 0,
                keep: ceil_millis(keep),
                ..record.clone()
            };
            let mut changes = vec![self.write(&known.record, &record.to_text())];
            // There is a node of what was last.
            if is_newest {
                let last = Last { newest: String::new(), ..last.clone() };
                changes.push(self.write(&known.last, &last.to_text()));
            }
            if self.change_job(&[&known.record.path], &changes)? {
                return Ok(was_known);
            }
        }
        Err(certain(busy_directory(&self.paths(&job.record).base)))
    }

    /// The clock of the leader is in the answer to a write: the text of what was last is written as
    /// it is.
    fn leader_time(&self, job: &JobName) -> ZooKeeperResult<Duration> {
        let millis = |time: i64| Duration::from_millis(time.unsigned_abs());
        let mut first = None;
        for _ in 0..TRIES {
            let (known, _) = self.read_job(job, self.client.quorum_check(), &[])?;
            let stat = known.last.stat;
            if let (Some(first), Some(stat)) = (first, stat)
                && stat.version != first
            {
                // Another client has written it since the first look.
                return Ok(millis(stat.mtime));
            }
            first = first.or(stat.map(|stat| stat.version));
            let write = [self.write(&known.last, &known.last.value.to_text())];
            let exchange = self.ask(&write)?;
            let reply = &exchange.replies[0];
            match reply.code {
                Code::OK if stat.is_some() => return Ok(millis(reply.stat()?.mtime)),
                Code::OK => return Ok(millis(reply.created()?.stat.mtime)),
                // Whoever makes the directory, the node in it is made from now on.
                Code::NO_NODE => {
                    self.change_job(&[&known.last.path], &write)?;
                    first = first.or(Some(-1));
                }
                Code::NODE_EXISTS => first = first.or(Some(-1)),
                Code::BAD_VERSION => {}
                code => return Err(certain(code.to_error(&known.last.path))),
            }
        }
        Err(certain(busy_directory(&self.last_path(job))))
    }

    /// Deletes old records of the job. What fails is left to the next call.
    fn sweep_records(&self, job: &JobName, now: i64) {
        if let Err(failure) = self.try_sweep(job, now) {
            let name = &job.lease.name;
            let why = failure.into_error();
            log::debug!("old records of the job {name:?} were not removed: {}", why.chain());
        }
    }

    fn try_sweep(&self, job: &JobName, now: i64) -> ZooKeeperResult<()> {
        let record = &self.paths(&job.record).base;
        let directory = record.rfind('/').map_or("", |end| &record[..end]);
        let exchange = self.ask(&[Request::children(directory, false)])?;
        let mut labels = children_in(&exchange.replies[0], directory)?.unwrap_or_default();
        labels.retain(|label| **label < *job.occurrence);
        // Any of them: the oldest ones may be kept for longer than all others.
        let first = random::number() % labels.len().max(1) as u64;
        labels.rotate_left(usize::try_from(first).unwrap_or(0));
        labels.truncate(SWEPT);
        let paths: Vec<String> =
            labels.iter().map(|label| format!("{directory}/{label}")).collect();
        if paths.is_empty() {
            return Ok(());
        }
        let looks: Vec<Request> = paths.iter().map(|path| Request::get_data(path, false)).collect();
        let exchange = self.ask(&looks)?;
        let mut deletes = Vec::new();
        for (reply, path) in exchange.replies.iter().zip(paths) {
            // What is no record, or may not be read, is left alone.
            let Ok(Some((data, stat))) = data_in(reply, &path) else { continue };
            let text = std::str::from_utf8(&data).ok();
            let Some(record) = text.and_then(Record::parse) else { continue };
            let age = u64::try_from(now.saturating_sub(stat.mtime)).unwrap_or(0);
            if age > record.keep {
                deletes.push(Request::delete_version(&path, stat.version));
            }
        }
        if deletes.is_empty() {
            return Ok(());
        }
        for reply in &self.ask(&deletes)?.replies {
            // Another client has deleted or written it.
            if reply.code != Code::BAD_VERSION {
                is_there(reply, directory)?;
            }
        }
        Ok(())
    }
}

impl JobStore for ZooKeeperStore {
    fn time(&self, job: &JobName) -> Result<Duration> {
        self.looked(|| self.leader_time(job))
    }

    fn look_at_job(&self, job: &JobName, attempts: u32) -> Result<JobState> {
        self.looked(|| self.look(job, attempts))
    }

    fn begin_job(&self, begin: &BeginJob<'_>, unknowns: &mut UnknownOutcomes) -> Result<JobState> {
        let outcome = self.repeated(unknowns, |_| self.begin(begin));
        self.note(outcome, unknowns)
    }

    fn end_job(&self, end: &EndJob<'_>, unknowns: &mut UnknownOutcomes) -> Result<bool> {
        let outcome = self.repeated(unknowns, |unknowns| self.end(end, unknowns));
        self.note(outcome, unknowns)
    }

    fn forget_job(&self, job: &JobName, keep: Duration) -> Result<bool> {
        let mut unknowns = UnknownOutcomes::default();
        let forgotten = self.forget(job, keep);
        self.note(forgotten, &mut unknowns).map_err(|error| {
            if unknowns.is_empty() {
                return error;
            }
            error.and_also("it may have been forgotten; look at it before you repeat this")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back() {
        let record = Record {
            attempts: 2,
            is_done: true,
            is_open_again: false,
            pause: 5,
            keep: 7,
            holder: "u:1".to_owned(),
            by: "billing-7 (pid 4711 on host-a)".to_owned(),
        };
        assert_eq!(Record::parse(&record.to_text()), Some(record));
        let last = Last { newest: "2026-11-23T02:00Z".to_owned(), ..Last::default() };
        assert_eq!(Last::parse(&last.to_text()), Some(last));
        for bad in ["", "attempts=1", "attempts=-1\ndone=0\nagain=0\npause_ms=0\nkeep_ms=0"] {
            assert_eq!(Record::parse(bad), None);
            assert_eq!(Last::parse(bad), None);
        }
    }
}
