//! What the client may do.

use std::collections::BTreeSet;

use super::*;
use crate::conditions::calls::second;
use crate::conditions::rows;
use crate::rig::zookeeper::{PERSISTENT, Raw};

const ALL: i32 = 31;
/// To change the ACL, so that it can be given back.
const ADMIN: i32 = 16;

/// Sets the rights on a node and all below it, whether they can be read now, or only afterwards.
fn allow(session: &mut Raw, path: &str, rights: i32) {
    let children = |session: &mut Raw| session.children(path).unwrap_or_default();
    let before = children(session);
    let _ = session.allow(path, rights);
    let all: BTreeSet<String> = before.into_iter().chain(children(session)).collect();
    for child in &all {
        allow(session, &format!("{path}/{child}"), rights);
    }
}

fn paths(names: &[String]) -> impl Iterator<Item = String> {
    names.iter().flat_map(|name| [format!("/{name}"), format!("/{}", second(name))])
}

/// Names that nobody has used yet get a node.
fn take_away(stage: &mut OnZooKeeper, names: &[String]) {
    stage.made = stage.server.look(|session| {
        let made =
            paths(names).filter(|path| session.create(path, b"", PERSISTENT).is_ok()).collect();
        for path in paths(names) {
            allow(session, &path, ADMIN);
        }
        made
    });
}

fn give_back(stage: &mut OnZooKeeper, names: &[String]) {
    stage.server.look(|session| {
        for path in paths(names) {
            allow(session, &path, ALL);
        }
        stage
            .made
            .iter()
            .for_each(|path| session.delete(path).expect("nobody was allowed to use it"));
    });
}

/// The server says why, and ends the connection: where the client is writing at that moment, the
/// network may drop what the server has said.
const UNIDENTIFIED: &[&str] = &["identify themselves", "ended the connection"];

rows! {
    no_rights: row("The ACL of the nodes allows the client nothing", || {
        let stage = OnZooKeeper::stage(take_away, give_back);
        // A job has nodes of other names.
        let chooses = |call: &str| !call.starts_with("ScheduledJob::");
        OnZooKeeper { spares_others: true, chooses, ..stage }
    }).failing(denied, &["ACL"]);

    identity_demanded: row("The server comes back, and demands an identity (`enforce.auth.schemes`)", || {
        server::restarted("enforce.auth.enabled=true\nenforce.auth.schemes=digest", "enforce.auth.enabled=false")
    }).failing(|class| if class.asks() { &[Some(Denied), Some(Unreachable)] } else { denied(class) }, UNIDENTIFIED);
}
