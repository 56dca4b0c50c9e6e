//! The network before the server.

use super::*;
use crate::conditions::rows;

rows! {
    suspended: row("The server hangs: it accepts connections and answers nothing", || {
        OnZooKeeper::stage(|stage, _| {
            stage.counts = false;
            stage.server.suspend();
        }, |stage, _| stage.server.resume()).impatient()
    }).failing(unreachable, HANGS);

    black_hole: row("The network drops all packets", || {
        OnZooKeeper::stage(|stage, _| stage.pipe.silence(true), |stage, _| stage.pipe.silence(false)).impatient()
    }).failing(unreachable, HANGS);

    fifty_ms_away: row("Each reply comes 50 ms late", || {
        OnZooKeeper::stage(|stage, _| stage.pipe.delay(ms(50)), |stage, _| stage.pipe.delay(ms(0)))
    });

    three_seconds_away: row("Each reply comes 3 s late, later than the I/O timeout", || {
        OnZooKeeper::stage(|stage, _| stage.pipe.delay(ms(3000)), |stage, _| stage.pipe.delay(ms(0))).impatient()
    }).failing(unreachable, HANGS);

    connection_ends: row("The connection is ended", || OnZooKeeper::stage(|stage, _| stage.pipe.cut(), |_, _| ()))
        // Of all calls only a forced unlock is never sent twice.
        .failing(|class| if class == Class::Force { &[None, Some(Unreachable)] } else { DONE }, ENDS);
}
