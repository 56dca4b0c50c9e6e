//! When a master may vote again after it may have forgotten something.
//!
//! A master that restarted empty, failed over, was flushed or is new would grant a lock to a second
//! holder while the first still relies on its old grant there, and would issue the same tokens
//! again. So a master votes only while it remembers that it was admitted under its own `run_id`.
//! Any client admits it, in this order:
//!
//! 1. It writes a mark on the master.
//! 2. The longest lease of all clients passes, counted from when the client *read* the mark. A
//!    quarantine that only the client remembers would admit a master that was emptied twice.
//! 3. Only then it reads the highest token from a majority of the other masters: earlier, it could
//!    miss a grant that still relies on an old vote of this master.
//! 4. One script compares the mark, raises the token floor and admits the master.
//!
//! The Redis documentation calls step 2 "delayed restarts".

use std::time::Duration;

use super::node::{Node, Voting, single};
use super::quorum::{NodeSet, majority};
use super::scatter::{LateMaster, NodeOutcome, ask_all};
use super::supported::too_long;
use crate::base::error::Result;
use crate::base::lease::{Moment, margin};
use crate::base::log;
use crate::base::random;
use crate::os::Mutex;
use crate::store::redis::script::{self, Memory};
use crate::store::redis::wire::{Connection, Request, Shape, server_time};

#[derive(Debug, Clone, Copy)]
pub(crate) struct QuarantineSettings {
    /// No client that uses these masters has a longer lease.
    pub(crate) longest_lease: Duration,
    /// A master that remembers nothing votes at once, because this is a first installation.
    pub(crate) fresh: bool,
    /// A master that remembers anything has forgotten nothing, because it syncs every write to
    /// disk.
    pub(crate) durable: bool,
}

/// The pause before a master that cannot be asked or admitted is inspected again.
const INSPECT_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Quarantine {
    settings: QuarantineSettings,
    /// One for each master; `None` for those that vote.
    stays: Mutex<Vec<Option<Stay>>>,
}

/// One master's time in quarantine.
#[derive(Debug, Clone)]
struct Stay {
    /// The mark, and when this client first read it. `None`: not read yet.
    mark: Option<(String, Moment)>,
    inspect_at: Moment,
    logged: bool,
}

impl Stay {
    const NEW: Self = Self { mark: None, inspect_at: Moment::from_nanos(0), logged: false };
}

/// What a master reports about itself.
struct Report {
    run_id: String,
    memory: Memory,
    /// Its clock, in microseconds since 1970.
    clock: u64,
}

impl Quarantine {
    /// Every master starts in quarantine: only the master itself knows whether it was admitted.
    pub(super) fn new(settings: QuarantineSettings, nodes: usize) -> Self {
        Self { settings, stays: Mutex::new(vec![Some(Stay::NEW); nodes]) }
    }

    pub(super) fn longest_lease(&self) -> Duration {
        self.settings.longest_lease
    }

    /// Whether the settings say that the masters sync every write.
    pub(super) fn are_durable(&self) -> bool {
        self.settings.durable
    }

    pub(super) fn check_lease(&self, lease: Duration) -> Result<()> {
        if lease > self.settings.longest_lease {
            Err(too_long(lease, self.settings.longest_lease))
        } else {
            Ok(())
        }
    }

    /// The master reported that it has no vote, or may have lost it: it is inspected in the
    /// background.
    pub(super) fn begin(&self, node: &Node, index: usize) {
        let mut stays = self.stays.lock();
        if stays[index].is_none() {
            stays[index] = Some(Stay::NEW);
            node.set_voting(Voting::Quarantined { until: None });
        }
    }

    /// Inspects the masters in quarantine that are due, and admits those whose time has passed.
    /// Returns when to call it again; `None` when all vote.
    pub(super) fn maintain(&self, nodes: &[Node]) -> Option<Moment> {
        let clock = nodes[0].connector.clock.clone();
        for (index, node) in nodes.iter().enumerate().filter(|(_, node)| node.take_suspicion()) {
            self.begin(node, index);
        }
        let stays = self.stays.lock().clone();
        let due = NodeSet::of(&stays, |stay| {
            stay.as_ref().is_some_and(|stay| stay.inspect_at <= clock.now())
        });
        if !due.is_empty() {
            let reports = inspect(nodes, due);
            let mut ready = Vec::new();
            for index in (0..nodes.len()).filter(|&index| due.contains(index)) {
                let mut stay = stays[index].clone().expect("it is due");
                match self.advance(&nodes[index], reports[index].as_ref(), &mut stay, clock.now()) {
                    Progress::Votes => self.stays.lock()[index] = None,
                    progress => {
                        self.stays.lock()[index] = Some(stay);
                        if progress == Progress::Ready {
                            ready.push(index);
                        }
                    }
                }
            }
            if !ready.is_empty() {
                self.admit_all(nodes, &ready);
            }
        }
        self.stays.lock().iter().flatten().map(|stay| stay.inspect_at).min()
    }

    fn advance(
        &self,
        node: &Node,
        report: Option<&Report>,
        stay: &mut Stay,
        now: Moment,
    ) -> Progress {
        stay.inspect_at = now.plus(INSPECT_AGAIN);
        let Some(Report { memory, .. }) = report else { return Progress::Waits };
        let Some(pending) = &memory.pending else {
            node.set_voting(Voting::Yes);
            return Progress::Votes;
        };
        let since = match &stay.mark {
            Some((mark, since)) if mark == pending => *since,
            _ => {
                stay.mark = Some((pending.clone(), now));
                now
            }
        };
        let trusted =
            if memory.max.is_none() { self.settings.fresh } else { self.settings.durable };
        let longest = self.settings.longest_lease;
        let until = if trusted { since } else { since.plus(longest + margin(longest)) };
        node.set_voting(Voting::Quarantined { until: Some(until) });
        if now >= until {
            return Progress::Ready;
        }
        if !std::mem::replace(&mut stay.logged, true) {
            log::warn!(
                "{:?} gets its vote in {:?}: until then it may have forgotten a lease that still runs \
                 (for a first installation, admit_fresh_nodes skips this)",
                node.connector.endpoint,
                until.since(now)
            );
        }
        stay.inspect_at = until.min(now.plus(Duration::from_secs(1)));
        Progress::Waits
    }

    /// Admits masters that have waited long enough.
    fn admit_all(&self, nodes: &[Node], ready: &[usize]) {
        // All are read again now that the time has passed: see step 3 above.
        let reports = inspect(nodes, NodeSet::all(nodes.len()));
        for &index in ready {
            let Some(Report { run_id, memory: Memory { pending: Some(pending), .. }, .. }) =
                &reports[index]
            else {
                continue;
            };
            let waited_for = self.stays.lock()[index]
                .as_ref()
                .and_then(|stay| stay.mark.as_ref().map(|mark| mark.0.clone()));
            if waited_for.as_ref() != Some(pending) {
                continue;
            }
            match token_floor(&reports, &self.settings) {
                Some(floor) if admit(&nodes[index], run_id, pending, floor) => {
                    log::debug!("{:?} has its vote", nodes[index].connector.endpoint);
                    nodes[index].set_voting(Voting::Yes);
                    self.stays.lock()[index] = None;
                }
                Some(_) => {}
                None => nodes[index].set_voting(Voting::Quarantined { until: None }),
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Votes,
    Waits,
    /// Its time has passed.
    Ready,
}

/// Asks the masters in `asked` for a report. A master that should not vote and has no mark gets
/// one.
fn inspect(nodes: &[Node], asked: NodeSet) -> Vec<Option<Report>> {
    let nonce = random::number();
    let run_ids = Mutex::new(vec![String::new(); nodes.len()]);
    let ask = |index: usize, _: &Connection, run_id: &str| {
        run_ids.lock()[index] = run_id.to_owned();
        vec![
            script::inspect_node(run_id, &format!("{run_id}:{nonce:016x}")),
            Request::plain(&["TIME"]).answered_by(Shape::List),
        ]
    };
    let round = ask_all(nodes, None, ask, asked, LateMaster::IfNeeded, |_| false);
    let run_ids = run_ids.into_inner();
    let report_of = |((outcome, run_id), node): ((&NodeOutcome, String), &Node)| {
        let NodeOutcome::Replies(replies) = outcome else { return None };
        let memory = single(replies.clone())
            .and_then(script::inspect_node_answer)
            .inspect_err(|e| {
                let master = &node.connector.endpoint;
                log::warn!("{master:?} did not say what it remembers: {}", e.chain());
            })
            .ok()?;
        let clock = server_time(replies.get(1)?.clone()).ok()?;
        Some(Report { run_id, memory, clock })
    };
    round.outcomes.iter().zip(run_ids).zip(nodes).map(report_of).collect()
}

/// At least as high as every token that a grant may have: the highest that is known to a majority
/// of masters that have forgotten nothing. Without such a majority, as in a first installation, the
/// highest of the remaining tokens and of the masters' clocks. `None` while a master that cannot be
/// asked may know a higher one; with `fresh` it cannot.
fn token_floor(reports: &[Option<Report>], settings: &QuarantineSettings) -> Option<u64> {
    let all = reports.len();
    let reached: Vec<&Report> = reports.iter().flatten().collect();
    if reached.len() < majority(all) {
        return None;
    }
    let known = reached.iter().filter_map(|report| report.memory.max).max().unwrap_or(0);
    // A durable master that came back with data knows everything it ever knew.
    let forgets = |report: &Report| {
        report.memory.pending.is_some() && !(settings.durable && report.memory.max.is_some())
    };
    let forgetful = reached.iter().filter(|report| forgets(report)).count();
    if reached.len() - forgetful >= majority(all) {
        return Some(known);
    }
    if forgetful < majority(all) && reached.len() < all && !settings.fresh {
        return None;
    }
    let clocks = reached.iter().map(|report| report.clock).max().unwrap_or(0);
    Some(known.max(clocks))
}

fn admit(node: &Node, run_id: &str, pending: &str, floor: u64) -> bool {
    // Uses the run_id of the report, not of the connection: if another process answers now, the
    // script must not admit it.
    let ask = |_: &Connection, _: &str| vec![script::admit(run_id, pending, floor)];
    let Ok((replies, _)) = node.send(None, ask).and_then(|call| call.finish(ask)) else {
        return false;
    };
    single(replies)
        .and_then(script::admit_answer)
        .inspect_err(|e| {
            log::warn!("{:?} could not be given its vote: {}", node.connector.endpoint, e.chain());
        })
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a master remembers; `None`: it cannot be asked.
    fn report(pending: bool, max: Option<u64>, clock: u64) -> Option<Report> {
        let memory = Memory { pending: pending.then(|| "r:1".to_owned()), max };
        Some(Report { run_id: "r".to_owned(), memory, clock })
    }

    #[test]
    fn the_floor_is_what_a_majority_knows_that_has_forgotten_nothing() {
        let settings = |fresh, durable| QuarantineSettings {
            longest_lease: Duration::from_secs(1),
            fresh,
            durable,
        };
        let floor = |reports: &[Option<Report>]| token_floor(reports, &settings(false, false));
        let knows = |max| report(false, Some(max), 900);
        assert_eq!(floor(&[knows(5), knows(7), report(true, None, 900)]), Some(7));
        assert_eq!(
            floor(&[knows(5), knows(7), None]),
            Some(7),
            "two of three have forgotten nothing"
        );
        assert_eq!(floor(&[knows(5), None, None]), None, "no majority can be asked");
        let came_back = || report(true, Some(9), 900);
        assert_eq!(
            floor(&[knows(5), came_back(), None]),
            None,
            "the one that is away may know more"
        );
        assert_eq!(
            floor(&[knows(5), came_back(), came_back()]),
            Some(900),
            "the clocks are above every token"
        );
        let most = [report(true, None, 800), report(true, None, 900), None];
        assert_eq!(floor(&most), Some(900), "most have forgotten");
        assert_eq!(token_floor(&[knows(5), came_back(), None], &settings(true, false)), Some(900));
        assert_eq!(token_floor(&[knows(5), came_back(), None], &settings(false, true)), Some(9));
    }
}
