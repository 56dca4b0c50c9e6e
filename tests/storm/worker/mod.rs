//! A process with several threads that take locks, until it is told to end.

mod job;
mod lead;
mod log;
mod memory;
mod names;
mod settings;
mod turn;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use leasehold::LockClient;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

pub(crate) use self::job::{ATTEMPTS, PAUSE, PAUSES};
pub(crate) use self::settings::{Address, Mode, Settings, builder};
pub(crate) use self::turn::{COUNTED, LATCH, PERMITS, names_of};
use crate::event::{Journal, What, millis, now};
use crate::rig::ms;

/// The number of clients of the single process whose store is in memory.
const CLIENTS_IN_MEMORY: usize = 3;

/// The number of threads and of sockets of this process.
fn footprint() -> (i64, i64) {
    let count = |dir: &str| std::fs::read_dir(dir).unwrap();
    let threads = count("/proc/self/task").count();
    let is_socket = |entry: std::io::Result<std::fs::DirEntry>| {
        let link = entry.and_then(|entry| std::fs::read_link(entry.path()));
        link.is_ok_and(|link| link.to_string_lossy().starts_with("socket:"))
    };
    let sockets = count("/proc/self/fd").filter_map(|entry| is_socket(entry).then_some(())).count();
    (i64::try_from(threads).unwrap(), i64::try_from(sockets).unwrap())
}

fn report_panics(journal: &Arc<Journal>) {
    let journal = journal.clone();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        journal.note(now(), 0, 0, What::Panicked { message: info.to_string() });
        before(info);
    }));
}

/// Runs the threads of each client until the end of the storm.
fn storm(places: &[Arc<turn::Place>], settings: &Settings) {
    let threads = 0..settings.threads * u32::try_from(places.len()).unwrap();
    std::thread::scope(|s| {
        if let Some(life) = settings.life {
            s.spawn(move || {
                std::thread::sleep(life);
                for place in places {
                    place.over.store(true, Ordering::SeqCst);
                }
            });
        }
        for thread in threads {
            let place = &places[thread as usize % places.len()];
            let mut rng = StdRng::seed_from_u64(
                settings.seed.wrapping_mul(31).wrapping_add(u64::from(thread)),
            );
            s.spawn(move || {
                while !place.over.load(Ordering::SeqCst) {
                    turn::take(place, thread, &mut rng);
                    // Occasional longer pauses leave a name free for a while.
                    let rest =
                        if rng.random_bool(0.02) { 32.0 } else { rng.random_range(0.0..2.0) };
                    place.sleep(settings.pause.mul_f64(rest));
                }
            });
        }
    });
}

fn place(client: LockClient, journal: &Arc<Journal>, settings: &Settings) -> Arc<turn::Place> {
    Arc::new(turn::Place {
        client,
        journal: journal.clone(),
        kinds: settings.kinds.clone(),
        lease: settings.lease,
        clock: settings.clock,
        min_hold: settings.min_hold,
        fork: AtomicBool::new(false),
        keep_until: AtomicU64::new(0),
        over: AtomicBool::new(false),
        attempts: AtomicU64::new(1),
    })
}

/// Obeys the orchestrator's commands on standard input; when that closes, because the orchestrator
/// has ended, this process ends too.
fn obey(places: &[Weak<turn::Place>], snapshot: &Path) {
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let places: Vec<_> = places.iter().filter_map(Weak::upgrade).collect();
        let Some(place) = places.first() else { continue };
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "stop" => places.iter().for_each(|place| place.over.store(true, Ordering::SeqCst)),
            "keep" => {
                let until = now() + millis(rest.parse().unwrap());
                for place in &places {
                    place.keep_until.store(until, Ordering::SeqCst);
                }
            }
            "fork" => place.fork.store(true, Ordering::SeqCst),
            "force" => {
                let answer = match rest.as_bytes().first() {
                    Some(b'f') => place.client.fair(rest).force_unlock(),
                    _ => place.client.mutex(rest).force_unlock(),
                };
                println!("@@forced {answer:?}");
            }
            // Shows what a process that hangs waits for.
            "snapshot" => {
                let of = |client: &LockClient| {
                    format!("{}\n{}\n{:#?}\n", client.snapshot(), client.stats(), client.nodes())
                };
                let text: String = places.iter().map(|place| of(&place.client)).collect();
                std::fs::write(snapshot, text).unwrap();
                println!("@@snapshot");
            }
            _ => {
                assert!(memory::obey(&place.client, word, rest), "{line}");
                println!("@@done");
            }
        }
    }
    std::process::exit(1);
}

#[test]
#[ignore = "a program for the storm"]
fn working_process() {
    let mut settings = Settings::from_env();
    std::thread::sleep(settings.delay);
    if settings.slow_names {
        names::name_the_machine(&mut settings.address.urls);
    }
    let journal = Arc::new(Journal::append_to(&settings.journal));
    report_panics(&journal);
    log::to_file(&settings.journal.with_extension("log"));
    let in_memory = settings.address.mode == Mode::Memory;
    let clients = if in_memory {
        memory::clients(CLIENTS_IN_MEMORY, settings.lease)
    } else {
        vec![builder(&settings.address, settings.lease).client_name("storm").build().unwrap()]
    };
    let places: Vec<_> =
        clients.into_iter().map(|client| place(client, &journal, &settings)).collect();
    let snapshot = settings.journal.with_extension("snapshot");
    // This thread must not keep the client alive.
    let weak: Vec<_> = places.iter().map(Arc::downgrade).collect();
    std::thread::spawn(move || obey(&weak, &snapshot));
    // Includes that thread but not those of the client, which start at the first lock.
    let ended = footprint();
    println!("@@ready");
    storm(&places, &settings);
    if in_memory {
        memory::assert_clean(&places[0].client);
    }
    let close = places.iter().try_for_each(|place| place.client.close(Duration::from_secs(10)));
    let close = close.map_or_else(|e| format!("{:?}", e.kind()), |()| "ok".to_owned());
    // What wakes its threads is dropped with its last handle.
    drop(places);
    // A thread that has just ended may still be listed.
    let (start, mut now_has) = (Instant::now(), footprint());
    while now_has != ended && start.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(ms(5));
        now_has = footprint();
    }
    let (threads, sockets) = (now_has.0 - ended.0, now_has.1 - ended.1);
    journal.note(now(), 0, 0, What::Ended { threads, sockets, close });
    println!("@@ended");
}
