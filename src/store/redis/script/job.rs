//! Scripts of scheduled jobs. Their lease is taken, renewed and given up by those of the plain
//! lock.

use std::time::Duration;

use super::{JOB_BEGIN, JOB_END, JOB_FORGET, JOB_LOOK, fail_on_error, pair, unexpected};
use crate::base::deadline::ceil_millis;
use crate::base::error::Result;
use crate::base::job_name::JobName;
use crate::store::redis::keys::RedisKeys;
use crate::store::redis::wire::{Reply, Request, Script, Shape};
use crate::store::{AttemptEnd, BeginJob, EndJob, JobState, NEWEST_KEPT};

/// A request of a script whose first argument is the occurrence.
fn of_job(script: &'static Script, job: &JobName) -> Request {
    let keys = [&job.lease.key, &job.record.key, &job.last].map(|key| key.as_bytes());
    Request::script(script, &keys).arg(&*job.occurrence)
}

pub(crate) fn look_at_job(job: &JobName, attempts: u32) -> Request {
    of_job(&JOB_LOOK, job).number(attempts.into())
}

pub(crate) fn begin_job(begin: &BeginJob<'_>) -> Request {
    let BeginJob { job, holder, by, attempts, keep } = *begin;
    let request = of_job(&JOB_BEGIN, job).number(attempts.into()).arg(holder.as_str()).arg(by);
    request.number(ceil_millis(keep)).number(ceil_millis(NEWEST_KEPT))
}

pub(crate) fn end_job(end: &EndJob<'_>) -> Request {
    let EndJob { job, holder, by, end, keep } = *end;
    let request = of_job(&JOB_END, job);
    let request = match end {
        AttemptEnd::Done => request.arg("-1"),
        AttemptEnd::Failed { pause } => request.number(ceil_millis(pause)),
    };
    let request = request.arg(holder.as_str()).arg(by);
    let request = request.number(ceil_millis(keep)).number(ceil_millis(NEWEST_KEPT));
    request.arg(RedisKeys::of(&job.record).channel)
}

pub(crate) fn forget_job(job: &JobName, keep: Duration) -> Request {
    let keys = [&job.record.key, &job.last].map(|key| key.as_bytes());
    let request = Request::script(&JOB_FORGET, &keys).arg(&*job.occurrence);
    request.number(ceil_millis(keep)).arg(RedisKeys::of(&job.record).channel)
}

pub(crate) fn job_state(reply: Reply) -> Result<JobState> {
    let reply = fail_on_error(reply)?;
    if let Reply::Array(parts) = &reply
        && let [Reply::Int(status), Reply::Int(number), Reply::Bytes(by), Reply::Bytes(label)] =
            &parts[..]
    {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let millis = || Duration::from_millis(number.unsigned_abs());
        let attempts = u32::try_from(*number).unwrap_or(u32::MAX);
        match status {
            0 => return Ok(JobState::Open),
            1 => return Ok(JobState::Begun { attempt: attempts }),
            2 => return Ok(JobState::Done { by: text(by), at: millis() }),
            4 => return Ok(JobState::Passed { newest: text(by) }),
            5 => return Ok(JobState::Pausing { left: millis() }),
            6 => return Ok(JobState::GaveUp { attempts }),
            7 => {
                let occurrence = (!label.is_empty()).then(|| text(label));
                let left = (*number > 0).then(millis);
                return Ok(JobState::Running { by: text(by), occurrence, left });
            }
            8 => return Ok(JobState::NotHeld),
            _ => {}
        }
    }
    Err(unexpected("a question about a job", &format!("{reply:?}")))
}

pub(crate) fn job_ended(reply: Reply) -> Result<bool> {
    match pair(reply, "the end of a job")? {
        (ended @ (0 | 1), 0) => Ok(ended == 1),
        other => Err(unexpected("the end of a job", &format!("{other:?}"))),
    }
}

pub(crate) fn job_forgotten(reply: Reply) -> Result<bool> {
    match fail_on_error(reply)? {
        Reply::Int(known @ (0 | 1)) => Ok(known == 1),
        other => Err(unexpected("to forget a job", &format!("{other:?}"))),
    }
}

/// Asks for the clock of the server.
pub(crate) fn time() -> Request {
    Request::plain(&["TIME"]).answered_by(Shape::List)
}

pub(crate) fn time_answer(reply: Reply) -> Result<Duration> {
    let reply = fail_on_error(reply)?;
    if let Reply::Array(parts) = &reply
        && let [Reply::Bytes(seconds), Reply::Bytes(micros)] = &parts[..]
    {
        let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u32>().ok();
        let seconds = std::str::from_utf8(seconds).ok().and_then(|text| text.parse::<u64>().ok());
        if let (Some(seconds), Some(micros @ 0..1_000_000)) = (seconds, number(micros)) {
            return Ok(Duration::new(seconds, micros * 1000));
        }
    }
    Err(unexpected("a question about the time", &format!("{reply:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    fn four(status: i64, number: i64, by: &str, label: &str) -> Reply {
        let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        Reply::Array(vec![Reply::Int(status), Reply::Int(number), text(by), text(label)])
    }

    #[test]
    fn answers_are_typed() {
        let state = |status, number, by, label| job_state(four(status, number, by, label));
        let ms = Duration::from_millis;
        assert_eq!(state(0, 0, "", "").unwrap(), JobState::Open);
        assert_eq!(state(1, 3, "", "").unwrap(), JobState::Begun { attempt: 3 });
        let by = || "b".to_owned();
        assert_eq!(state(2, 5, "b", "").unwrap(), JobState::Done { by: by(), at: ms(5) });
        assert_eq!(state(4, 0, "b", "").unwrap(), JobState::Passed { newest: by() });
        assert_eq!(state(5, 5, "", "").unwrap(), JobState::Pausing { left: ms(5) });
        assert_eq!(state(6, 5, "", "").unwrap(), JobState::GaveUp { attempts: 5 });
        assert_eq!(
            state(7, -1, "b", "").unwrap(),
            JobState::Running { by: by(), occurrence: None, left: None }
        );
        assert_eq!(
            state(7, 5, "b", "o").unwrap(),
            JobState::Running { by: by(), occurrence: Some("o".into()), left: Some(ms(5)) }
        );
        assert_eq!(state(8, 0, "", "").unwrap(), JobState::NotHeld);
        for bad in [four(3, 0, "", ""), four(9, 0, "", ""), Reply::Pair(0, 0)] {
            assert_eq!(job_state(bad).unwrap_err().kind(), ErrorKind::Protocol);
        }
        assert!(job_ended(Reply::Pair(1, 0)).unwrap() && !job_ended(Reply::Pair(0, 0)).unwrap());
        assert_eq!(job_ended(Reply::Pair(2, 0)).unwrap_err().kind(), ErrorKind::Protocol);
        assert!(job_forgotten(Reply::Int(1)).unwrap());
        assert_eq!(job_forgotten(Reply::Int(2)).unwrap_err().kind(), ErrorKind::Protocol);
    }

    #[test]
    fn a_time_is_two_numbers() {
        let time = |seconds: &str, micros: &str| {
            let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
            time_answer(Reply::Array(vec![text(seconds), text(micros)]))
        };
        assert_eq!(time("5", "7").unwrap(), Duration::from_micros(5_000_007));
        for (seconds, micros) in [("5", "1000000"), ("x", "1"), ("5", "-1"), ("", "")] {
            assert_eq!(time(seconds, micros).unwrap_err().kind(), ErrorKind::Protocol);
        }
    }
}
