//! Several processes on one lock, forks, and what a client leaves behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{ErrorKind, LockClient};

use crate::rig::{Child, Server, ms};

#[test]
fn eight_processes_count_exactly() {
    let server = Server::start();
    server.cmd::<()>(&["SET", "counter", "0"]);
    let url = server.url();
    let mut children: Vec<_> =
        (0..8).map(|_| Child::spawn("processes::counting_process", &[("LEASEHOLD_TEST_URL", &url)])).collect();
    for child in &mut children {
        child.expect("done");
    }
    children.into_iter().for_each(Child::wait);
    assert_eq!(server.cmd::<u32>(&["GET", "counter"]), 8 * 4 * 20);
    server.cmd::<u32>(&["DEL", "counter"]);
    server.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn counting_process() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = LockClient::open(&url).unwrap();
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                let mut redis = redis::Client::open(&*url).unwrap().get_connection().unwrap();
                for _ in 0..20 {
                    let guard = client.lock("job").unwrap();
                    // Read and write apart: only the lock keeps the counter exact.
                    let old: u32 = redis::cmd("GET").arg("counter").query(&mut redis).unwrap();
                    redis::cmd("SET").arg("counter").arg(old + 1).exec(&mut redis).unwrap();
                    guard.unlock().unwrap();
                }
            });
        }
    });
    drop(client);
    println!("@@done");
}

#[test]
fn a_fork_owns_nothing_and_harms_nothing() {
    let server = Server::start();
    let mut child = Child::spawn("processes::forking_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
    assert_eq!(child.expect("child "), "held=false verb=Forked");
    assert_eq!(child.expect("child ended, its callback dropped: "), "false");
    assert_eq!(child.expect("parent "), "held=true");
    child.wait();
    server.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn forking_process() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = LockClient::builder().url(url).lease(ms(500)).build().unwrap();
    let guard = client.lock("job").unwrap();
    // Whatever a callback captured is the parent's.
    static DROPPED: AtomicBool = AtomicBool::new(false);
    struct Captured;
    impl Drop for Captured {
        fn drop(&mut self) {
            DROPPED.store(true, Ordering::SeqCst);
        }
    }
    let captured = Captured;
    guard.on_lost(move || drop(captured));
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            println!("@@child held={} verb={:?}", guard.is_held(), client.lock("x").unwrap_err().kind());
            drop(guard);
            drop(client);
            println!("@@child ended, its callback dropped: {}", DROPPED.load(Ordering::SeqCst));
            std::process::exit(0);
        }
        fork::Fork::Parent(pid) => {
            let _ = fork::waitpid(pid);
            // Longer than a lease: renewal goes on.
            std::thread::sleep(ms(900));
            println!("@@parent held={}", guard.is_held());
            guard.unlock().unwrap();
        }
    }
}

#[test]
fn the_last_handle_takes_everything_with_it() {
    let server = Server::start();
    let (holder, client) = (server.client(), server.builder().client_name("lh").build().unwrap());
    let guard = holder.lock("job").unwrap();
    assert!(client.try_lock_for("job", ms(50)).unwrap().is_none());
    let own = client.lock("own").unwrap();
    drop(client);
    assert!(own.is_held(), "a guard is a handle");
    drop(own);
    drop(guard);
    drop(holder);
    server.assert_clean();
}

#[test]
fn a_lazy_client_and_one_whose_server_comes_later() {
    let mut server = Server::start();
    let url = server.url();
    server.kill();
    assert_eq!(LockClient::open(&url).unwrap_err().kind(), ErrorKind::Unreachable);
    let client = LockClient::builder().url(&url).connect_lazily().build().unwrap();
    assert_eq!(client.try_lock("job").unwrap_err().kind(), ErrorKind::Unreachable);
    server.start_again();
    assert!(client.try_lock("job").unwrap().is_some());
    client.close(Duration::from_secs(5)).unwrap();
}
