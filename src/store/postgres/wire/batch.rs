//! Requests of several callers in one write: which of them share a transaction.

use super::connection::{Connection, InFlight, Section};
use super::outcome::{Answer, Outcome, PostgresFailure};
use super::request::{Batching, Request, Row};

/// A batch that was sent.
pub(crate) struct Flight {
    pub(super) in_flight: InFlight,
    /// The requests of each transaction, by their places in the batch.
    groups: Vec<Vec<usize>>,
}

impl Flight {
    /// First the releases in one transaction, which waiters wait for, then the acquires in another
    /// one. Requests that do not travel with others have one each.
    pub(super) fn prepare(
        connection: &mut Connection,
        requests: &[&Request],
    ) -> std::result::Result<Self, PostgresFailure> {
        let mut groups: Vec<Vec<usize>> = if requests.iter().any(|request| request.goes_alone()) {
            (0..requests.len()).map(|place| vec![place]).collect()
        } else {
            let is_release = |place: &usize| matches!(requests[*place].batching, Batching::Release);
            let (releases, acquires) = (0..requests.len()).partition(is_release);
            [releases, acquires].into_iter().filter(|group: &Vec<_>| !group.is_empty()).collect()
        };
        for group in &mut groups {
            group.sort_by_key(|&place| requests[place].key());
        }
        let sections: Vec<Section<'_>> =
            groups.iter().map(|group| section(group, requests)).collect();
        Ok(Self { in_flight: connection.pack(&sections)?, groups })
    }

    pub(super) fn receive(
        &mut self,
        connection: &mut Connection,
        outcomes: &mut [Option<Outcome>],
    ) -> std::result::Result<(), PostgresFailure> {
        let sent_at = self.in_flight.sent.at;
        for group in &self.groups {
            let together = group.len() > 1;
            match connection.recv(&mut self.in_flight, group.len())? {
                Ok(answers) => {
                    for (&place, rows) in group.iter().zip(answers) {
                        let not_together = together && is_locked_now(&rows);
                        outcomes[place] =
                            Some(Ok(Answer { rows: Ok(rows), sent_at, not_together }));
                    }
                }
                // One of several may have failed all of them.
                Err(_) if together => {
                    for &place in group.iter() {
                        let rows = Ok(Vec::new());
                        outcomes[place] = Some(Ok(Answer { rows, sent_at, not_together: true }));
                    }
                }
                Err(error) => outcomes[group[0]] = Some(Ok(Answer::new(Err(error), sent_at))),
            }
        }
        // Only now: until then answers are due.
        let answers = outcomes.iter_mut().filter_map(|outcome| outcome.as_mut()?.as_mut().ok());
        for error in answers.filter_map(|answer| answer.rows.as_mut().err()) {
            connection.find_blocker(error);
        }
        Ok(())
    }
}

/// The requests of one transaction. A request that has a transaction of its own waits for its row.
fn section<'r>(group: &[usize], requests: &[&'r Request]) -> Section<'r> {
    let statement = |request: &Request| match request.batching {
        Batching::Acquire(statement) if group.len() > 1 => statement,
        _ => request.statement,
    };
    group.iter().map(|&place| (requests[place], statement(requests[place]))).collect()
}

/// The answer of a batched acquire whose row another transaction has locked just now.
fn is_locked_now(rows: &[Row]) -> bool {
    rows.first().and_then(|row| row.first()).is_some_and(|status| status.as_deref() == Some("6"))
}
