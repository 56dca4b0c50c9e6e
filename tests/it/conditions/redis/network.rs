//! The network before the server.

use super::*;
use crate::conditions::rows;

rows! {
    suspended: row("The server hangs: it accepts connections and answers nothing", || {
        OneRedis::stage(&[], |stage, _| stage.server.suspend(), |stage, _| stage.server.resume()).impatient()
    }).failing(unreachable, HANGS);

    black_hole: row("The network drops all packets", || {
        OneRedis::far_away(|stage, _| stage.pipe().silence(true), |stage, _| stage.pipe().silence(false)).impatient()
    }).failing(unreachable, HANGS);

    refused: row("Connections are ended and refused", || {
        OneRedis::stage(&[], |stage, _| {
            stage.proxy().refuse(true);
            stage.proxy().cut_all();
        }, |stage, _| stage.proxy().refuse(false))
    }).failing(unreachable, ENDS);

    cut_in_a_reply: row("Each connection ends in the middle of a reply", || {
        OneRedis::stage(&[], |stage, _| stage.each_meets(Fault::CutReplyAt(2)), |stage, _| stage.heal())
    }).failing(unreachable, ENDS);

    lost_replies: row("Each request runs, and its connection ends before the reply", || {
        OneRedis::stage(&[], |stage, _| stage.each_meets(Fault::CutAfterApplied), |stage, _| stage.heal())
    }).failing(unreachable, ENDS);

    five_ms_away: row("Each reply comes 5 ms late", || {
        OneRedis::far_away(|stage, _| stage.pipe().delay(ms(5)), |stage, _| stage.pipe().delay(ms(0)))
    });

    fifty_ms_away: row("Each reply comes 50 ms late", || {
        OneRedis::far_away(|stage, _| stage.pipe().delay(ms(50)), |stage, _| stage.pipe().delay(ms(0)))
    });

    three_seconds_away: row("Each reply comes 3 s late, later than the I/O timeout", || {
        OneRedis::far_away(|stage, _| stage.pipe().delay(ms(3000)), |stage, _| stage.pipe().delay(ms(0))).impatient()
    }).failing(unreachable, HANGS);

    idle_ends_seen: row("All idle connections are ended, as by the server's `timeout`", || {
        OneRedis::stage(&[], |stage, _| stage.proxy().cut_all(), |_, _| ())
    });

    idle_ends_hidden: row("All idle connections are ended, and a proxy hides that until they are used", || {
        OneRedis::stage(&[], |stage, _| {
            stage.proxy().hide_ends(true);
            stage.cmd::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).expect("it kills");
        }, |stage, _| stage.proxy().hide_ends(false))
    }).failing(|class| if class == Class::Force { &[None, Some(Unreachable)] } else { DONE }, ENDS);
}
