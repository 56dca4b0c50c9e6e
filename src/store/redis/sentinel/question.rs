//! The questions to one sentinel, and its answers.

use crate::base::error::{Error, ErrorKind, Result};
use crate::store::redis::wire::{Line, Reply, Request, fail_on_error};

/// What one sentinel reports about the master.
#[derive(Debug, Clone)]
pub(super) struct Testimony {
    /// The id of the sentinel, which may be known by two addresses.
    pub(super) id: String,
    /// `None` if it watches no master of this name.
    pub(super) master: Option<NamedMaster>,
    /// The sentinels that it knows.
    pub(super) others: Vec<Neighbour>,
    /// The masters that it watches, if this one is not among them.
    pub(super) watches: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedMaster {
    pub(super) host: String,
    pub(super) port: u16,
    /// Grows with each failover. 0 if the user may not ask for it.
    pub(super) config_epoch: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Neighbour {
    pub(super) id: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// It has not answered the one that reports it for a while.
    pub(super) is_down: bool,
}

/// One round trip; two if the master is unknown there.
pub(super) fn ask(line: &Line, name: &str) -> Result<Testimony> {
    let endpoint = format!("{:?}", line.endpoint);
    let question = |words: &[&str]| Request::plain(&[&["SENTINEL"], words].concat());
    // The address comes from a command of its own, because in a failover `MASTER` still has the old
    // one when the promoted replica is already a master.
    let replies = line.ask(&[
        question(&["GET-MASTER-ADDR-BY-NAME", name]),
        question(&["MASTER", name]),
        question(&["SENTINELS", name]),
        question(&["MYID"]),
    ])?;
    let [address, master, others, id] =
        <[Reply; 4]>::try_from(replies).map_err(|_| nonsense(&endpoint))?;
    let id = if let Reply::Bytes(id) = id { text(&id) } else { endpoint.clone() };
    match fail_on_error(address).map_err(|e| no_sentinel(&endpoint, e))? {
        Reply::Array(parts) => {
            let [Reply::Bytes(host), Reply::Bytes(port)] = &parts[..] else {
                return Err(nonsense(&endpoint));
            };
            let port = text(port).parse().map_err(|_| nonsense(&endpoint))?;
            let config_epoch =
                field(&master, "config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0);
            let named = NamedMaster { host: text(host), port, config_epoch };
            Ok(Testimony {
                id,
                master: Some(named),
                others: neighbours(&others),
                watches: Vec::new(),
            })
        }
        Reply::Nil => {
            let masters = line.ask(&[question(&["MASTERS"])])?.remove(0);
            let watches = rows(&masters).iter().filter_map(|row| field(row, "name")).collect();
            Ok(Testimony { id, master: None, others: Vec::new(), watches })
        }
        _ => Err(nonsense(&endpoint)),
    }
}

fn no_sentinel(endpoint: &str, error: Error) -> Error {
    let may_be = matches!(error.kind(), ErrorKind::Server | ErrorKind::Unsupported);
    if !may_be || !error.message().to_lowercase().contains("unknown") {
        return error;
    }
    let why = format!("{endpoint} is not a sentinel; sentinels usually listen on port 26379");
    Error::new(ErrorKind::Unsupported, why).caused_by(error)
}

fn nonsense(endpoint: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("{endpoint} does not answer like a sentinel"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn rows(list: &Reply) -> &[Reply] {
    if let Reply::Array(rows) = list { rows } else { &[] }
}

/// Returns the value behind this name in a list of names and values.
fn field(row: &Reply, name: &str) -> Option<String> {
    rows(row).chunks_exact(2).find_map(|pair| match pair {
        [Reply::Bytes(key), Reply::Bytes(value)] if key == name.as_bytes() => Some(text(value)),
        _ => None,
    })
}

fn neighbours(list: &Reply) -> Vec<Neighbour> {
    let neighbour = |row: &Reply| {
        let host = field(row, "ip")?;
        let port = field(row, "port")?.parse().ok()?;
        let is_down =
            field(row, "flags").is_some_and(|flags| flags.split(',').any(|flag| flag == "s_down"));
        Some(Neighbour { id: field(row, "runid")?, host, port, is_down })
    };
    rows(list).iter().filter_map(neighbour).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fuzz_tests::fuzz;
    use crate::store::redis::wire::fuzz_tests::{any, read, sent};

    #[test]
    fn fuzzed_answers_have_neighbours_or_none() {
        let bytes = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
        fuzz(
            move |dice| {
                let fields = [
                    "ip",
                    "10.0.0.1",
                    "port",
                    "26379",
                    "runid",
                    "0123",
                    "flags",
                    "sentinel,s_down",
                ]
                .map(bytes);
                let rows = vec![Reply::Array(fields.to_vec()), any(dice, 2)];
                let neighbours = neighbours(&Reply::Array(rows.clone()));
                assert_eq!(
                    (&*neighbours[0].host, neighbours[0].port, neighbours[0].is_down),
                    ("10.0.0.1", 26379, true)
                );
                sent(&Reply::Array(rows))
            },
            |bytes, _| {
                for reply in read(bytes) {
                    assert!(neighbours(&reply).len() <= rows(&reply).len());
                    let _ = field(&reply, "config-epoch");
                }
            },
        );
    }
}
