//! The network before the server.

use super::*;
use crate::conditions::rows;

/// Calls of each class.
const SOME: [&str; 5] =
    ["LockClient", "ReentrantMutex", "Semaphore::", "SemaphorePermit", "CountDownLatch"];

rows! {
    suspended: row("The server hangs: it accepts connections and answers nothing", || {
        OnPostgres::stage("", |stage, _| {
            stage.counts = false;
            stage.server.suspend();
        }, |stage, _| stage.server.resume()).impatient()
    }).failing(unreachable, HANGS);

    black_hole: row("The network drops all packets", || {
        OnPostgres::far_away(|stage, _| stage.pipe().silence(true), |stage, _| stage.pipe().silence(false))
            .impatient()
    }).failing(unreachable, HANGS);

    refused: row("Connections are ended and refused", || {
        OnPostgres::stage("", |stage, _| {
            stage.proxy().refuse(true);
            stage.proxy().cut_all();
        }, |stage, _| stage.proxy().refuse(false))
    }).failing(unreachable, ENDS);

    cut_in_a_reply: row("Each connection ends in the middle of a reply", || {
        OnPostgres::stage("", |stage, _| stage.each_meets(Fault::CutReplyAt(2)), |stage, _| stage.heal())
    }).failing(unreachable, ENDS);

    lost_replies: row("Each request runs, and its connection ends before the reply", || {
        OnPostgres::stage("", |stage, _| stage.each_meets(Fault::CutAfterApplied), |stage, _| stage.heal())
    }).failing(unreachable, ENDS);

    five_ms_away: row("Each reply comes 5 ms late", || {
        OnPostgres::far_away(|stage, _| stage.pipe().delay(ms(5)), |stage, _| stage.pipe().delay(ms(0)))
    });

    // Each connection carries twenty requests in a second then, and all calls at once would be too many.
    fifty_ms_away: row("Each reply comes 50 ms late", || {
        let stage = OnPostgres::far_away(|stage, _| stage.pipe().delay(ms(50)), |stage, _| stage.pipe().delay(ms(0)));
        OnPostgres { chooses: |call| SOME.iter().any(|kind| call.starts_with(kind)), ..stage }
    });

    three_seconds_away: row("Each reply comes 3 s late, later than the I/O timeout", || {
        OnPostgres::far_away(|stage, _| stage.pipe().delay(ms(3000)), |stage, _| stage.pipe().delay(ms(0)))
            .impatient()
    }).failing(unreachable, HANGS);

    backends_ended: row("All of the client's backends are ended (`pg_terminate_backend`)", || {
        OnPostgres::stage("", |stage, _| stage.end_connections(), |_, _| ())
    });

    ends_hidden: row("All of the client's backends are ended, and a proxy hides that until they are used", || {
        OnPostgres::stage("", |stage, _| {
            stage.proxy().hide_ends(true);
            stage.end_connections();
        }, |stage, _| stage.proxy().hide_ends(false))
    });
}
