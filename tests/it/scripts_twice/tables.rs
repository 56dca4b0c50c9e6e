//! The tables: the calls of each primitive, and the first reply to each call in each state.

use super::Primitive;

/// A plain lock whose hold is passed between the threads of a client; `scripts` covers the rest of
/// it.
pub(super) const RUN: Primitive = Primitive {
    calls: &[
        "mutex_acquire L token | $A 2ks 0 -1 5 0 0",
        "mutex_acquire L token | $A 2ks 0 0 5 0 0",
        "mutex_acquire L token | $A 2ks 0 9ks 5 0 0",
        "mutex_acquire L token | $A 2ks 0 9ks 5 0 1",
    ],
    states: &[
        ("", "1,0 1,1 1,1 3,0"),
        ("SET token 7", "1,0 1,8 1,8 3,0"),
        ("SET token abc", "1,0 !INT !INT 3,0"),
        ("HSET L $A 2; PEXPIRE L 2ks", "1,0 1,1 1,1 3,0"),
        ("HSET L $B 1; PEXPIRE L 2ks", "0,2ks 0,2ks 0,2ks 0,2ks"),
    ],
};

/// The record that a client has written about itself.
pub(super) const CLIENT: Primitive = Primitive {
    calls: &["client_look client |"],
    states: &[
        ("", "-2,nil"),
        ("SET client text PX 2ks", "2ks,text"),
        ("SET client text", "-1,text"),
        ("HSET client a 1", "!TYPE"),
    ],
};

/// The index of clients that have written such records.
pub(super) const INDEX: Primitive = Primitive {
    calls: &["client_enter index | c 2ks"],
    states: &[
        ("", "1"),
        ("ZADD index 1 dead @3ks other; PEXPIRE index 3ks", "1"),
        ("ZADD index @1ks c; PEXPIRE index 1ks", "1"),
        ("SET index text", "!TYPE"),
    ],
};

/// Everything that is stored under a name.
pub(super) const LOOK: Primitive = Primitive {
    calls: &["name_look L token queue deadlines marker leases opened data | tag 10 channel"],
    states: &[
        ("", "0,nil,none,nil,0,none,-2,0,0,none,0,0,nil"),
        ("HSET L $A 1; PEXPIRE L 2ks; SET token 7", "1,nil,A,1,2ks,7,0,none,-2,0,0,none,0,0,nil"),
        (
            "HSET L $A 1; PEXPIRE L 2ks; HSET data holder $A =data text",
            "1,nil,A,1,2ks,nil,0,none,-2,0,0,none,0,0,text",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks; HSET data holder $B =data text",
            "1,nil,A,1,2ks,nil,0,none,-2,0,0,none,0,0,nil",
        ),
        ("HSET L $A 1; PEXPIRE L 2ks; SET data x", "1,nil,A,1,2ks,nil,0,none,-2,0,0,none,0,0,nil"),
        ("HSET L $A 1; SET token x; SADD queue y", "1,nil,A,1,-1,x,0,none,-2,0,0,none,0,0,nil"),
        ("HSET L $A 1; HSET token x y", "1,nil,A,1,-1,nil,0,none,-2,0,0,none,0,0,nil"),
        (
            "RPUSH queue $B $C; ZADD deadlines @3ks $B",
            "0,nil,none,nil,2,B,3ks,C,-2,-2,0,0,none,0,0,nil",
        ),
        (
            "HSET L mode read $A 1; PEXPIRE L 2ks; SET $A.1 1 PX 2ks; SET marker $B PX 3ks",
            "2,nil,mode,read,2ks,A,1,2ks,nil,0,none,3ks,0,0,none,0,0,nil",
        ),
        ("HSET L mode dark $A 1", "4,nil,none,nil,0,none,-2,0,0,none,0,0,nil"),
        ("HSET L =token 7 value v", "4,nil,none,nil,0,none,-2,0,0,none,0,0,nil"),
        ("SET L 3; SET opened 5", "3,3,none,nil,0,none,-2,0,0,none,1,0,nil"),
        ("RPUSH L a", "4,nil,none,nil,0,none,-2,0,0,none,0,0,nil"),
    ],
};

pub(super) const FAIR: Primitive = Primitive {
    calls: &[
        "fair_acquire L queue deadlines token | $A 2ks 0 -1 3ks 0 300ks channel 0 0",
        "fair_acquire L queue deadlines token | $A 2ks 0 9ks 0 0 300ks channel 0 0",
        "fair_acquire L queue deadlines token | $A 2ks 0 -1 3ks 1 300ks channel 0 0",
        "fair_acquire L queue deadlines token | $A 3ks 1 -1 0 0 300ks channel 0 0",
        "fair_acquire L queue deadlines token | $A 2ks 0 -1 3ks 0 300ks channel 0 1",
        "fair_release L queue deadlines token | $A 2 channel 1 0",
        "fair_release L queue deadlines token | $A 1 channel 1 0",
        "fair_force_unlock L queue deadlines | channel",
        "fair_queue queue | aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa:",
    ],
    states: &[
        ("", "1,0 1,1 1,0 2,0 3,0 0,0 0,0 0 0,-1"),
        ("HSET L $A 1; PEXPIRE L 2ks", "1,0 1,1 1,0 1,0 3,0 1,0 2,0 1 0,-1"),
        ("HSET L $A 2; PEXPIRE L 2ks", "1,0 1,1 1,0 1,0 3,0 1,0 2,0 1 0,-1"),
        ("HSET L $A 3; PEXPIRE L 2ks", "1,0 1,1 1,0 1,0 3,0 1,0 2,0 1 0,-1"),
        // A fenced value, and a lock without a TTL.
        ("HSET L =token 7 value v", "!TYPE !TYPE !TYPE 2,0 3,0 0,0 0,0 !TYPE 0,-1"),
        ("HSET L $B 1", "0,1ks,1 0,-1 0,1ks,1 2,0 3,0 0,0 0,0 1 0,-1"),
        ("HSET L $B 1; PEXPIRE L 2ks", "0,1ks,1 0,2ks 0,1ks,1 2,0 3,0 0,0 0,0 1 0,-1"),
        ("HSET L $J 2; PEXPIRE L 2ks", "0,1ks,1 0,2ks 0,1ks,1 2,0 3,0 0,0 0,0 1 0,-1"),
        // A waits first, last, and behind a Redisson client, while the lock is held and while it is
        // free.
        (
            "HSET L $B 1; PEXPIRE L 2ks; RPUSH queue $A $C; ZADD deadlines @3ks $A @3ks $C",
            "0,1ks,0 0,2ks 0,1ks,0 2,0 3,0 0,0 0,0 1>0@A 2,0",
        ),
        (
            "HSET L $B 1; PEXPIRE L 2ks; RPUSH queue $C $A; ZADD deadlines @3ks $C @3ks $A",
            "0,1ks,0 0,2ks 0,1ks,0 2,0 3,0 0,0 0,0 1>0@C 2,1",
        ),
        (
            "HSET L $B 1; PEXPIRE L 2ks; RPUSH queue $J; ZADD deadlines @5ks $J",
            "0,1ks,1 0,2ks 0,1ks,1 2,0 3,0 0,0 0,0 1>0@J 1,-1",
        ),
        (
            "RPUSH queue $A $C; ZADD deadlines @3ks $A @3ks $C; PEXPIRE queue 4ks; PEXPIRE deadlines 4ks",
            "1,0 1,1 1,0 2,0 3,0 0,0 0,1,C>0@C 0 2,0",
        ),
        ("RPUSH queue $C; ZADD deadlines @3ks $C", "0,1ks,1 0,-2 1,0 2,0 3,0 0,0 0,0 0 1,-1"),
        (
            "RPUSH queue $J $A; ZADD deadlines @5ks $J @8ks $A",
            "0,1ks,0 0,-2 0,1ks,0 2,0 3,0 0,0 0,0 0 2,1",
        ),
        // A holds the lock, and others wait.
        (
            "HSET L $A 1; PEXPIRE L 2ks; RPUSH queue $B $J; ZADD deadlines @3ks $B @5ks $J",
            "1,0 1,1 1,0 1,0 3,0 1,0 2,1,B>0@B 1>0@B 2,-1",
        ),
        // The timeout of a Redisson waiter that has left is subtracted from the deadlines, whether
        // A or another waiter is first.
        (
            "HSET L $B 1; PEXPIRE L 2ks; RPUSH queue $A $J; ZADD deadlines @50ks $A @350ks $J",
            "0,1ks,0 0,2ks 0,1ks,0 2,0 3,0 0,0 0,0 1>0@A 2,0",
        ),
        (
            "RPUSH queue $C $J $A; ZADD deadlines @50ks $C @350ks $J @353ks $A",
            "0,1ks,0 0,-2 0,1ks,0 2,0 3,0 0,0 0,0 0 3,2",
        ),
        // First waiters that are dead. (If all waiters look dead, the server may have been
        // suspended: a release notifies the first and removes nobody.) The dead one is another
        // client's, which is notified if the lock is free; A itself; a Redisson client without a
        // deadline; one in front of a live waiter.
        ("RPUSH queue $B $A; ZADD deadlines 1 $B @3ks $A", "1,0 1,1 1,0 2,0 3,0 0,0 0,0 0 2,1"),
        (
            "RPUSH queue $B $C $A; ZADD deadlines 1 $B @3ks $C @3ks $A",
            "0,1ks,0>0@C 0,-2>0@C 0,1ks,0>0@C 2,0 3,0 0,0 0,1,C>0@C 0 3,2",
        ),
        (
            "RPUSH queue $A $B; ZADD deadlines 1 $A @3ks $B",
            "1,0 1,1 1,0 2,0 3,0 0,0 0,1,B>0@B 0 2,0",
        ),
        (
            "RPUSH queue $J $A; ZADD deadlines @3ks $A",
            "1,0>0@J 1,1>0@J 1,0>0@J 2,0 3,0 0,0 0,0 0 2,1",
        ),
        (
            "HSET L $J 1; PEXPIRE L 2ks; RPUSH queue $B $C; ZADD deadlines @3ks $B 1 $C",
            "0,1ks,1 0,2ks 0,1ks,1 2,0 3,0 0,0 0,0 1>0@B 2,-1",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks; RPUSH queue $B $C; ZADD deadlines 1 $B @3ks $C",
            "1,0 1,1 1,0 1,0 3,0 1,0 2,1,C,0>grant:0@C 1>0@C 2,-1",
        ),
        // A passes it on to B. Not to one that is not first, not while another holder exists, and
        // not when a Redisson client is next or last.
        (
            "HSET L $A 2; PEXPIRE L 9ks; RPUSH queue $B; ZADD deadlines @3ks $B",
            "1,0 1,1 1,0 1,0 3,0 1,0 2,1,B,0>grant:0@B 1>0@B 1,-1",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks; RPUSH queue $B $J $C; ZADD deadlines @3ks $B @5ks $J @8ks $C",
            "1,0 1,1 1,0 1,0 3,0 1,0 2,1,B>0@B 1>0@B 3,-1",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks; RPUSH queue $B $C $J; ZADD deadlines @3ks $B @3ks $C @8ks $J",
            "1,0 1,1 1,0 1,0 3,0 1,0 2,1,B>0@B 1>0@B 3,-1",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks; RPUSH queue $B $C; ZADD deadlines @3ks $B @3ks $C; SET token 1e3",
            "1,0 !INT 1,0 1,0 3,0 1,0 2,1,B,0>grant:0@B 1>0@B 2,-1",
        ),
        (
            "HSET L $A 1 $C 1; PEXPIRE L 2ks; RPUSH queue $B; ZADD deadlines @3ks $B",
            "1,0 1,1 1,0 1,0 3,0 1,0 2,0 1>0@B 1,-1",
        ),
        // An entry that is only in the sorted set blocks nobody.
        ("ZADD deadlines @3ks $B", "1,0 1,1 1,0 2,0 3,0 0,0 0,0 0 0,-1"),
        // Another kind of lock, other types, a counter that is not a number.
        (
            "HSET L mode write $B:write 1; PEXPIRE L 2ks",
            "!TYPE !TYPE !TYPE 2,0 3,0 0,0 0,0 !TYPE 0,-1",
        ),
        // Hashes of an application: one that has no TTL is refused at once.
        ("HSET L alice 1", "!TYPE !TYPE !TYPE 2,0 3,0 0,0 0,0 !TYPE 0,-1"),
        ("HSET L $B 1 alice 1", "!TYPE !TYPE !TYPE 2,0 3,0 0,0 0,0 !TYPE 0,-1"),
        ("HSET L $B 300000", "!TYPE !TYPE !TYPE 2,0 3,0 0,0 0,0 !TYPE 0,-1"),
        ("HSET L alice 1; PEXPIRE L 2ks", "0,1ks,1 0,2ks 0,1ks,1 2,0 3,0 0,0 0,0 !TYPE 0,-1"),
        ("SET L x", "!TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE 0,-1"),
        ("RPUSH L x", "!TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE 0,-1"),
        ("SET queue x", "!TYPE !TYPE !TYPE 2,0 3,0 0,0 0,0 0 !TYPE"),
        (
            "HSET L $A 1; PEXPIRE L 2ks; RPUSH queue $B; SET deadlines x",
            "!TYPE !TYPE !TYPE 1,0 3,0 1,0 !TYPE !TYPE 1,-1",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks; SET queue x",
            "!TYPE !TYPE !TYPE 1,0 3,0 1,0 !TYPE !TYPE !TYPE",
        ),
        (
            "SET L x; RPUSH queue $A $B; ZADD deadlines @3ks $A @3ks $B",
            "!TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE 2,0",
        ),
        ("SET token 1e3", "1,0 !INT 1,0 2,0 3,0 0,0 0,0 0 0,-1"),
    ],
};

pub(super) const MULTI: Primitive = Primitive {
    calls: &[
        "multi_acquire L M token token2 | $A $A 0 0 2ks -1 channel 1 0 0",
        "multi_acquire L M token token2 | $A $A 0 0 2ks 9ks channel 0 0 0",
        // The first and the last call are repeats; A re-enters L, C acquires M for the first time.
        "multi_acquire L M token token2 | $A $C 1 0 3ks 9ks channel 0 0 0",
        "multi_acquire L M token token2 | $A $A 2 1 1ks 9ks channel 0 0 1",
        "multi_acquire L M token token2 | $A $A 0 0 2ks -1 channel 1 0 1",
        "multi_release L M | $A $A 1 1 channel channelM",
        "multi_release L M | $A $A 2 1 channel channelM",
        "multi_release M L | $A $C 1 3 channelM channel",
    ],
    states: &[
        ("", "1,0,0 1,1,1 2,0,1 2,0,1 3,0,0 0,0,0,0 0,0,0,0 0,0,0,0"),
        // A fenced value, and a lock without a TTL.
        ("HSET M =token 7 value v", "4,0,2 4,0,2 2,0,1 2,0,1 4,0,2 0,0,0,0 0,0,0,0 0,0,0,0"),
        ("HSET M $B 1", "0,-1,2 0,-1,2 2,0,1 2,0,1 0,-1,2 0,0,0,0 0,0,0,0 0,0,0,0"),
        // Hashes of an application.
        ("HSET M alice 1", "4,0,2 4,0,2 2,0,1 2,0,1 4,0,2 0,0,0,0 0,0,0,0 0,0,0,0"),
        ("HSET M $B 1 alice 1", "4,0,2 4,0,2 2,0,1 2,0,1 4,0,2 0,0,0,0 0,0,0,0 0,0,0,0"),
        // A holds all of it or a part; counts that differ from the client's.
        ("HSET L $A 1; PEXPIRE L 2ks", "1,0,0 1,1,1 1,0,1 2,0,2 3,0,0 2,1,0,0>0 1,0,0,0 0,0,0,0"),
        (
            "HSET M $A 1; PEXPIRE M 2ks",
            "1,0,0 1,1,1 2,0,1 2,0,1 3,0,0 0,0,2,1>0M 0,0,2,1>0M 2,1,0,0>0M",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks; HSET M $A 1; PEXPIRE M 4ks",
            "1,0,0 1,1,1 0,4ks,2 1,0,0 3,0,0 2,1,2,1>0>0M 1,0,2,1>0M 2,1,0,0>0M",
        ),
        (
            "HSET L $A 3; PEXPIRE L 4ks; HSET M $A 2; PEXPIRE M 1ks",
            "1,0,0 1,1,1 0,1ks,2 1,0,0 3,0,0 2,1,2,1>0>0M 1,0,2,1>0M 2,1,0,0>0M",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks; HSET M $C 1; PEXPIRE M 2ks",
            "0,2ks,2>0{L} 0,2ks,2 1,0,1 2,0,2 0,2ks,2>0{L} 2,1,0,0>0 1,0,0,0 0,0,0,0",
        ),
        // Held by another, and what an earlier run of A's request acquired in addition.
        (
            "HSET L $B 1; PEXPIRE L 2ks",
            "0,2ks,1 0,2ks,1 2,0,1 2,0,1 0,2ks,1 0,0,0,0 0,0,0,0 0,0,0,0",
        ),
        (
            "HSET M $J 1; PEXPIRE M 4ks",
            "0,4ks,2 0,4ks,2 2,0,1 2,0,1 0,4ks,2 0,0,0,0 0,0,0,0 0,0,0,0",
        ),
        (
            "HSET L $B 1; PEXPIRE L 2ks; HSET M $J 1; PEXPIRE M 4ks",
            "0,2ks,1 0,2ks,1 2,0,1 2,0,1 0,2ks,1 0,0,0,0 0,0,0,0 0,0,0,0",
        ),
        (
            "HSET L $B 1; PEXPIRE L 2ks; HSET M $A 1; PEXPIRE M 2ks",
            "0,2ks,1>0{M} 0,2ks,1 2,0,1 2,0,1 0,2ks,1>0{M} 0,0,2,1>0M 0,0,2,1>0M 2,1,0,0>0M",
        ),
        (
            "HSET L $A 1; PEXPIRE L 2ks; HSET M $B 1; PEXPIRE M 3ks",
            "0,3ks,2>0{L} 0,3ks,2 0,3ks,2 2,0,2 0,3ks,2>0{L} 2,1,0,0>0 1,0,0,0 0,0,0,0",
        ),
        (
            "HSET L $C 3; PEXPIRE L 4ks; HSET M $A 1; PEXPIRE M 2ks",
            "0,4ks,1>0{M} 0,4ks,1 2,0,1 2,0,1 0,4ks,1>0{M} 0,0,2,1>0M 0,0,2,1>0M 2,1,1,0>0M",
        ),
        // Tokens: Redisson's without a TTL, leasehold's, and one that is not a number.
        (
            "SET token 5; SET token2 7 PX 9ks",
            "1,0,0 1,6,8 2,0,1 2,0,1 3,0,0 0,0,0,0 0,0,0,0 0,0,0,0",
        ),
        ("SET token 5; SET token2 x", "1,0,0 !INT 2,0,1 2,0,1 3,0,0 0,0,0,0 0,0,0,0 0,0,0,0"),
        // Another kind of lock, other types.
        (
            "HSET L mode read $B 1; PEXPIRE L 2ks",
            "4,0,1 4,0,1 2,0,1 2,0,1 4,0,1 0,0,0,0 0,0,0,0 0,0,0,0",
        ),
        (
            "HSET M mode write $A:write 1; PEXPIRE M 2ks",
            "4,0,2 4,0,2 2,0,1 2,0,1 4,0,2 0,0,0,0 0,0,0,0 0,0,0,0",
        ),
        ("SET L x", "4,0,1 4,0,1 4,0,1 4,0,1 4,0,1 !TYPE,0,0,0 !TYPE,0,0,0 0,0,!TYPE,0"),
        (
            "HSET L $A 1; PEXPIRE L 2ks; RPUSH M x",
            "4,0,2 4,0,2 4,0,2 4,0,2 4,0,2 2,1,!TYPE,0>0 1,0,!TYPE,0 !TYPE,0,0,0",
        ),
        (
            "HSET L $B 1; PEXPIRE L 2ks; SET M x",
            "0,2ks,1 0,2ks,1 2,0,1 2,0,1 0,2ks,1 0,0,!TYPE,0 0,0,!TYPE,0 !TYPE,0,0,0",
        ),
    ],
};

pub(super) const REDLOCK: Primitive = Primitive {
    calls: &[
        "redlock_acquire L token node | $A 2ks 0 9ks 50 run 0",
        "redlock_acquire L token node | $A 2ks 0 -1 50 run 0",
        "redlock_acquire L token node | $A 3ks 1 -1 0 run 0",
        "redlock_acquire L token node | $A 2ks 0 -1 50 run 1",
        "redlock_renew L node | $A 3ks run",
        "redlock_renew L node | $A 0 run",
        "redlock_token L token node | $A 70 9ks run",
        "redlock_look node | run run:1",
        "redlock_admit node | run run:0 90",
    ],
    states: &[
        // No vote: a new master, one restarted with its data, and one whose quarantine was begun by
        // this client, by another process, or before a restart.
        ("", "5,0 5,0 5,0 5,0 none none 0 0,,run:1 0"),
        (
            "HSET node boot old floor 60 max 80; HSET L $A 1; PEXPIRE L 2ks",
            "5,0 5,0 5,0 5,0 none none 0 0,80,run:1 0",
        ),
        ("HSET node pending run:0", "5,0 5,0 5,0 5,0 none none 0 0,,run:0 1"),
        (
            "HSET node boot old floor 60 max 99 pending run:0",
            "5,0 5,0 5,0 5,0 none none 0 0,99,run:0 1",
        ),
        ("HSET node pending run:2", "5,0 5,0 5,0 5,0 none none 0 0,,run:2 0"),
        ("HSET node max 80 pending old:0", "5,0 5,0 5,0 5,0 none none 0 0,80,run:1 0"),
        // A fenced value, and a lock without a TTL.
        ("HSET node boot run; HSET L =token 7 value v", "!TYPE !TYPE 2,0 !TYPE 0 0 0 1,, 0"),
        ("HSET node boot run; HSET L $B 1", "0,-1,B 0,-1,B 2,0 0,-1,B 0 0 0 1,, 0"),
        // Hashes of an application.
        ("HSET node boot run; HSET L alice 1", "!TYPE !TYPE 2,0 !TYPE 0 0 0 1,, 0"),
        ("HSET node boot run; HSET L $B 1 alice 1", "!TYPE !TYPE 2,0 !TYPE 0 0 0 1,, 0"),
        ("HSET node boot run; HSET L $B many", "!TYPE !TYPE 2,0 !TYPE 0 0 0 1,, 0"),
        // Free: the token is the proposal, or above the last of this name, above that of every
        // name, above the floor.
        ("HSET node boot run", "1,50 1,0 2,0 3,0 0 0 0 1,, 0"),
        ("HSET node boot run max 80; SET token 55", "1,56 1,0 2,0 3,0 0 0 0 1,80, 0"),
        ("HSET node boot run max 80", "1,81 1,0 2,0 3,0 0 0 0 1,80, 0"),
        ("HSET node boot run floor 60 max 60; SET token 20", "1,61 1,0 2,0 3,0 0 0 0 1,60, 0"),
        // Held by A, by another, by Redisson.
        (
            "HSET node boot run; HSET L $A 1; PEXPIRE L 2ks; SET token 50",
            "1,51 1,0 1,0 3,0 1 1 1 1,, 0",
        ),
        (
            "HSET node boot run; HSET L $A 2; PEXPIRE L 4ks; SET token 80",
            "1,81 1,0 1,0 3,0 1 1 1 1,, 0",
        ),
        (
            "HSET node boot run; HSET L $B 1; PEXPIRE L 2ks",
            "0,2ks,B 0,2ks,B 2,0 0,2ks,B 0 0 0 1,, 0",
        ),
        (
            "HSET node boot run; HSET L $J 3; PEXPIRE L 2ks",
            "0,2ks,J 0,2ks,J 2,0 0,2ks,J 0 0 0 1,, 0",
        ),
        // Another kind of lock, other types, a counter that is not a number.
        (
            "HSET node boot run; HSET L mode write $B:write 1; PEXPIRE L 2ks",
            "!TYPE !TYPE 2,0 !TYPE 0 0 0 1,, 0",
        ),
        ("HSET node boot run; SET L x", "!TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE 1,, 0"),
        (
            "HSET node boot run; HSET L $A 1; PEXPIRE L 2ks; SET token x",
            "!INT 1,0 1,0 3,0 1 1 !INT 1,, 0",
        ),
        ("SET node x", "!TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE"),
    ],
};

pub(super) const READ_WRITE: Primitive = Primitive {
    calls: &[
        "read_acquire L marker | $A 2ks 0 tag 0",
        "read_acquire L marker | $A 2ks 1 tag 0",
        "read_acquire L marker | $A 1ks 2 tag 0",
        "read_acquire L marker | $A 2ks 0 tag 1",
        "write_acquire L token marker | $A 2ks 0 9ks 0 0 0",
        "write_acquire L token marker | $A 2ks 0 -1 3ks 0 0",
        "write_acquire L token marker | $A 3ks 1 -1 0 0 0",
        "write_acquire L token marker | $A 2ks 0 -1 3ks 0 1",
        "rw_release L marker | $A 0 0 channel tag",
        "rw_release L marker | $A 0 1 channel tag",
        "rw_release L marker | $A 0 2 channel tag",
        "rw_release L marker | $A 1 0 channel tag",
        "rw_release L marker | $A 1 1 channel tag",
        "rw_renew L | $A 3ks tag",
        "rw_renew L | $A 0 tag",
        "rw_force_unlock L | channel tag",
    ],
    states: &[
        ("", "1,0 2,0 2,0 3,0 1,1 1,0 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 0"),
        ("SET marker $A PX 3ks", "0,3ks 2,0 2,0 0,3ks 1,1 1,0 2,0 3,0 0,0>1 0,0 0,0 0,0 0,0 0 0 0"),
        ("SET marker $B PX 3ks", "0,3ks 2,0 2,0 0,3ks 1,1 1,0 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 0"),
        // A reads.
        (
            "HSET L mode read $A 1; PEXPIRE L 2ks; SET $A.1 1 PX 2ks",
            "1,0 1,0 1,0 1,0 0,2ks 0,1ks 2,0 3,0 2,1>0 1,0 1,0 0,0 0,0 1 1 1>0",
        ),
        (
            "HSET L mode read $A 2; PEXPIRE L 2ks; SET $A.1 1 PX 2ks; SET $A.2 1 PX 2ks",
            "1,0 1,0 1,0 1,0 0,2ks 0,1ks 2,0 3,0 2,1>0 1,0 1,0 0,0 0,0 1 1 1>0",
        ),
        (
            "HSET L mode read $A 3; PEXPIRE L 2ks; SET $A.1 1 PX 2ks; SET $A.2 1 PX 2ks; SET $A.3 1 PX 2ks",
            "1,0 1,0 1,0 1,0 0,2ks 0,1ks 2,0 3,0 2,1>0 1,0 1,0 0,0 0,0 1 1 1>0",
        ),
        (
            "HSET L mode read $A 1; PEXPIRE L 2ks; SET $A.1 1 PX 2ks; SET marker $B PX 3ks",
            "1,0 1,0 1,0 1,0 0,2ks 0,1ks 2,0 3,0 2,1>0 1,0 1,0 0,0 0,0 1 1 1>0",
        ),
        // An inner level has the longer lease, even if the lease of the outer one has ended.
        (
            "HSET L mode read $A 2; PEXPIRE L 5ks; SET $A.1 1 PX 2ks; SET $A.2 1 PX 5ks",
            "1,0 1,0 1,0 1,0 0,5ks 0,1ks 2,0 3,0 2,1>0 1,0 1,0 0,0 0,0 1 1 1>0",
        ),
        (
            "HSET L mode read $A 2; PEXPIRE L 5ks; SET $A.2 1 PX 5ks",
            "1,0 1,0 1,0 1,0 0,5ks 0,1ks 2,0 3,0 2,1>0 1,0 1,0 0,0 0,0 1 1 1>0",
        ),
        // Others read: without A, together with A, Redisson; leases of A or of the others may have
        // ended.
        (
            "HSET L mode read $B 1; PEXPIRE L 4ks; SET $B.1 1 PX 4ks",
            "1,0 2,0 2,0 3,0 0,4ks 0,1ks 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 1>0",
        ),
        (
            "HSET L mode read $J 1; PEXPIRE L 2ks; SET $J.1 1 PX 2ks",
            "1,0 2,0 2,0 3,0 0,2ks 0,1ks 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 1>0",
        ),
        (
            "HSET L mode read $A 1 $B 2; PEXPIRE L 4ks; SET $A.1 1 PX 2ks; SET $B.1 1 PX 1ks; SET $B.2 1 PX 4ks",
            "1,0 1,0 1,0 1,0 0,4ks 0,1ks 2,0 3,0 1,0 1,0 1,0 0,0 0,0 1 1 1>0",
        ),
        (
            "HSET L mode read $A 1 $J 1; PEXPIRE L 5ks; SET $A.1 1 PX 5ks; SET $J.1 1 PX 2ks",
            "1,0 1,0 1,0 1,0 0,5ks 0,1ks 2,0 3,0 1,0 1,0 1,0 0,0 0,0 2ks 2ks 1>0",
        ),
        (
            "HSET L mode read $A 1 $B 1; PEXPIRE L 4ks; SET $B.1 1 PX 4ks",
            "1,0 1,0 1,0 1,0 0,4ks 0,1ks 2,0 3,0 1,0 1,0 1,0 0,0 0,0 1 1 1>0",
        ),
        (
            "HSET L mode read $A 1 $B 1; PEXPIRE L 4ks; SET $A.1 1 PX 4ks",
            "1,0 1,0 1,0 1,0 0,4ks 0,1ks 2,0 3,0 2,1>0 1,0 1,0 0,0 0,0 1 1 1>0",
        ),
        // Redisson's renewal has set the TTL of the whole lock, below that of A's level.
        (
            "HSET L mode read $A 1 $J 1; PEXPIRE L 1ks; SET $A.1 1 PX 5ks; SET $J.1 1 PX 1ks",
            "1,0 1,0 1,0 1,0 0,1ks 0,1ks 2,0 3,0 1,0 1,0 1,0 0,0 0,0 1ks 1ks 1>0",
        ),
        // A writes; only Redisson or a downgrade of unknown outcome stores its reads here.
        (
            "HSET L mode write $A:write 1; PEXPIRE L 2ks",
            "0,2ks 1,0 1,0 0,2ks 1,1 1,0 1,0 3,0 2,1>1>00 2,1>1>00 2,1>1>00 1,0 1,0 1 1 1>1>00",
        ),
        (
            "HSET L mode write $A:write 2; PEXPIRE L 2ks",
            "0,2ks 1,0 1,0 0,2ks 1,1 1,0 1,0 3,0 2,1>1>00 2,1>1>00 2,1>1>00 1,0 1,0 1 1 1>1>00",
        ),
        (
            "HSET L mode write $A:write 3; PEXPIRE L 2ks",
            "0,2ks 1,0 1,0 0,2ks 1,1 1,0 1,0 3,0 2,1>1>00 2,1>1>00 2,1>1>00 1,0 1,0 1 1 1>1>00",
        ),
        (
            "HSET L mode write $A:write 1; PEXPIRE L 2ks; SET marker $B PX 3ks",
            "0,2ks 1,0 1,0 0,2ks 1,1 1,0 1,0 3,0 2,1>1>00 2,1>1>00 2,1>1>00 1,0 1,0 1 1 1>1>00",
        ),
        (
            "HSET L mode write $A:write 1 $A 1; PEXPIRE L 2ks; SET $A.1 1 PX 2ks",
            "1,0 1,0 1,0 1,0 1,1 1,0 1,0 3,0 2,1>1>00 2,1>1>00 2,1>1>00 1,0 1,0 1 1 1>1>00",
        ),
        // Others write.
        (
            "HSET L mode write $B:write 1; PEXPIRE L 2ks",
            "0,2ks 2,0 2,0 0,2ks 0,2ks 0,2ks 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 1>1>00",
        ),
        (
            "HSET L mode write $J:write 1 $J 1; PEXPIRE L 2ks; SET $J.1 1 PX 2ks",
            "0,2ks 2,0 2,0 0,2ks 0,2ks 0,2ks 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 1>1>00",
        ),
        (
            "HSET L mode read $B 1; PEXPIRE L 2ks; SET $B.1 1 PX 2ks; SET marker $A PX 3ks",
            "0,3ks 2,0 2,0 0,3ks 0,2ks 0,1ks 2,0 3,0 0,0>1 0,0 0,0 0,0 0,0 0 0 1>0",
        ),
        // Another kind of lock, other types, a counter that is not a number.
        (
            "HSET L $B 1; PEXPIRE L 2ks",
            "!TYPE 2,0 2,0 !TYPE !TYPE !TYPE 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 !TYPE",
        ),
        // Hashes of an application, without a TTL and with one; a holder with more counts than any
        // has; such a field beside A's, put there later.
        (
            "HSET L mode read alice 1",
            "!TYPE 2,0 2,0 !TYPE !TYPE !TYPE 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 !TYPE",
        ),
        (
            "HSET L mode write alice 1",
            "!TYPE 2,0 2,0 !TYPE !TYPE !TYPE 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 !TYPE",
        ),
        (
            "HSET L mode dark $B 1",
            "!TYPE 2,0 2,0 !TYPE !TYPE !TYPE 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 !TYPE",
        ),
        (
            "HSET L mode read alice 1; PEXPIRE L 2ks",
            "!TYPE 2,0 2,0 !TYPE 0,2ks 0,1ks 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 !TYPE",
        ),
        (
            "HSET L mode read $B 300000; PEXPIRE L 2ks",
            "!TYPE 2,0 2,0 !TYPE 0,2ks 0,1ks 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 !TYPE",
        ),
        (
            "HSET L mode read $A 1 alice 300000; PEXPIRE L 2ks; SET $A.1 1 PX 2ks",
            "1,0 1,0 1,0 1,0 0,2ks 0,1ks 2,0 3,0 1,0 1,0 1,0 0,0 0,0 1 1 !TYPE",
        ),
        (
            "SET L x",
            "!TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE 3,0 !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE",
        ),
        (
            "RPUSH L x",
            "!TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE 3,0 !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE",
        ),
        ("RPUSH marker x", "1,0 2,0 2,0 3,0 1,1 1,0 2,0 3,0 !TYPE 0,0 0,0 0,0 0,0 0 0 0"),
        ("SET token x", "1,0 2,0 2,0 3,0 !INT 1,0 2,0 3,0 0,0 0,0 0,0 0,0 0,0 0 0 0"),
    ],
};

pub(super) const PERMITS: Primitive = Primitive {
    calls: &[
        "permit_acquire L leases | %P 1 2ks channel 0",
        "permit_acquire L leases | %R 2 2ks channel 0",
        "permit_acquire L leases | %P 1 2ks channel 1",
        "permit_release L leases | %P 1 channel",
        "permit_release L leases | %R 2 channel",
        "permit_renew leases | %P 3ks 1",
        "permit_renew leases | %R 1ks 2",
        "permit_renew leases | %P 0 1",
        "permit_count L leases | channel",
        "permit_delete L leases mark | 1ks channel 0",
        "permit_delete L leases mark | 1ks channel 1",
    ],
    states: &[
        ("", "4,0 4,0 3,0 0,0 0,0 0 0 0 0,0 0,0 3,0"),
        ("SET L 1", "1,0 4,1 3,0 0,0 0,0 0 0 0 1,0 1,0>1 3,0"),
        ("SET L 2", "1,0 1,0 3,0 0,0 0,0 0 0 0 2,0 1,0>1 3,0"),
        ("SET L 2 PX 6ks", "1,0 1,0 3,0 0,0 0,0 0 0 0 2,0 1,0>1 3,0"),
        // A negative number: permits were removed for good.
        ("SET L -1; ZADD leases @2ks %B1 @2ks %B2", "0,2ks 4,1 3,0 0,0 0,0 0 0 0 -1,2 1,0>1 3,0"),
        // Held by A.
        ("SET L 1; ZADD leases @2ks %P1", "1,0 0,2ks 1,0 2,1>2 0,0 1 0 1 1,1 1,0>1 3,0"),
        ("SET L 0; ZADD leases @2ks %R1 @2ks %R2", "0,2ks 1,0 3,0 0,0 2,1>2 0 1 0 0,2 1,0>1 3,0"),
        (
            "SET L 0; ZADD leases @2ks %P1 @2ks %R1 @2ks %R2",
            "1,0 1,0 1,0 2,1>1 2,1>2 1 1 1 0,3 1,0>1 3,0",
        ),
        // A's permits whose leases have ended, or one of which Redisson returned.
        ("SET L 0; ZADD leases 1 %P1", "1,0 4,1>1 1,0 0,0>1 0,0 0 0 0 1,0>1 1,0>1 3,0"),
        ("SET L 0; ZADD leases 1 %R1 1 %R2", "1,0>1 1,0 3,0 0,0 0,0>2 0 0 0 2,0>2 1,0>1 3,0"),
        ("SET L 1; ZADD leases @2ks %R1", "1,0 1,0 3,0 0,0 0,0>2 0 0 0 1,1 1,0>1 3,0"),
        // Permits of others: with a live lease, with an ended one, Redisson's without a lease.
        ("SET L 0; ZADD leases @2ks %B1 @4ks %B2", "0,2ks 0,2ks 3,0 0,0 0,0 0 0 0 0,2 1,0>1 3,0"),
        ("SET L 0; ZADD leases 1 %B1 @4ks %B2", "1,0 0,4ks>1 3,0 0,0 0,0 0 0 0 1,1>1 1,0>1 3,0"),
        ("SET L 0; ZADD leases 1 %B1 1 %B2 1 %B3", "1,0>2 1,0>1 3,0 0,0 0,0 0 0 0 3,0>3 1,0>1 3,0"),
        ("SET L 1; ZADD leases 922337203685477 %J1", "1,0 0,-1 3,0 0,0 0,0 0 0 0 1,1 1,0>1 3,0"),
        (
            "SET L 0; ZADD leases 1 %B1 922337203685477 %J1",
            "1,0 0,-1>1 3,0 0,0 0,0 0 0 0 1,1>1 1,0>1 3,0",
        ),
        // The replies to earlier requests.
        ("SET L 2; SET mark 1:0 PX 1ks", "1,0 1,0 3,0 0,0 0,0 0 0 0 2,0 1,0 1,0"),
        // Without its number of permits; other types, and numbers that Redis does not accept.
        ("ZADD leases @2ks %P1", "1,0 4,0 1,0 2,1>1 0,0 1 0 1 0,0 1,0>1 3,0"),
        (
            "RPUSH L x; ZADD leases 1 %B1 @2ks %P1",
            "1,0 !TYPE 1,0 !TYPE !TYPE 1 0 1 !TYPE !TYPE 3,0",
        ),
        ("SET L abc; ZADD leases 1 %B1 @2ks %P1", "1,0 !INT 1,0 !INT !INT 1 0 1 !INT !INT 3,0"),
        ("SET L 1e3; ZADD leases 1 %B1 @2ks %P1", "1,0 !INT 1,0 !INT !INT 1 0 1 !INT !INT 3,0"),
        (
            "SET L 2; SET leases x",
            "!TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE 3,0",
        ),
        ("SET L 2; RPUSH mark x", "1,0 1,0 3,0 0,0 0,0 0 0 0 2,0 !TYPE !TYPE"),
    ],
};

pub(super) const COUNTS: Primitive = Primitive {
    calls: &[
        "count_acquire L mark | 1 1ks 0",
        "count_acquire L mark | 2 1ks 0",
        "count_acquire L mark | 1 1ks 1",
        "count_release L mark | 1 1ks channel 1",
        "count_release L mark | 2 1ks channel 0",
        "count_set L done | 3 1ks channel 3 0",
        "count_set L done | 3 1ks channel 3 1",
        "count_add L done | 2 1ks channel 0",
        "count_add L done | -2 1ks channel 0",
        "count_add L done | 2147483647 1ks channel 0",
        "count_add L done | 2 1ks channel 1",
        "permit_delete L leases done | 1ks channel 0",
    ],
    states: &[
        ("", "4,0 4,0 3,0 2,1>1 0,0 1,3>3 3,0 1,2>2 1,-2 1,2147483647>2147483647 3,0 0,0"),
        ("SET L 0", "0,-1 0,-1 3,0 2,1>1 0,0 0,0 3,0 1,2>2 1,-2 1,2147483647>2147483647 3,0 1,0>1"),
        ("SET L 1", "1,0 0,-1 3,0 2,1>2 0,0 0,1 3,0 1,3>3 1,-1 5,1 3,0 1,0>1"),
        ("SET L 3", "1,0 1,0 3,0 2,1>4 0,0 0,3 3,0 1,5>5 1,1 5,3 3,0 1,0>1"),
        ("SET L -2", "0,-1 0,-1 3,0 2,0 0,0 0,-2 3,0 1,0 1,-4 1,2147483645>2147483645 3,0 1,0>1"),
        // No message can contain more than 2^31 - 1.
        (
            "SET L 2147483647",
            "1,0 1,0 3,0 2,1>2147483647 0,0 0,2147483647 3,0 5,2147483647 1,2147483645 5,2147483647 3,0 1,0>1",
        ),
        // An acquisition that has taken permits, and one that may not take any more.
        (
            "SET L 2; SET mark taken PX 1ks",
            "1,0 1,0 1,0 2,1>3 2,1>4 0,2 3,0 1,4>4 1,0 5,2 3,0 1,0>1",
        ),
        ("SET L 2; SET mark back PX 1ks", "2,0 2,0 2,0 2,0 0,0 0,2 3,0 1,4>4 1,0 5,2 3,0 1,0>1"),
        // Requests that were answered before.
        ("SET L 2; SET done 1:7 PX 1ks", "1,0 1,0 3,0 2,1>3 0,0 1,7 1,7 1,7 1,7 1,7 1,7 1,7"),
        (
            "SET L 2; SET done 5:-7 PX 1ks",
            "1,0 1,0 3,0 2,1>3 0,0 5,-7 5,-7 5,-7 5,-7 5,-7 5,-7 5,-7",
        ),
        // Other types, and numbers that Redis does not accept.
        ("RPUSH L x", "!TYPE !TYPE 3,0 !TYPE 0,0 !TYPE 3,0 !TYPE !TYPE !TYPE 3,0 !TYPE"),
        ("SET L abc", "!INT !INT 3,0 !INT 0,0 !INT 3,0 !INT !INT !INT 3,0 !INT"),
        ("SET L 1e3", "!INT !INT 3,0 !INT 0,0 !INT 3,0 !INT !INT !INT 3,0 !INT"),
        ("SET L 2; RPUSH mark x", "!TYPE !TYPE !TYPE !TYPE !TYPE 0,2 3,0 1,4>4 1,0 5,2 3,0 1,0>1"),
        (
            "SET L 2; RPUSH done x",
            "1,0 1,0 3,0 2,1>3 0,0 !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE",
        ),
    ],
};

pub(super) const LATCH: Primitive = Primitive {
    calls: &[
        "count_set L mark | 2 1ks channel 1 0",
        "count_set L mark | 2 1ks channel 1 1",
        "latch_count_down L mark opened | 1ks channel 0",
        "latch_count_down L mark opened | 1ks channel 1",
        "latch_delete L mark opened | 1ks channel 0",
        "latch_delete L mark opened | 1ks channel 1",
        "latch_look L opened |",
    ],
    states: &[
        ("", "1,2>1 3,0 0,0 3,0 0,0 3,0 0,0"),
        ("SET L 1", "0,1 3,0 1,0>0 3,0 1,0>1>0 3,0 1,0"),
        ("SET L 2", "0,2 3,0 1,1 3,0 1,0>1>0 3,0 2,0"),
        ("SET L 3", "0,3 3,0 1,2 3,0 1,0>1>0 3,0 3,0"),
        // A count of 0 by Redisson, and one that should not exist.
        ("SET L 0", "0,0 3,0 0,0 3,0 1,0>1>0 3,0 0,0"),
        ("SET L -1", "0,-1 3,0 0,0 3,0 1,0>1>0 3,0 -1,0"),
        // Answered earlier, and set again since.
        ("SET L 2; SET mark 1:0 PX 1ks", "1,0 1,0 1,0 1,0 1,0 1,0 2,0"),
        ("SET mark 0:0 PX 1ks", "0,0 0,0 0,0 0,0 0,0 0,0 0,0"),
        // Opened recently, and set again.
        ("SET L 1; SET opened 7 PX 1ks", "0,1 3,0 1,0>0 3,0 1,0>1>0 3,0 1,7"),
        // Other types, and numbers that Redis does not accept.
        ("RPUSH L x", "!TYPE 3,0 !TYPE 3,0 !TYPE 3,0 !TYPE"),
        ("SET L abc", "!INT 3,0 !INT 3,0 !INT 3,0 !INT"),
        ("SET L 1e3", "!INT 3,0 !INT 3,0 !INT 3,0 !INT"),
        ("SET L 2; RPUSH mark x", "!TYPE !TYPE !TYPE !TYPE !TYPE !TYPE 2,0"),
    ],
};

/// At most 3 permits in 2000 s.
pub(super) const RATE: Primitive = Primitive {
    calls: &[
        "rate_acquire N spare uses | %P 1 0",
        "rate_acquire N spare uses | %P 2 0",
        "rate_acquire N spare uses | %R 2 0",
        "rate_acquire N spare uses | %P 1 1",
        "rate_give_back N spare uses | %P 2",
        "rate_set N spare uses mark | 5 3ks 0 1ks 0",
        "rate_set N spare uses mark | 5 3ks 1 1ks 0",
        "rate_set N spare uses mark | 5 3ks 1 1ks 1",
        "rate_delete N spare uses mark | 1ks 0",
        "rate_look N spare uses |",
    ],
    states: &[
        ("", "4,0 4,0 4,0 4,0 0,0 1,0 1,0 3,0 0,0 0,0,0,0"),
        ("HSET N rate 3 interval 2ks type 0", "1,0 1,0 1,0 3,0 0,0 0,0 1,0 3,0 1,0 1,3,2ks,3"),
        ("HSET N rate 1 interval 2ks type 0", "1,0 4,1 4,1 3,0 0,0 0,0 1,0 3,0 1,0 1,1,2ks,1"),
        // An acquisition within the interval.
        (
            "HSET N rate 3 interval 2ks type 0; SET spare 1; ZADD uses @-1ks &P2",
            "1,0 1,0 0,1ks 3,0 2,0 0,0 1,0 3,0 1,0 1,3,2ks,1",
        ),
        // Its interval is over, and nobody has swept it.
        (
            "HSET N rate 3 interval 2ks type 0; SET spare 1; ZADD uses @-3ks &P2",
            "1,0 1,0 1,0 3,0 2,0 0,0 1,0 3,0 1,0 1,3,2ks,3",
        ),
        // Redisson's.
        (
            "HSET N rate 3 interval 2ks type 0; SET spare 0; ZADD uses @-1ks &J2 @-3ks &J1",
            "1,0 0,1ks 0,1ks 3,0 0,0 0,0 1,0 3,0 1,0 1,3,2ks,1",
        ),
        // The longest wait is for the second of three.
        (
            "HSET N rate 6 interval 9ks type 0; SET spare 0; ZADD uses @-5ks &J1 @-4ks &A1 @-1ks &J4",
            "0,4ks 0,5ks 0,5ks 3,0 0,0 0,0 1,0 3,0 1,0 1,6,9ks,0",
        ),
        // Redisson has freed them before their interval was over.
        (
            "HSET N rate 3 interval 2ks type 0; SET spare 3; ZADD uses @-3ks &J1 @-1ks &P2",
            "1,0 1,0 0,1ks 3,0 2,0 0,0 1,0 3,0 1,0 1,3,2ks,1",
        ),
        // Redisson has taken one permit twice.
        (
            "HSET N rate 3 interval 2ks type 0; SET spare 1; ZADD uses @-3ks &J1",
            "1,0 1,0 1,0 3,0 0,0 0,0 1,0 3,0 1,0 1,3,2ks,3",
        ),
        // The number of free permits is missing.
        (
            "HSET N rate 3 interval 2ks type 0; ZADD uses @-1ks &J2",
            "1,0 0,1ks 0,1ks 3,0 0,0 0,0 1,0 3,0 1,0 1,3,2ks,1",
        ),
        // It ends a while after its last use.
        (
            "HSET N rate 3 interval 2ks type 0 keepAliveTime 5ks; PEXPIRE N 4ks; SET spare 1; ZADD uses @-1ks &J2",
            "1,0 0,1ks 0,1ks 3,0 0,0 0,0 1,0 3,0 1,0 1,3,2ks,1",
        ),
        // Each client has a rate of its own.
        ("HSET N rate 3 interval 2ks type 1", "5,0 5,0 5,0 5,0 0,0 0,0 1,0 3,0 1,0 5,0,0,0"),
        // Requests that were answered before.
        (
            "HSET N rate 3 interval 2ks type 0; SET mark 1:0 PX 1ks",
            "1,0 1,0 1,0 3,0 0,0 1,0 1,0 1,0 1,0 1,3,2ks,3",
        ),
        // Other types, and numbers that Redis does not accept.
        ("HSET N a 1", "!TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE 3,0 !TYPE !TYPE"),
        (
            "HSET N rate 0 interval 2ks type 0",
            "!TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE 3,0 !TYPE !TYPE",
        ),
        ("SET N 3", "!TYPE !TYPE !TYPE !TYPE !TYPE !TYPE !TYPE 3,0 !TYPE !TYPE"),
        (
            "HSET N rate 3 interval 2ks type 0; RPUSH spare x",
            "!TYPE !TYPE !TYPE 3,0 !TYPE 0,0 !TYPE 3,0 !TYPE !TYPE",
        ),
        (
            "HSET N rate 3 interval 2ks type 0; SET spare 1e3",
            "!INT !INT !INT 3,0 !INT 0,0 !INT 3,0 !INT !INT",
        ),
        (
            "HSET N rate 3 interval 2ks type 0; SET uses x",
            "!TYPE !TYPE !TYPE !TYPE !TYPE 0,0 !TYPE 3,0 !TYPE !TYPE",
        ),
        (
            "HSET N rate 3 interval 2ks type 0; SET spare 2; ZADD uses @-3ks xy",
            "!TYPE !TYPE !TYPE 3,0 0,0 0,0 1,0 3,0 1,0 !TYPE",
        ),
    ],
};

/// Two attempts at the occurrence 1.
pub(super) const JOB: Primitive = Primitive {
    calls: &[
        "job_look L record last | 1 2",
        "job_begin L record last | 1 2 $A me 3ks 9ks",
        "job_end L record last | 1 -1 $A me 3ks 9ks channel",
        "job_end L record last | 1 1ks $A me 3ks 9ks channel",
        "job_forget record last | 1 3ks channel",
    ],
    states: &[
        ("", "0,0,, 8,0,, 0,0 0,0 0"),
        ("HSET L $A 1; PEXPIRE L 2ks", "7,2ks,A, 1,1,, 1,0>1 1,0>1 0"),
        // It has begun.
        (
            "HSET L $A 1; PEXPIRE L 2ks; HSET record attempts 1 holder $A by me; HSET last holder $A by me occurrence 1",
            "7,2ks,me,1 1,1,, 1,0>1 1,0>1 1>1",
        ),
        // Another occurrence runs.
        (
            "HSET L $B 1; PEXPIRE L 2ks; HSET record attempts 1 holder $A; HSET last holder $B by you occurrence 2",
            "7,2ks,you,2 8,0,, 0,0 0,0 1>1",
        ),
        // It was tried too often.
        ("HSET record attempts 2", "6,2,, 8,0,, 0,0 0,0 1>1"),
        ("HSET L $A 1; PEXPIRE L 2ks; HSET record attempts 2", "7,2ks,A, 6,2,, 1,0>1 1,0>1 1>1"),
        // It must not be tried yet, or may again.
        ("HSET record attempts 1 not_before @2ks", "5,2ks,, 8,0,, 0,0 0,0 1>1"),
        (
            "HSET L $A 1; PEXPIRE L 2ks; HSET record attempts 1 not_before @-2ks",
            "7,2ks,A, 1,2,, 1,0>1 1,0>1 1>1",
        ),
        // It was done: by this holder in a transaction elsewhere, by another, by one who is unknown.
        (
            "HSET L $A 1; PEXPIRE L 2ks; HSET record attempts 1 holder $A by me at 5",
            "2,5,me, 2,5,me, 1,0 1,0>1 1>1",
        ),
        ("HSET record attempts 1 holder $B by you at 5", "2,5,you, 8,0,, 0,0 0,0 1>1"),
        ("HSET record at 5", "2,5,, 8,0,, 0,0 0,0 1>1"),
        // It, or a newer one, was done, and it was forgotten or not.
        ("HSET last newest 1", "4,0,1, 8,0,, 0,0 0,0 1>1"),
        ("HSET last newest 10", "4,0,10, 8,0,, 0,0 0,0 0"),
        ("HSET L $A 1; PEXPIRE L 2ks; HSET last newest 2", "4,0,2, 4,0,2, 1,0>1 1,0>1 0"),
        ("HSET last newest 0", "0,0,, 8,0,, 0,0 0,0 0"),
        (
            "HSET L $A 1; PEXPIRE L 2ks; HSET last newest 2; HSET record again 1",
            "7,2ks,A, 1,1,, 1,0>1 1,0>1 0",
        ),
        // Other types.
        ("RPUSH record x", "!TYPE 8,0,, !TYPE !TYPE !TYPE"),
        ("HSET L $A 1; PEXPIRE L 2ks; RPUSH last x", "!TYPE !TYPE !TYPE !TYPE !TYPE"),
        ("SET L x", "!TYPE !TYPE !TYPE !TYPE 0"),
    ],
};
