//! The states of a name, and the result of each function in each of them.

/// The name of each state, and the statements that create it.
pub(super) const STATES: &[(&str, &str)] = &[
    ("nothing", ""),
    // Plain locks.
    ("mine", "$acquire('k', 'me', 60000, 0, 0)"),
    ("mine twice", "$acquire('k', 'me', 60000, 0, 0); $acquire('k', 'me', 60000, 1, 0)"),
    ("mine with tokens", "$acquire('k', 'me', 60000, 0, 0, 7)"),
    ("mine, waited for", "$acquire('k', 'me', 60000, 0, 0); $acquire('k', 'third', 60000, 0, 1)"),
    (
        "mine, waited for since long",
        "$acquire('k', 'me', 60000, 0, 0); $acquire('k', 'third', 60000, 0, 1); \
         UPDATE leasehold.lock SET wanted = now() - interval '2 s'",
    ),
    ("mine, ended", "$acquire('k', 'me', 60000, 0, 0); $end"),
    ("another's", "$acquire('k', 'other', 60000, 0, 0)"),
    ("another's, I wait", "$acquire('k', 'other', 60000, 0, 0); $acquire('k', 'me', 60000, 0, 1)"),
    (
        "another's, waited for",
        "$acquire('k', 'other', 60000, 0, 0); $acquire('k', 'third', 60000, 0, 1)",
    ),
    ("another's, ended", "$acquire('k', 'other', 60000, 0, 0); $end"),
    ("at rest", "$acquire('k', 'other', 60000, 0, 0); $release('k', 'other', 0, '')"),
    (
        "at rest, waited for",
        "$acquire('k', 'other', 60000, 0, 0); $acquire('k', 'third', 60000, 0, 1); \
         $release('k', 'other', 0, 'w')",
    ),
    // Queues.
    (
        "mine, another queues",
        "$acquire('k', 'me', 60000, 0, 0); $fair_acquire('k', 'third', 9, 0, 60000, 0, 'c')",
    ),
    (
        "another's, I queue",
        "$acquire('k', 'other', 60000, 0, 0); $fair_acquire('k', 'me', 9, 0, 60000, 0, 'c')",
    ),
    (
        "free, I am the first",
        "$acquire('k', 'other', 60000, 0, 0); $fair_acquire('k', 'me', 9, 0, 60000, 0, 'c'); \
         $fair_acquire('k', 'third', 9, 0, 60000, 0, 'c'); $release('k', 'other', 0, '')",
    ),
    (
        "free, another is the first",
        "$acquire('k', 'other', 60000, 0, 0); $fair_acquire('k', 'third', 9, 0, 60000, 0, 'c'); \
         $fair_acquire('k', 'me', 9, 0, 60000, 0, 'c'); $release('k', 'other', 0, '')",
    ),
    (
        "free, the first is dead",
        "$acquire('k', 'other', 60000, 0, 0); $fair_acquire('k', 'third', 9, 0, 60000, 0, 'c'); \
         $fair_acquire('k', 'me', 9, 0, 60000, 0, 'c'); $release('k', 'other', 0, ''); $dead",
    ),
    (
        "free, all are dead",
        "$acquire('k', 'other', 60000, 0, 0); $fair_acquire('k', 'third', 9, 0, 60000, 0, 'c'); \
         $fair_acquire('k', 'me', 9, 0, 60000, 0, 'c'); $release('k', 'other', 0, ''); $dead; \
         UPDATE leasehold.waiter SET deadline = now() - interval '1 s'",
    ),
    (
        "free, another queues",
        "$acquire('k', 'other', 60000, 0, 0); $fair_acquire('k', 'third', 9, 0, 60000, 0, 'c'); \
         $release('k', 'other', 0, '')",
    ),
    // Read-write locks.
    ("I write", "$write_acquire('k', 'me', 60000, 0, 0)"),
    (
        "I write twice",
        "$write_acquire('k', 'me', 60000, 0, 0); $write_acquire('k', 'me', 60000, 1, 0)",
    ),
    ("I wrote, it has ended", "$write_acquire('k', 'me', 60000, 0, 0); $end"),
    ("another writes", "$write_acquire('k', 'other', 60000, 0, 0)"),
    ("another wrote, it has ended", "$write_acquire('k', 'other', 60000, 0, 0); $end"),
    ("I read", "$read_acquire('k', 'me', 60000, 0, 0)"),
    (
        "I read twice",
        "$read_acquire('k', 'me', 60000, 0, 0); $read_acquire('k', 'me', 60000, 1, 0)",
    ),
    (
        "I and another read",
        "$read_acquire('k', 'me', 60000, 0, 0); $read_acquire('k', 'other', 60000, 0, 0)",
    ),
    ("another reads", "$read_acquire('k', 'other', 60000, 0, 0)"),
    ("another has read, it has ended", "$read_acquire('k', 'other', 60000, 0, 0); $end"),
    (
        "another reads, a third will write",
        "$read_acquire('k', 'other', 60000, 0, 0); $write_acquire('k', 'third', 60000, 0, 60000)",
    ),
    (
        "another reads, I will write",
        "$read_acquire('k', 'other', 60000, 0, 0); $write_acquire('k', 'me', 60000, 0, 60000)",
    ),
    // Permits.
    ("permits", "$count('k', 's', 'begin', 3, 'i', 60000, 0)"),
    (
        "permits, I have one",
        "$count('k', 's', 'begin', 3, 'i', 60000, 0); $permit_acquire('k', 'me', 1, 60000, 0)",
    ),
    (
        "permits, another has all",
        "$count('k', 's', 'begin', 3, 'i', 60000, 0); $permit_acquire('k', 'other', 3, 60000, 0)",
    ),
    (
        "permits, another had all, and they have ended",
        "$count('k', 's', 'begin', 3, 'i', 60000, 0); $permit_acquire('k', 'other', 3, 60000, 0); $end",
    ),
    // Counts.
    ("a count of 3", "$count('k', 'c', 'begin', 3, 'i', 60000, 0)"),
    (
        "a count of 3, of which I have 2",
        "$count('k', 'c', 'begin', 3, 'i', 60000, 0); $count('k', 'c', 'take', 2, 'me', 60000, 0)",
    ),
    (
        "a count of 3, of which another has 3",
        "$count('k', 'c', 'begin', 3, 'i', 60000, 0); $count('k', 'c', 'take', 3, 'other', 60000, 0)",
    ),
    ("nothing, and what I asked is undone", "$count('k', 'c', 'back', 2, 'me', 60000, 0)"),
    ("a latch of 2", "$count('k', 'l', 'begin', 2, 'i', 60000, 0)"),
    ("a latch of 1", "$count('k', 'l', 'begin', 1, 'i', 60000, 0)"),
    (
        "a latch that has opened",
        "$count('k', 'l', 'begin', 1, 'i', 60000, 0); $count('k', 'l', 'down', 1, 'j', 60000, 0)",
    ),
];

/// The expected result of the second run.
pub(super) enum Then {
    /// The same, including all values.
    Same,
    /// The same, with different values: another token, fewer milliseconds.
    AsBefore,
    /// The same, or this: the first run has done it.
    Done(&'static str),
}

use Then::{AsBefore, Done, Same};

const TOKEN: &str = "(SELECT coalesce(max(token), 7) FROM leasehold.lock WHERE name = 'k')";

/// A call, the expected result of its second run, and the first result in each of the states, one
/// character each; `L` is the error LH001.
pub(super) fn calls() -> Vec<(String, Then, &'static str)> {
    let fenced = |call: &str| call.replace("TOKEN", TOKEN);
    let call = |call: &str| call.to_owned();
    vec![
        (
            call("$acquire('k', 'me', 60000, 0, 0)"),
            AsBefore,
            "1111111000111101111155151555515555555551551",
        ),
        (
            call("$acquire('k', 'me', 60000, 0, 1)"),
            AsBefore,
            "1111111000111101111155151555515555555551551",
        ),
        (
            call("$acquire('k', 'me', 60000, 0, 1, 5)"),
            AsBefore,
            "1111111000111101111155151555515555555551551",
        ),
        (
            call("$acquire('k', 'me', 60000, 1, 0)"),
            Same,
            "2111112222222122222211222222222222222222222",
        ),
        (
            call("$acquire('k', 'me', 60000, 0, 0, 1, false)"),
            AsBefore,
            "1111111000111101111155151555515555555551551",
        ),
        (
            call("$acquire('k', 'me', 60000, 0, 1, 5, false)"),
            AsBefore,
            "1111111000111101111155151555515555555551551",
        ),
        (
            call("$acquire('k', 'me', 60000, 1, 0, 1, false)"),
            Same,
            "2111112222222122222211222222222222222222222",
        ),
        (
            call("$release('k', 'me', 0, 'w')"),
            Done("(0,0)"),
            "0222222000000200000022200000000000000000000",
        ),
        (
            call("$release('k', 'me', 0, '')"),
            Done("(0,0)"),
            "0222222000000200000022200000000000000000000",
        ),
        (call("$release('k', 'me', 1, 'w')"), Same, "0111110000000100000011000000000000000000000"),
        (call("$keep('k', 'me', 30000)"), AsBefore, "0111110000000100000011000000000000000000000"),
        (call("$keep('k', 'me', 90000)"), AsBefore, "0111110000000100000011000000000000000000000"),
        (
            call("$renew('{k}', '{me}', '{90000}', false)"),
            Same,
            "0111110000000100000011000111000001000000000",
        ),
        (
            call("$renew('{k}', '{me}', '{90000}', true)"),
            Same,
            "0111110000000100000011000111000001000000000",
        ),
        (
            call("$renew('{k}', '{me}', '{0}', false)"),
            Same,
            "0111110000000100000011000111000001000000000",
        ),
        (
            call("$renew('{k,k}', '{me,other}', '{30000,90000}', false)"),
            Same,
            "0000000111000010000000010001101100100000000",
        ),
        (
            call("$fair_acquire('k', 'me', 60000, 0, 60000, 0, 'c')"),
            AsBefore,
            "1111111000111101010055151555515555555551551",
        ),
        (
            call("$fair_acquire('k', 'me', 60000, 0, 0, 0, 'c')"),
            AsBefore,
            "1111111000111101010055151555515555555551551",
        ),
        (
            call("$fair_acquire('k', 'me', 60000, 0, 60000, 1, 'c')"),
            AsBefore,
            "1111111000111101111155151555515555555551551",
        ),
        (
            call("$fair_acquire('k', 'me', 60000, 1, 0, 0, 'c')"),
            Same,
            "2111112222222122222211222222222222222222222",
        ),
        (
            call("$fair_release('k', 'me', 0, 0, 'w')"),
            Done("(0,0,)"),
            "0222222000000200000022200000000000000000000",
        ),
        (
            call("$fair_release('k', 'me', 1, 0, 'w')"),
            Same,
            "0111110000000100000011000000000000000000000",
        ),
        (
            call("$multi_acquire('{j,k}', '{me,me}', '{0,0}', 60000, 0, false)"),
            AsBefore,
            "1111111000111101111155151555515555555551551",
        ),
        (
            call("$multi_acquire('{j,k}', '{me,me}', '{0,0}', 60000, 1, false)"),
            AsBefore,
            "1111111000111101111155151555515555555551551",
        ),
        (
            call("$multi_acquire('{j,k}', '{me,me}', '{0,0}', 60000, 1, true)"),
            AsBefore,
            "1111111000111101111155151555515555555551551",
        ),
        (
            call("$multi_acquire('{j,k}', '{me,me}', '{0,1}', 60000, 1, true)"),
            AsBefore,
            "2111112222222122222255252555525555555552552",
        ),
        (
            call("$multi_release('{j,k}', '{me,me}', '{0,0}', '{0,0}', '{w,w}')"),
            Done("{0,0}"),
            "0222222000000200000022200000000000000000000",
        ),
        (
            call("$multi_release('{j,k}', '{me,me}', '{0,1}', '{0,0}', '{w,w}')"),
            Same,
            "0111110000000100000011000000000000000000000",
        ),
        (
            call("$multi_release('{j,k}', '{me,me}', '{0,0}', '{0,90000}', '{w,w}')"),
            Same,
            "0111110000000100000011000000000000000000000",
        ),
        (
            call("$multi_release('{j,k}', '{me,me}', '{0,0}', '{90000,0}', '{w,w}')"),
            Done("{0,0}"),
            "0222222000000200000022200000000000000000000",
        ),
        (
            call("$read_acquire('k', 'me', 60000, 0, 0)"),
            AsBefore,
            "1555551555111551111100101111110055555551551",
        ),
        (
            call("$read_acquire('k', 'me', 60000, 0, 1)"),
            AsBefore,
            "1555551555111551111100101111110055555551551",
        ),
        (
            call("$read_acquire('k', 'me', 60000, 1, 0)"),
            AsBefore,
            "2222222222222222222211222111222222222222222",
        ),
        (
            call("$write_acquire('k', 'me', 60000, 0, 0)"),
            AsBefore,
            "1555551555111551111111101110010055555551551",
        ),
        (
            call("$write_acquire('k', 'me', 60000, 0, 60000)"),
            AsBefore,
            "1555551555111551111111101110010055555551551",
        ),
        (
            call("$write_acquire('k', 'me', 60000, 1, 0)"),
            Same,
            "2111112222222122222211222222222222222222222",
        ),
        (
            call("$rw_release('k', 'me', 0, 0, 'w')"),
            Done("(0,0)"),
            "0222222000000200000022200221000002000000000",
        ),
        (
            call("$rw_release('k', 'me', 0, 1, 'w')"),
            Done("(1,0)"),
            "0222220000000200000022000111000001000000000",
        ),
        (
            call("$rw_release('k', 'me', 1, 0, 'w')"),
            Same,
            "0111110000000100000011000000000000000000000",
        ),
        (
            call("$permit_acquire('k', 'me', 1, 60000, 0)"),
            AsBefore,
            "4555554555444554444455454555545511015554554",
        ),
        (
            call("$permit_acquire('k', 'me', 1, 60000, 1)"),
            AsBefore,
            "4555554555444554444455454555545511015554554",
        ),
        (
            call("$permit_acquire('k', 'me', 4, 60000, 1)"),
            AsBefore,
            "4555554555444554444455454555545541445554554",
        ),
        (
            call("$permit_release('k', 'me', 'w')"),
            Done("(0,0)"),
            "0000000000000000000000000222000002000000000",
        ),
        (
            call("$permit_release('k', 'other', 'w')"),
            Done("(0,0)"),
            "0000000000000000000000000002202200200000000",
        ),
        (
            call("$count('k', 'c', 'begin', 4, 'n', 60000, 0)"),
            Same,
            "1555551555111551111155151555515555550001551",
        ),
        (
            call("$count('k', 'c', 'add', 2, 'n', 60000, 0)"),
            Same,
            "1555551555111551111155151555515555551111551",
        ),
        (
            call("$count('k', 'c', 'add', -5, 'n', 60000, 0)"),
            Same,
            "1555551555111551111155151555515555551111551",
        ),
        (
            call("$count('k', 'c', 'add', 2147483647, 'n', 60000, 0)"),
            Same,
            "1555551555111551111155151555515555557711551",
        ),
        (
            call("$count('k', 'c', 'take', 1, 'me', 60000, 0)"),
            Same,
            "4555554555444554444455454555545555551102554",
        ),
        (
            call("$count('k', 'c', 'take', 1, 'me', 60000, 1)"),
            Same,
            "4555554555444554444455454555545555551102554",
        ),
        (
            call("$count('k', 'c', 'back', 2, 'me', 60000, 0)"),
            Done("(0,0)"),
            "0000000000000000000000000000000000000200000",
        ),
        (
            call("$count('k', 'c', 'return', 2, 'me', 60000, 0)"),
            Done("(0,0)"),
            "2555552555222552222255252555525555552220552",
        ),
        (
            call("$count('k', 'c', 'drop', 0, 'n', 60000, 0)"),
            Same,
            "0555550555000550000055050555505555551110550",
        ),
        (
            call("$count('k', 's', 'begin', 4, 'n', 60000, 0)"),
            Same,
            "1555551555111551111155151555515500005551551",
        ),
        (
            call("$count('k', 's', 'add', -2, 'n', 60000, 0)"),
            Same,
            "1555551555111551111155151555515511115551551",
        ),
        (
            call("$count('k', 's', 'drop', 0, 'n', 60000, 0)"),
            Same,
            "0555550555000550000055050555505511115550550",
        ),
        (
            call("$count('k', 'l', 'begin', 4, 'n', 60000, 0)"),
            Same,
            "1555551555111551111155151555515555555551001",
        ),
        (
            call("$count('k', 'l', 'down', 1, 'n', 60000, 0)"),
            Same,
            "0555550555000550000055050555505555555550110",
        ),
        (
            call("$count('k', 'l', 'drop', 0, 'n', 60000, 0)"),
            Same,
            "0555550555000550000055050555505555555550110",
        ),
        (call("$counted('k', 's')"), Same, "1555551555111551111155151555515511115551551"),
        (call("$counted('k', 'c')"), Same, "1555551555111551111155151555515555551111551"),
        (call("$counted('k', 'l')"), Same, "1555551555111551111155151555515555555551111"),
        (
            call(
                "SELECT coalesce(string_agg(concat_ws('/', kind, holder, level), ' ' ORDER BY holder), '-') FROM leasehold_v1.inspect('k')",
            ),
            Same,
            "-xxxxx-xxx---xx-----rr-r-rrrr-rrssssccc-ll-",
        ),
        (call("$queue('k', 'c')"), Same, "0000000000000112222100000000000000000000000"),
        // It is sent only once: a repeat could force out the next holder.
        (call("$force('k', 'x')"), Done("0"), "0111110111000110000055050555505555555550550"),
        (call("$force('k', 'r')"), Done("0"), "0555550555000550000011010111101155555550550"),
        (call("$sweep(0, 100)"), Done("0"), "0000000000000000012000000000010000010000000"),
        (call("$sweep_locks(0, 100)"), Same, "fffffffffffffffffffffffffffffffffffffffffff"),
        (fenced("$fence('k', TOKEN)"), Same, "L..........LL..LLLLL.....LLLLLLLLLLLLLLLLLL"),
        (fenced("$fence('k', TOKEN - 1)"), Same, "LLL.LLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL"),
        (fenced("$fence('k', TOKEN + 1)"), Same, "LLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL"),
        (
            fenced("$fence_at_commit('k', TOKEN)"),
            Same,
            "L..........LL..LLLLL.....LLLLLLLLLLLLLLLLLL",
        ),
        (
            fenced("$fence_at_commit('k', TOKEN - 1)"),
            Same,
            "LLL.LLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL",
        ),
    ]
}
