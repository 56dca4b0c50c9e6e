//! The plain lock: golden vectors, every call in every state, random interleavings, a full server.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{A, B, Bench, CHANNEL, Call, Counter, LOCK, LOW, Lock, NEVER, TOKEN, World, show};
use crate::lua::script;
use crate::rig::Server;

/// The plain lock in the golden vectors. Two rows differ from Redisson, which shortens the TTL and
/// adds to the count.
#[test]
fn golden_vectors() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    let release = (CHANNEL.to_owned(), "0".to_owned());
    type Row<'a> = (&'a str, &'a [&'a str], &'a str, Option<(&'a str, i64)>);
    let rows: [Row<'_>; 9] = [
        ("acquire", &["A", "30000", "0"], "[1 0]", Some(("1", 30_000))),
        ("acquire", &["A", "10000", "1"], "[1 0]", Some(("2", 30_000))),
        ("acquire", &["A", "60000", "1"], "[1 0]", Some(("2", 60_000))),
        ("release", &["B", "1"], "[0 0]", Some(("2", 60_000))),
        ("release", &["A", "2"], "[1 0]", Some(("1", 60_000))),
        ("release", &["A", "2"], "[1 0]", Some(("1", 60_000))),
        ("release", &["A", "1"], "[2 1]", None),
        ("release", &["A", "1"], "[0 0]", None),
        ("release", &["C", "1"], "[0 0]", None),
    ];
    for (operation, args, answer, after) in rows {
        let reply = if operation == "acquire" {
            bench.eval(
                script("mutex_acquire"),
                &[LOCK, TOKEN],
                &[args, &["-1", "1", "0", "0"]].concat(),
            )
        } else {
            bench.eval(script("mutex_release"), &[LOCK], &[args, &[CHANNEL]].concat())
        };
        assert_eq!(show(&reply), answer, "{operation} {args:?}");
        assert_eq!(
            bench.published(),
            if answer == "[2 1]" { vec![release.clone()] } else { vec![] },
            "{operation} {args:?}"
        );
        let fields: Vec<(String, String)> = bench.cmd(&["HGETALL", LOCK]);
        let left: i64 = bench.cmd(&["PTTL", LOCK]);
        match after {
            Some((count, ttl)) => {
                assert_eq!(fields, [("A".to_owned(), count.to_owned())], "{operation} {args:?}");
                assert!((ttl - 5_000..=ttl).contains(&left), "{operation} {args:?}: {left}");
            }
            None => assert!(bench.picture().is_empty(), "{operation} {args:?}"),
        }
    }
}

/// Every call in every state does what its header says. A repeat changes nothing.
#[test]
fn every_call_twice_in_every_state() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    let locks = [
        World::EMPTY,
        World::held(&[(A, 1)], 2),
        World::held(&[(A, 2)], 2),
        World::held(&[(B, 1)], 2),
        World::held(&[(A, 1), (B, 1)], 2),
        World::held(&[(A, 1)], NEVER),
        World::held(&[(B, 1)], NEVER),
        World { lock: Lock::Foreign, token: None },
        World { lock: Lock::ForeignHash, token: None },
    ];
    let tokens = [
        None,
        Some((Counter::At(500), 5)),
        Some((Counter::At(500), NEVER)),
        Some((Counter::At(LOW - 1), 5)),
        Some((Counter::At(LOW - 2), 5)),
        Some((Counter::At(LOW - 2), NEVER)),
        Some((Counter::Junk("abc"), 5)),
        Some((Counter::Junk("1e3"), NEVER)),
        Some((Counter::Junk("9223372036854775807"), 5)),
    ];
    let mut failures = Vec::new();
    for lock in &locks {
        for token in &tokens {
            for call in Call::all_of_a() {
                let start = World { lock: lock.lock.clone(), token: *token };
                // Only an outermost acquire uses the token counter.
                if *token != tokens[1] && !matches!(call, Call::Acquire { .. }) {
                    continue;
                }
                bench.put(&start);
                let mut once = start;
                failures.extend(bench.differs(&mut once, &call));
                let mut twice = once.clone();
                failures.extend(
                    bench.differs(&mut twice, &call).map(|f| format!("the second time: {f}")),
                );
                // Checked without the model: a repeat changes nothing, except that a repeated
                // outermost acquire may give a higher token.
                if matches!(call, Call::Acquire { held: 0, rule: 0.., .. }) {
                    once.token = twice.token;
                }
                assert_eq!(once, twice, "{call:?} is not repeat-safe");
            }
        }
    }
    assert!(
        failures.is_empty(),
        "{} differences, such as:\n{}",
        failures.len(),
        failures[..failures.len().min(9)].join("\n")
    );
}

/// A full server grants no new lock and leaves nothing half done; holds can be kept and released.
#[test]
fn a_full_server() {
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    let off =
        Call::Acquire { who: A.to_owned(), lease: 2, held: 0, rule: -1, floor: LOW, not_after: 0 };
    let held = |count| World::held(&[(A, count)], 2);
    let refused = [
        (World::EMPTY, Call::acquire(A, 0)),
        (World { token: Some((Counter::At(5), NEVER)), ..World::EMPTY }, Call::acquire(A, 0)),
        (World::EMPTY, off),
        (held(1), Call::acquire(A, 1)),
    ];
    for (world, call) in refused {
        bench.put(&world);
        bench.cmd::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        for _ in 0..2 {
            assert_eq!(bench.run(&call), "!OOM", "{call:?} in {world:?}");
            assert_eq!(bench.picture(), world.picture());
        }
        assert!(bench.published().is_empty());
        bench.cmd::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
    let served = [
        Call::release(A, 1),
        Call::release(A, 2),
        Call::renew(A, 3),
        Call::Inspect,
        Call::Force,
        Call::Probe,
    ];
    for call in served {
        let mut world = held(2);
        bench.put(&world);
        bench.cmd::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        bench.step(&mut world, &call);
        bench.step(&mut world, &call);
        bench.cmd::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

/// One of three clients that compete for the lock: its current holder id, its hold count, and its
/// last call.
struct Player {
    name: String,
    held: i64,
    last: Option<Call>,
}

/// Random interleavings, compared with the model. `LEASEHOLD_SEED` replays one.
#[test]
fn random_interleavings() {
    const STEPS: usize = 2000;
    let seed =
        std::env::var("LEASEHOLD_SEED").map_or_else(|_| rand::random(), |s| s.parse().unwrap());
    println!("LEASEHOLD_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let server = Server::start();
    let mut subscriber = server.connect();
    let mut bench = Bench::new(&server, &mut subscriber);
    let mut world = World::EMPTY;
    let mut players =
        ["A", "B", "C"].map(|letter| Player { name: format!("{letter}:0"), held: 0, last: None });
    let (mut grants, mut last_token) = (0, 0);
    for step in 0..STEPS {
        // A key is deleted without the players knowing.
        if rng.random_bool(0.05) {
            let key = if rng.random_bool(0.7) { LOCK } else { TOKEN };
            bench.cmd::<()>(&["DEL", key]);
            if key == LOCK { world.lock = Lock::Free } else { world.token = None }
        }
        let player = &mut players[rng.random_range(0..3)];
        let lease = rng.random_range(1..=3);
        let acquire = Call::Acquire {
            who: player.name.clone(),
            lease,
            held: player.held,
            rule: 9,
            floor: LOW,
            not_after: 0,
        };
        let call = match (rng.random_range(0..8), &player.last) {
            (0..3, _) => acquire,
            (3..5, _) if player.held > 0 => Call::release(&player.name, player.held),
            (5, _) => Call::renew(&player.name, lease),
            (6.., Some(last)) => last.clone(),
            _ => Call::Inspect,
        };
        player.last = Some(call.clone());
        if let Some(difference) = bench.differs(&mut world, &call) {
            panic!("LEASEHOLD_SEED={seed}, step {step}: {difference}");
        }
        let stands = match &world.lock {
            Lock::Held(fields, _) => fields.get(&player.name).copied(),
            _ => None,
        };
        match &call {
            Call::Acquire { who, held, .. } if *who == player.name && stands == Some(held + 1) => {
                player.held = held + 1;
                if *held == 0 {
                    grants += 1;
                    let token: i64 = bench.cmd(&["GET", TOKEN]);
                    assert!(
                        token > last_token,
                        "LEASEHOLD_SEED={seed}, step {step}: {token} after {last_token}"
                    );
                    last_token = token;
                }
            }
            Call::Release { who, held } if *who == player.name && *held > 1 && stands.is_some() => {
                player.held = held - 1;
            }
            // Released, or lost: a holder id is never used again.
            Call::Acquire { who, held: 1.., .. } | Call::Release { who, .. }
                if *who == player.name =>
            {
                *player =
                    Player { name: format!("{}:{step}", &who[..1]), held: 0, last: Some(call) };
            }
            _ => {}
        }
        // Checked on the lock itself, without the model: one holder, with the count that it
        // expects.
        let fields: BTreeMap<String, i64> = bench.cmd(&["HGETALL", LOCK]);
        assert!(fields.len() <= 1, "LEASEHOLD_SEED={seed}, step {step}: two holders: {fields:?}");
        for (who, count) in fields {
            let owner = players.iter().find(|p| p.name == who);
            assert_eq!(
                owner.map(|p| p.held),
                Some(count),
                "LEASEHOLD_SEED={seed}, step {step}: {who}"
            );
        }
    }
    assert!(grants > STEPS / 50, "LEASEHOLD_SEED={seed}: only {grants} grants");
}
