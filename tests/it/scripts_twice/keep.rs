//! The scripts that leave a lock taken after its holder has released it.

use super::Primitive;

pub(super) const KEEP: Primitive = Primitive {
    calls: &[
        "lock_keep L | $A $A:kept 3ks channel 0 =",
        "lock_keep L | $A:write $A:kept:write 3ks channel 1 00",
        "lock_keep L | $A $A:kept 1ks channel 0 =",
        "fair_keep L queue deadlines | $A $A:kept 3ks channel",
        // Both stay taken; the first is freed; one level of the first is released.
        "multi_release L M | $A $A 1 1 channel channelM 3ks 1ks",
        "multi_release L M | $A $A 1 1 channel channelM 0 1ks",
        "multi_release L M | $A $A 2 1 channel channelM 3ks 1ks",
    ],
    states: &[
        ("", "0,0 0,0 0,0 0,0 0,0,0,0 0,0,0,0 0,0,0,0"),
        ("HSET L $A 2; PEXPIRE L 2ks", "1,1>0 0,0 1,1>0 1,0 1,1,0,0>0 2,1,0,0>0 1,0,0,0"),
        ("HSET L $A 1", "1,1>0 0,0 1,1>0 1,0 1,1,0,0>0 2,1,0,0>0 1,0,0,0"),
        // Kept already, for less than 3 ks and for more than 1 ks.
        ("HSET L $A:kept 1; PEXPIRE L 2ks", "1,0 0,0 1,1>0 1,0 1,0,0,0 0,0,0,0 0,0,0,0"),
        ("HSET L $B 1; PEXPIRE L 2ks", "0,0 0,0 0,0 0,0 0,0,0,0 0,0,0,0 0,0,0,0"),
        ("HSET L $B:kept 1; PEXPIRE L 2ks", "0,0 0,0 0,0 0,0 0,0,0,0 0,0,0,0 0,0,0,0"),
        (
            "HSET L mode write $A:write 1; PEXPIRE L 2ks",
            "0,0 1,1>1>00 0,0 0,0 0,0,0,0 0,0,0,0 0,0,0,0",
        ),
        (
            "HSET L mode write $A:kept:write 1; PEXPIRE L 2ks",
            "0,0 1,0 0,0 0,0 0,0,0,0 0,0,0,0 0,0,0,0",
        ),
        // Both locks.
        (
            "HSET L $A 1; PEXPIRE L 2ks; HSET M $A 1; PEXPIRE M 4ks",
            "1,1>0 0,0 1,1>0 1,0 1,1,1,1>0>0M 2,1,1,1>0>0M 1,0,1,1>0M",
        ),
        (
            "HSET L $A:kept 1; PEXPIRE L 4ks; HSET M $A:kept 1; PEXPIRE M 1ks",
            "1,1>0 0,0 1,1>0 1,0 1,1,1,0>0 0,0,1,0 0,0,1,0",
        ),
        // One is broken, and the other is kept nevertheless.
        ("SET L x", "!TYPE !TYPE !TYPE !TYPE !TYPE,0,0,0 !TYPE,0,0,0 !TYPE,0,0,0"),
        (
            "SET L x; HSET M $A 1; PEXPIRE M 4ks",
            "!TYPE !TYPE !TYPE !TYPE !TYPE,0,1,1>0M !TYPE,0,1,1>0M !TYPE,0,1,1>0M",
        ),
        // The head of the queue is notified, and no dead waiter is.
        (
            "HSET L $A 1; PEXPIRE L 2ks; RPUSH queue $B $C; ZADD deadlines @3ks $B @3ks $C",
            "1,1>0 0,0 1,1>0 1,1>0@B 1,1,0,0>0 2,1,0,0>0 1,0,0,0",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks; RPUSH queue $B $C; ZADD deadlines 1 $B @3ks $C",
            "1,1>0 0,0 1,1>0 1,1>0@C 1,1,0,0>0 2,1,0,0>0 1,0,0,0",
        ),
    ],
};
