//! What a diagnosis finds out about the sentinels: how many answer, and whether they agree.

use std::sync::Arc;

use super::inquiry::Inquiry;
use super::known::Sentinel;
use super::question::Testimony;
use super::verdict::count;
use crate::base::error::Result;
use crate::report::diagnosis::{Check, Finding};
use crate::store::redis::wire::ask_all;

impl Inquiry {
    /// Asks each of them. Takes two I/O timeouts at most.
    pub(super) fn examine(&self) -> Vec<Finding> {
        // A separate round comes first, from whose answers the other sentinels are learned.
        let found = self.find();
        let sentinels = self.known.all();
        let name = self.name().to_owned();
        let ask = move |sentinel: Arc<Sentinel>| sentinel.ask(&name);
        let outcomes =
            ask_all("lh-sentinel-ask", sentinels.clone(), ask, self.io_timeout(), |_| false);
        let mut findings: Vec<Finding> = sentinels
            .iter()
            .enumerate()
            .map(|(place, sentinel)| {
                let outcome =
                    outcomes.iter().find(|(at, _)| *at == place).map(|(_, outcome)| outcome);
                of_one(outcome, self.name()).at(format!("{:?}", sentinel.endpoint()))
            })
            .collect();
        findings.push(match found {
            Ok(_) => together(&outcomes, self.name()),
            Err(e) => Finding::problem(Check::Sentinels, e.message().to_owned())
                .advise("check the addresses of the sentinels and the name of the master"),
        });
        findings
    }
}

fn of_one(outcome: Option<&Result<Testimony>>, name: &str) -> Finding {
    match outcome {
        Some(Ok(Testimony { master: Some(named), .. })) => Finding::ok(
            Check::Sentinels,
            format!("names {}:{} as the master {name:?}", named.host, named.port),
        ),
        Some(Ok(Testimony { watches, .. })) => Finding::warning(
            Check::Sentinels,
            format!("watches no master {name:?}; it watches {watches:?}"),
        )
        .advise("let this sentinel watch the master, or leave it out"),
        Some(Err(e)) => {
            Finding::warning(Check::Sentinels, format!("cannot be asked: {}", e.message()))
                .advise("bring this sentinel back: a failover needs most of them")
        }
        None => Finding::warning(Check::Sentinels, "did not answer within the I/O timeout")
            .advise("bring this sentinel back: a failover needs most of them"),
    }
}

/// Their common finding, when a master was found.
fn together(outcomes: &[(usize, Result<Testimony>)], name: &str) -> Finding {
    let count = count(outcomes, 0);
    let votes = count.best.map_or(0, |(_, votes)| votes);
    let all = count.all;
    let found = format!("{votes} of {all} sentinels agree on the master {name:?}");
    if votes * 2 <= all {
        return Finding::warning(Check::Sentinels, format!("{found}: too few for a failover"))
            .advise("bring the others back");
    }
    if votes < all {
        return Finding::note(Check::Sentinels, found);
    }
    if all < 3 {
        return Finding::note(Check::Sentinels, found)
            .advise("have three sentinels or more, on machines of their own");
    }
    Finding::ok(Check::Sentinels, found)
}
