//! The scripts for holds with data, and the look at the last holder.

use super::Primitive;

pub(super) const DATA: Primitive = Primitive {
    calls: &[
        "data_acquire data L token | =text 1 $A 2ks 0 -1 1 0 0",
        "data_acquire data L token | =text 1 $A 2ks 0 -1 1 0 1",
        "data_acquire data L token | =text 0 $A 3ks 1 -1 1 0 0",
        "data_fair_acquire data L queue deadlines token | =text 1 $A 2ks 0 -1 3ks 0 300ks channel 0 0",
        "data_release data L | 1 $A 1 channel",
        "data_release data L | 0 $A 1 channel",
        "data_release data L | 1 $A 2 channel",
        "data_fair_release data L queue deadlines token | 1 $A 1 channel 0 0",
        "data_renew L data | $A 3ks",
        "data_renew L data | $A 0",
        "data_set data L | $A 5 =new",
        "data_ask data L |",
        "data_look data L |",
        "mutex_inspect L data |",
    ],
    states: &[
        ("", "1,0 3,0 2,0 1,0 0,0 0,0 0,0 0,0 0 0 0 0 0 -2,nil"),
        ("HSET L $A 2; PEXPIRE L 2ks", "1,0 3,0 1,0 1,0 2,1>0 2,1>0 1,0 2,0 1 1 1 0 0 2ks,nil,A,2"),
        // A hold with its own data, before and after this change.
        (
            "HSET L $A 2; PEXPIRE L 2ks; HSET data holder $A number 4 =data old until @2ks",
            "1,0 3,0 1,0 1,0 2,1>0 2,1>0 1,0 2,0 1 1 1 1 A,old,-1 2ks,old,A,2",
        ),
        (
            "HSET L $A 2; PEXPIRE L 2ks; HSET data holder $A number 5 =data late until @2ks",
            "1,0 3,0 1,0 1,0 2,1>0 2,1>0 1,0 2,0 1 1 1 1 A,late,-1 2ks,late,A,2",
        ),
        // Somebody has asked for it.
        (
            "HSET L $A 2; PEXPIRE L 2ks; HSET data holder $A number 4 =data old asked 77 until @2ks",
            "1,0 3,0 1,0 1,0 2,1>0 2,1>0 1,0 2,0 -77 -77 1 1 A,old,-1 2ks,old,A,2",
        ),
        // The data of one that has gone, under the present holder, and of one that holds.
        (
            "HSET L $A 2; PEXPIRE L 2ks; HSET data holder $B number 9 =data old until @1ks",
            "1,0 3,0 1,0 1,0 2,1>0 2,1>0 1,0 2,0 1 1 1 0 B,old,0 2ks,nil,A,2",
        ),
        (
            "HSET L $B 1; PEXPIRE L 2ks; HSET data holder $B number 0 =data theirs until @2ks",
            "0,2ks 0,2ks 2,0 0,1ks,1 0,0 0,0 0,0 0,0 0 0 0 1 B,theirs,-1 2ks,theirs,B,1",
        ),
        // Java has no data.
        (
            "HSET L $J 1; PEXPIRE L 2ks; HSET data holder $A number 0 =data old until @1ks",
            "0,2ks 0,2ks 2,0 0,1ks,1 0,0 0,0 0,0 0,0 0 0 0 0 A,old,0 2ks,nil,J,1",
        ),
        // Something else has the name of the data: nothing is granted, and what is held is renewed
        // and freed.
        ("SET data x", "!TYPE !TYPE !TYPE !TYPE 0,0 0,0 0,0 0,0 0 0 0 !TYPE !TYPE -2,nil"),
        (
            "HSET L $A 1; PEXPIRE L 2ks; SET data x",
            "!TYPE !TYPE !TYPE !TYPE 2,1>0 2,1>0 1,0 2,0 1 1 !TYPE !TYPE !TYPE 2ks,nil,A,1",
        ),
    ],
};
