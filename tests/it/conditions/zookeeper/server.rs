//! The server itself.

use super::*;
use crate::conditions::rows;

/// It comes back with another configuration, and then with the first one.
pub(super) fn restarted(with: &'static str, then: &'static str) -> OnZooKeeper {
    let again = |settings: &'static str| {
        move |stage: &mut OnZooKeeper, _: &[String]| {
            stage.server.kill();
            for line in settings.lines() {
                stage.server.configure(line);
            }
            stage.server.start_again();
        }
    };
    OnZooKeeper::with_a_server_of_its_own("", again(with), again(then))
}

rows! {
    killed: row("The server is killed, and comes back with its data", || {
        OnZooKeeper::stage(|stage, _| {
            stage.counts = false;
            stage.server.kill();
        }, |stage, _| stage.server.start_again())
    }).failing(unreachable, ENDS);

    restarted_in_time: row("The server was killed, and has come back with its data", || restarted("", ""));

    shorter_session: row("The server comes back, and grants shorter sessions (`maxSessionTimeout`)", || {
        let stage = restarted("maxSessionTimeout=8000", "maxSessionTimeout=300000");
        // A lease that is longer than the session is refused.
        OnZooKeeper { chooses: |call| !call.ends_with("::extend"), ..stage }
    });

    full_of_connections: row("The server has reached its `maxClientCnxns`, and the client's connection is ended", || {
        OnZooKeeper::with_a_server_of_its_own("maxClientCnxns=8", |stage, _| {
            stage.counts = false;
            // Both want the place of the connection that has ended.
            wait_until("a stranger has the client's place", || {
                stage.pipe.cut();
                stage.fill();
                // All but that of the other client.
                stage.strangers.len() == 7
            });
            // The server may have taken both at once.
            stage.pipe.cut();
        }, |stage, _| stage.strangers_end()).impatient()
        // A connection that the server has taken for a moment carries what is sent once.
    }).failing(unreachable, &["maxClientCnxns", "look at it before you repeat this"]);
}
