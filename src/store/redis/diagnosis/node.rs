//! The questions to one server, in a few round trips.

use super::facts;
use super::rights::{Rights, look};
use super::subject::Subject;
use crate::base::error::{Error, ErrorKind, Result};
use crate::report::diagnosis::{Check, ClockSample, Finding};
use crate::store::findings::{Examined, connects, reachable, secured, wall_micros};
use crate::store::redis::wire::{
    BareConnection, Connector, Reply, Request, fail_on_error, server_time,
};

/// Asks one server everything. Each step takes at most an I/O timeout, and the first that fails is
/// the last.
pub(crate) fn examine(connector: &Connector, subject: &Subject) -> Examined {
    let mut examined = Examined::default();
    let asked = connector.connect_bare().and_then(|mut connection| {
        examined.add(reachable(connection.connected_in));
        examined.add(secured(connection.stream(), &*connector.clock));
        answers(&mut connection)?;
        // Before the questions: in a cluster the connect decides which channels are used.
        let connected = connector.connect().map(drop);
        ask(&mut connection, connector, subject, &mut examined)?;
        Ok(connected)
    });
    match asked {
        Err(e) => examined.fail(&e),
        Ok(connected) => {
            examined.usable = connected.is_ok();
            let finding = connects(&connected, &examined.findings);
            examined.findings.extend(finding);
        }
    }
    examined
}

/// Whether it serves the user at all.
fn answers(connection: &mut BareConnection) -> Result<()> {
    let Reply::Error(e) = one(connection, Request::plain(&["PING"]))? else { return Ok(()) };
    // A user who may not run PING may still be able to use locks.
    if e.code == "NOPERM" { Ok(()) } else { Err(e.into_error()) }
}

fn ask(
    connection: &mut BareConnection,
    connector: &Connector,
    subject: &Subject,
    examined: &mut Examined,
) -> Result<()> {
    let clock = &*connector.clock;
    let asked = wall_micros(clock);
    let time = one(connection, Request::plain(&["TIME"]))?;
    let answered = wall_micros(clock);
    let rights = look(connection, connector, subject)?;
    facts::examine(connection, &rights, subject, examined)?;
    if let Ok(server) = fail_on_error(time).and_then(server_time) {
        examined.add_clock(ClockSample { server, asked, answered }, subject.lease);
    }
    add_rights(rights, examined);
    // Even a refused one takes as long.
    let ping = || one(connection, Request::plain(&["PING"])).map(drop);
    examined.measure(connector.io_timeout, ping)
}

fn add_rights(rights: Rights, examined: &mut Examined) {
    for finding in rights.findings {
        examined.add(finding);
    }
    let Some(may_kill) = rights.may_kill else { return };
    examined.add(if may_kill { Finding::ok(Check::Kill, "a request whose answer was lost can be stopped (CLIENT KILL)") } else { Finding::note(
        Check::Kill,
        "a request whose answer was lost cannot be stopped: waiting for it takes an I/O timeout longer",
    )
    .advise("add +client|kill and +info to the user's ACL") });
}

fn one(connection: &mut BareConnection, request: Request) -> Result<Reply> {
    let replies = connection.ask(&[request])?;
    replies.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Protocol, "no reply"))
}
