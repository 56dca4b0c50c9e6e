//! What a diagnosis finds out about the masters, each by itself and all together.

use std::time::Duration;

use super::quorum::majority;
use super::store::RedlockStore;
use crate::base::node_status::NodeState;
use crate::os;
use crate::report::diagnosis::{Check, Finding, tolerated_offset};
use crate::store::findings::{Examined, lease_of, of_each};
use crate::store::redis::wire::Connector;
use crate::store::redis::{Part, Subject, examine_all};
use crate::store::{Diagnose, LockStore};

impl RedlockStore {
    pub(super) fn examine_masters(&self, asked: &Diagnose<'_>) -> Vec<Finding> {
        let connectors: Vec<Connector> =
            self.nodes.iter().map(|node| node.connector.clone()).collect();
        let addresses: Vec<String> =
            connectors.iter().map(|connector| format!("{:?}", connector.endpoint)).collect();
        let io_timeout = connectors[0].io_timeout;
        let subject = Subject {
            lease: asked.lease,
            key_prefix: asked.key_prefix.to_owned(),
            part: Part::Master { durable: self.quarantine.are_durable() },
            replicas: None,
        };
        let examined = examine_all(connectors, &subject);
        let mut together = vec![self.reached(&examined), self.admitted(&examined, io_timeout)];
        together.extend(same_server(&examined, &addresses));
        together.extend(same_clock(&examined, asked.lease));
        together.extend(lease_of(&examined, asked.lease));
        let enough = usable(&examined) >= majority(self.nodes.len());
        let mut all = of_each(addresses, examined, enough);
        all.append(&mut together);
        all
    }

    fn reached(&self, examined: &[Examined]) -> Finding {
        let all = self.nodes.len();
        let quorum = majority(self.nodes.len());
        let usable = usable(examined);
        let found = format!("{usable} of {all} masters can be used, and a lock needs {quorum}");
        match usable {
            usable if usable < quorum => {
                Finding::problem(Check::Quorum, format!("{found}: nothing can be locked"))
                    .advise("bring the others back")
            }
            usable if usable < all => {
                let spare = match usable - quorum {
                    0 => "no other".to_owned(),
                    spare => format!("{spare} more"),
                };
                Finding::warning(Check::Quorum, format!("{found}: {spare} may fail"))
                    .advise("bring the others back")
            }
            _ => Finding::ok(Check::Quorum, found),
        }
    }

    /// Who votes. The background thread finds that out, so a new client is given some time.
    fn admitted(&self, examined: &[Examined], patience: Duration) -> Finding {
        let deadline = os::now() + patience;
        let states = || {
            self.nodes().iter().map(crate::base::node_status::NodeStatus::state).collect::<Vec<_>>()
        };
        let is_open = |states: &[NodeState]| {
            let open = |(state, examined): (&NodeState, &Examined)| {
                examined.usable
                    && !matches!(
                        state,
                        NodeState::Voting | NodeState::Quarantined { remaining: Some(_) }
                    )
            };
            states.iter().zip(examined).any(open)
        };
        let mut now = states();
        while is_open(&now) && os::now() < deadline {
            os::thread::sleep(Duration::from_millis(5));
            now = states();
        }
        let all = self.nodes.len();
        let quorum = majority(self.nodes.len());
        let votes = now.iter().filter(|state| **state == NodeState::Voting).count();
        let waits = now.iter().filter_map(|state| match state {
            NodeState::Quarantined { remaining } => *remaining,
            _ => None,
        });
        let found = format!("{votes} of {all} masters vote");
        let advice = match waits.max() {
            Some(longest) => format!(
                "wait for {longest:.0?}: a master that may have forgotten something votes when the longest lease has \
                 passed"
            ),
            None => "bring the others back".to_owned(),
        };
        match votes {
            votes if votes < quorum => {
                Finding::problem(Check::Quorum, format!("{found}: nothing can be locked"))
                    .advise(advice)
            }
            votes if votes < all => Finding::warning(Check::Quorum, found).advise(advice),
            _ => Finding::ok(Check::Quorum, found),
        }
    }
}

fn usable(examined: &[Examined]) -> usize {
    examined.iter().filter(|examined| examined.usable).count()
}

/// Two addresses, as it may have, of one server.
fn same_server(examined: &[Examined], addresses: &[String]) -> Option<Finding> {
    let run_ids: Vec<_> = examined.iter().map(|examined| examined.run_id.as_ref()).collect();
    let (one, other) = (0..run_ids.len()).find_map(|other| {
        let is_same = |one: &usize| run_ids[*one].is_some() && run_ids[*one] == run_ids[other];
        (0..other).find(is_same).map(|one| (one, other))
    })?;
    let found = format!(
        "{} and {} are one server, whose vote counts twice",
        addresses[one], addresses[other]
    );
    Some(Finding::problem(Check::Quorum, found).advise("name each master once"))
}

/// Whether the clocks of the masters agree with each other, as far as that is certain.
fn same_clock(examined: &[Examined], lease: Duration) -> Option<Finding> {
    let offsets = || {
        examined.iter().filter_map(|examined| examined.clock).map(|sample| sample.offset_micros())
    };
    let first = offsets().min()?;
    let last = offsets().max()?;
    let apart = Duration::from_micros(last.abs_diff(first));
    let tolerated = tolerated_offset(lease);
    if apart <= tolerated {
        return Some(Finding::ok(
            Check::Clock,
            format!("the clocks of the masters differ by less than {tolerated:?}"),
        ));
    }
    let found = format!("the clocks of the masters are {apart:.1?} apart, more than {tolerated:?}");
    Some(Finding::warning(Check::Clock, found).advise(
        "synchronise the masters' clocks (NTP), without steps: a clock that is set forward ends leases early there, and \
         one that is behind costs a second round for each token",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::diagnosis::{ClockSample, Severity};

    #[test]
    fn masters_whose_clocks_are_apart_are_a_warning() {
        let at = |server| Examined {
            clock: Some(ClockSample { server, asked: 5_000_000, answered: 5_001_000 }),
            ..Examined::default()
        };
        let lease = Duration::from_secs(30);
        let agree = [at(5_000_500), Examined::default(), at(5_100_000)];
        assert_eq!(same_clock(&agree, lease).unwrap().severity(), Severity::Ok);
        let apart = [at(4_900_000), at(5_000_500), at(5_100_000)];
        let finding = same_clock(&apart, lease).unwrap();
        assert_eq!((finding.check(), finding.severity()), (Check::Clock, Severity::Warning));
        assert!(same_clock(&[Examined::default()], lease).is_none());
    }
}
