//! The conclusion from the answers of several sentinels.

use super::question::{NamedMaster, Testimony};
use crate::base::error::{Error, ErrorKind, Result, invalid};

/// The votes, one for each sentinel, however many addresses it is known by.
pub(super) struct Count<'t> {
    /// The master that most of them name, with the latest configuration among them, and how many
    /// name it.
    pub(super) best: Option<(NamedMaster, usize)>,
    voters: Vec<&'t Testimony>,
    /// The number of all sentinels: those that were asked, or more if one that answered knows more.
    /// Not only what those say: one that has just been set up anew knows no other.
    pub(super) all: usize,
}

/// `asked`: how many were asked that are not [written off](super::known::Sentinel).
pub(super) fn count(outcomes: &[(usize, Result<Testimony>)], asked: usize) -> Count<'_> {
    let mut voters: Vec<&Testimony> = Vec::new();
    for testimony in outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().ok()) {
        if !voters.iter().any(|other| other.id == testimony.id) {
            voters.push(testimony);
        }
    }
    let mut votes: Vec<(NamedMaster, usize)> = Vec::new();
    for named in voters.iter().filter_map(|testimony| testimony.master.as_ref()) {
        match votes
            .iter_mut()
            .find(|(other, _)| (&other.host, other.port) == (&named.host, named.port))
        {
            Some((known, count)) => {
                known.config_epoch = known.config_epoch.max(named.config_epoch);
                *count += 1;
            }
            None => votes.push((named.clone(), 1)),
        }
    }
    let told = voters.iter().map(|testimony| testimony.others.len() + 1).max().unwrap_or(0);
    let best = votes.into_iter().max_by_key(|(_, count)| *count);
    Count { best, all: told.max(voters.len()).max(asked), voters }
}

/// More than half of all sentinels name one master: the others need not answer.
pub(super) fn is_settled(outcomes: &[(usize, Result<Testimony>)], asked: usize) -> bool {
    let count = count(outcomes, asked);
    count.best.is_some_and(|(_, votes)| votes * 2 > count.all)
}

/// Whether the others need not be waited for, because they are gone: each sentinel that has not
/// answered is [written off](super::known::Sentinel), all that those who answered call up are among
/// them, and [`judge`] believes them. `written_off`: of each that was asked.
pub(super) fn nobody_is_missing(
    outcomes: &[(usize, Result<Testimony>)],
    written_off: &[bool],
    seen: u64,
) -> bool {
    let Count { best, voters, .. } = count(outcomes, 0);
    let has_come = |place: usize| outcomes.iter().any(|(at, _)| *at == place);
    let has_voted = |id: &String| voters.iter().any(|voter| voter.id == *id);
    let mut called_up =
        voters.iter().flat_map(|voter| &voter.others).filter(|other| !other.is_down);
    written_off.iter().enumerate().all(|(place, is_off)| *is_off || has_come(place))
        && called_up.all(|other| has_voted(&other.id))
        && best.is_some_and(|(named, votes)| votes * 2 > voters.len() && named.config_epoch >= seen)
}

/// The master that more than half of the sentinels that answered name. `seen`: the configuration
/// that was believed last. An older one is believed only if more than half of *all* sentinels name
/// it (all were set up anew): a single sentinel that is cut off with the old master must not lead
/// back to it.
pub(super) fn judge(
    outcomes: &[(usize, Result<Testimony>)],
    name: &str,
    asked: usize,
    seen: u64,
    addresses: &[String],
) -> Result<NamedMaster> {
    let Count { best, voters, all } = count(outcomes, asked);
    if voters.is_empty() {
        return Err(nobody_answered(outcomes, addresses));
    }
    let answered = voters.len();
    let not_yet = |why: String| Err(Error::new(ErrorKind::NotReady, why));
    match best {
        Some((named, votes))
            if votes * 2 > all || (votes * 2 > answered && named.config_epoch >= seen) =>
        {
            Ok(named)
        }
        Some((_, votes)) if votes * 2 > answered => not_yet(format!(
            "{answered} of {all} sentinels can be reached, and they name an earlier master {name:?} than the others did"
        )),
        Some(_) => not_yet(format!(
            "the {answered} sentinels that can be reached do not agree on the master {name:?}"
        )),
        None => {
            let mut watched: Vec<String> =
                voters.iter().flat_map(|testimony| testimony.watches.clone()).collect();
            watched.sort();
            watched.dedup();
            let why = format!("the sentinels watch no master {name:?}; they watch {watched:?}");
            Err(invalid(why))
        }
    }
}

#[cold]
fn nobody_answered(outcomes: &[(usize, Result<Testimony>)], addresses: &[String]) -> Error {
    let mut whys = Vec::new();
    let mut kinds = Vec::new();
    for (place, address) in addresses.iter().enumerate() {
        match outcomes.iter().find(|(at, _)| *at == place) {
            Some((_, Err(error))) => {
                kinds.push(error.kind());
                whys.push(format!("{address}: {}", error.chain()));
            }
            _ => {
                kinds.push(ErrorKind::Unreachable);
                whys.push(format!("{address}: no answer within the I/O timeout (io_timeout)"));
            }
        }
    }
    // If all failed in the same way, that is the cause; otherwise it may be an outage.
    let kind = kinds.first().filter(|first| kinds.iter().all(|kind| kind == *first));
    let kind = kind.copied().unwrap_or(ErrorKind::Unreachable);
    Error::new(kind, format!("no sentinel can be asked for the master: {}", whys.join("; ")))
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
