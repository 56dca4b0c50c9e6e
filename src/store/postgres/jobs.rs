//! Scheduled jobs: the rows of `leasehold.done`.

use std::time::Duration;

use super::PostgresStore;
use super::requests::{
    JOB_BEGIN, JOB_END, JOB_FORGET, JOB_LOOK, TIME, integer, millis, one, text, unexpected,
};
use super::wire::{Answer, Request, Row, Statement};
use crate::base::error::Result;
use crate::base::job_name::JobName;
use crate::store::{AttemptEnd, BeginJob, EndJob, JobState, JobStore, UnknownOutcomes};

const LOOK: &str = "a question about a job";
const END: &str = "the end of a job";

/// A request of a function whose first arguments are the lease and the occurrence.
fn of_job(statement: &'static Statement, job: &JobName) -> Request {
    Request::new(statement).arg(&*job.lease.key).arg(&*job.occurrence)
}

fn state(rows: &[Row]) -> Result<JobState> {
    let row = one(rows, LOOK)?;
    let value = integer(row, 1).unwrap_or(0);
    let millis = || Duration::from_millis(value.unsigned_abs());
    let attempts = u32::try_from(value).unwrap_or(u32::MAX);
    let who = || text(row, 2).unwrap_or_default().to_owned();
    Ok(match integer(row, 0) {
        Some(0) => JobState::Open,
        Some(1) => JobState::Begun { attempt: attempts },
        Some(2) => JobState::Done { by: who(), at: Duration::from_micros(value.unsigned_abs()) },
        Some(4) => JobState::Passed { newest: who() },
        Some(5) => JobState::Pausing { left: millis() },
        Some(6) => JobState::GaveUp { attempts },
        Some(7) => JobState::Running {
            by: who(),
            occurrence: text(row, 3).map(str::to_owned),
            left: Some(millis()),
        },
        Some(8) => JobState::NotHeld,
        other => return Err(unexpected(LOOK, other)),
    })
}

fn end_request(end: &EndJob<'_>) -> Request {
    let EndJob { job, holder, by, end, keep } = *end;
    let request = of_job(&JOB_END, job).arg(holder.as_str()).arg(by);
    let pause = match end {
        AttemptEnd::Done => -1,
        AttemptEnd::Failed { pause } => millis(pause),
    };
    request.number(pause).number(millis(keep))
}

impl PostgresStore {
    fn rows_of(&self, answer: Answer, job: &JobName) -> Result<Vec<Row>> {
        answer.rows.map_err(|e| self.refused(&e, &[&job.lease.key]))
    }
}

impl JobStore for PostgresStore {
    fn time(&self, job: &JobName) -> Result<Duration> {
        let rows = self.rows_of(self.server.ask_freely(&Request::new(&TIME))?, job)?;
        let micros = integer(one(&rows, LOOK)?, 0).and_then(|micros| u64::try_from(micros).ok());
        Ok(Duration::from_micros(micros.ok_or_else(|| unexpected(LOOK, None))?))
    }

    fn look_at_job(&self, job: &JobName, attempts: u32) -> Result<JobState> {
        let request = of_job(&JOB_LOOK, job).number(attempts.min(i32::MAX as u32));
        state(&self.rows_of(self.server.ask_freely(&request)?, job)?)
    }

    fn begin_job(&self, begin: &BeginJob<'_>, unknowns: &mut UnknownOutcomes) -> Result<JobState> {
        let BeginJob { job, holder, by, attempts, keep } = *begin;
        let request = of_job(&JOB_BEGIN, job).number(attempts.min(i32::MAX as u32));
        let request = request.arg(holder.as_str()).arg(by).number(millis(keep));
        let answer = self.server.ask(&request, unknowns)?;
        state(&self.rows_of(answer, job)?).inspect(|_| unknowns.clear())
    }

    fn end_job(&self, end: &EndJob<'_>, unknowns: &mut UnknownOutcomes) -> Result<bool> {
        let answer = self.server.ask(&end_request(end), unknowns)?;
        let rows = self.rows_of(answer, end.job)?;
        match integer(one(&rows, END)?, 0) {
            Some(ended @ (0 | 1)) => {
                let repeated = !unknowns.is_empty();
                unknowns.clear();
                self.tell(&end.job.record);
                Ok(ended == 1 || end.end.ran_before(repeated))
            }
            other => Err(unexpected(END, other)),
        }
    }

    fn forget_job(&self, job: &JobName, keep: Duration) -> Result<bool> {
        let request = of_job(&JOB_FORGET, job).number(millis(keep));
        let unknown = "it may have been forgotten; look at it before you repeat this";
        let answer = self.server.ask_once(&request, unknown)?;
        let rows = self.rows_of(answer, job)?;
        self.tell(&job.record);
        match text(one(&rows, LOOK)?, 0) {
            Some(known @ ("t" | "f")) => Ok(known == "t"),
            _ => Err(unexpected("to forget a job", None)),
        }
    }

    fn done_statement(&self) -> Result<&'static str> {
        Ok("SELECT leasehold_v1.job_done($1, $2, $3)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    fn row(columns: &str) -> Vec<Row> {
        vec![columns.split(' ').map(|column| (column != "-").then(|| column.to_owned())).collect()]
    }

    #[test]
    fn answers_are_typed() {
        let state = |columns: &str| state(&row(columns));
        let ms = Duration::from_millis;
        let by = || "b".to_owned();
        assert_eq!(state("0 0 - -").unwrap(), JobState::Open);
        assert_eq!(state("1 3 -").unwrap(), JobState::Begun { attempt: 3 });
        assert_eq!(state("2 5000 b -").unwrap(), JobState::Done { by: by(), at: ms(5) });
        assert_eq!(state("4 0 b -").unwrap(), JobState::Passed { newest: by() });
        assert_eq!(state("5 5 - -").unwrap(), JobState::Pausing { left: ms(5) });
        assert_eq!(state("6 5 - -").unwrap(), JobState::GaveUp { attempts: 5 });
        let running = |occurrence| JobState::Running { by: by(), occurrence, left: Some(ms(5)) };
        assert_eq!(state("7 5 b -").unwrap(), running(None));
        assert_eq!(state("7 5 b o").unwrap(), running(Some("o".to_owned())));
        assert_eq!(state("8 0 -").unwrap(), JobState::NotHeld);
        for bad in ["3 0 - -", "9 0 - -", "-", "x"] {
            assert_eq!(state(bad).unwrap_err().kind(), ErrorKind::Protocol, "{bad}");
        }
    }
}
