//! Several processes on one lock, forks, and what a client leaves behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::{CancelToken, ErrorKind, LockClient};

use crate::rig::{CAP, Child, Server, cannot_run, ms, wait_until};
use crate::support::{Clients, ShortLease, count_under_the_lock};

#[test]
fn eight_processes_count_exactly() {
    let server = Server::start();
    server.cmd::<()>(&["SET", "counter", "0"]);
    let url = server.url();
    let mut children: Vec<_> = (0..8)
        .map(|_| Child::spawn("processes::counting_process", &[("LEASEHOLD_TEST_URL", &url)]))
        .collect();
    for child in &mut children {
        child.expect("done");
    }
    for child in children {
        child.wait();
    }
    assert_eq!(server.cmd::<u32>(&["GET", "counter"]), 8 * 4 * 20);
    server.cmd::<u32>(&["DEL", "counter"]);
    server.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn counting_process() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = LockClient::open(&url).unwrap();
    count_under_the_lock(&client, &url, 4);
    drop(client);
    println!("@@done");
}

#[test]
fn a_fork_owns_nothing_and_harms_nothing() {
    let server = Server::start();
    let mut child =
        Child::spawn("processes::forking_process", &[("LEASEHOLD_TEST_URL", &server.url())]);
    assert_eq!(
        child.expect("child "),
        "held=false lost=Err(Disconnected) lock=Forked fence=Forked"
    );
    assert_eq!(child.expect("child waits="), "Released Released");
    assert_eq!(child.expect("child ended, its callback dropped: "), "false");
    assert_eq!(child.expect("parent "), "held=true");
    child.wait();
    server.assert_clean();
}

/// Also used for servers of other kinds.
pub(crate) fn assert_forks_own_nothing(url: &str) {
    let env = [("LEASEHOLD_TEST_URL", url)];
    let mut child = Child::spawn("processes::forking_process", &env);
    assert_eq!(
        child.expect("child "),
        "held=false lost=Err(Disconnected) lock=Forked fence=Forked"
    );
    assert_eq!(child.expect("child waits="), "Released Released");
    assert_eq!(child.expect("parent "), "held=true");
    child.wait();
    let mut child = Child::spawn("processes::forking_while_others_are_busy", &env);
    child.expect("all came back");
    child.wait();
    assert_children_work(url);
}

#[test]
#[ignore = "a program for other tests"]
fn forking_process() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = LockClient::builder().url(url).short_lease(ms(3000)).build().unwrap();
    let guard = client.lock("job").unwrap();
    // Values that a callback captured belong to the parent.
    static DROPPED: AtomicBool = AtomicBool::new(false);
    struct Captured;
    impl Drop for Captured {
        fn drop(&mut self) {
            DROPPED.store(true, Ordering::SeqCst);
        }
    }
    let captured = Captured;
    guard.on_lost(move |_| drop(captured));
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            let (held, lost) = (guard.is_held(), guard.lost().try_recv());
            println!(
                "@@child held={held} lost={lost:?} lock={:?} fence={:?}",
                client.lock("x").unwrap_err().kind(),
                guard.fence_sql().unwrap_err().kind()
            );
            let (both, token) = (guard.wait_lost(ms(60_000)), CancelToken::new());
            token.cancel();
            println!(
                "@@child waits={both:?} {:?}",
                guard.wait_lost_or_cancelled(ms(60_000), &token).unwrap()
            );
            drop(guard);
            drop(client);
            println!("@@child ended, its callback dropped: {}", DROPPED.load(Ordering::SeqCst));
            std::process::exit(0);
        }
        fork::Fork::Parent(pid) => {
            let _ = fork::waitpid(pid);
            // Longer than a lease, so that the lock is renewed.
            std::thread::sleep(ms(3500));
            println!("@@parent held={}", guard.is_held());
            guard.unlock().unwrap();
        }
    }
}

/// The first process of a PID namespace has number 1, and so does its child in the next namespace.
const IN_A_NAMESPACE: [&str; 7] =
    ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--"];

#[test]
#[cfg(target_os = "linux")]
fn a_fork_with_the_same_process_id_in_another_namespace_owns_nothing() {
    let [unshare, options @ ..] = IN_A_NAMESPACE;
    let permitted = std::process::Command::new(unshare).args(options).arg("true").status();
    if !permitted.is_ok_and(|status| status.success()) {
        cannot_run("this user may not make namespaces");
        return;
    }
    let server = Server::start();
    let env = [("LEASEHOLD_TEST_URL", &*server.url())];
    let mut child = Child::spawn_by(&IN_A_NAMESPACE, "processes::forking_into_a_namespace", &env);
    assert_eq!(child.expect("parent is "), "1");
    assert_eq!(child.expect("child is "), "1 held=false lock=Forked nodes=0");
    child.expect("child ended");
    assert_eq!(child.expect("parent "), "held=true");
    child.wait();
    server.assert_clean();
}

#[test]
#[cfg(target_os = "linux")]
#[ignore = "a program for other tests"]
fn forking_into_a_namespace() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = LockClient::builder().url(url).short_lease(ms(3000)).build().unwrap();
    let guard = client.lock("job").unwrap();
    println!("@@parent is {}", std::process::id());
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWPID).unwrap();
    match fork::fork().unwrap() {
        fork::Fork::Child => {
            let (held, lock) = (guard.is_held(), client.lock("x").unwrap_err().kind());
            println!(
                "@@child is {} held={held} lock={lock:?} nodes={}",
                std::process::id(),
                client.nodes().len()
            );
            drop(guard);
            drop(client);
            println!("@@child ended");
            std::process::exit(0);
        }
        fork::Fork::Parent(pid) => {
            let _ = fork::waitpid(pid);
            std::thread::sleep(ms(3500));
            println!("@@parent held={}", guard.is_held());
            guard.unlock().unwrap();
        }
    }
}

/// A mutex that another thread of the parent held at the fork stays locked in the child forever.
#[test]
fn a_forked_child_can_print_the_client_and_ask_for_its_nodes() {
    let server = Server::start();
    let mut child = Child::spawn(
        "processes::forking_while_others_are_busy",
        &[("LEASEHOLD_TEST_URL", &server.url())],
    );
    child.expect("all came back");
    child.wait();
    server.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn forking_while_others_are_busy() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = LockClient::open(&url).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        for name in ["a", "b"] {
            let (client, stop) = (&client, &stop);
            s.spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = (client.try_lock(name).unwrap(), client.nodes(), format!("{client:?}"));
                }
            });
        }
        for _ in 0..300 {
            match fork::fork().unwrap() {
                fork::Fork::Child => {
                    assert!(client.nodes().is_empty() && format!("{client:?}").contains("forked"));
                    // Also with a name that the parent's threads were just adding.
                    for name in ["a", "unknown"] {
                        assert_eq!(
                            client.try_lock(name).unwrap_err().kind(),
                            leasehold::ErrorKind::Forked
                        );
                    }
                    assert!(!client.mutex("a").is_held_by_current_thread());
                    let election = client.election("e");
                    let led = election.run(|_| Ok::<_, String>(())).unwrap_err();
                    let seen = election.watch().next().unwrap().unwrap_err();
                    assert_eq!(led.kind(), leasehold::ErrorKind::Forked);
                    assert_eq!(seen.kind(), leasehold::ErrorKind::Forked);
                    kill_this_process();
                }
                fork::Fork::Parent(pid) => {
                    let _ = fork::waitpid(pid);
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    client.close(CAP).unwrap();
    println!("@@all came back");
}

const CHILDREN: usize = 40;

/// A child has the memory of the threads of its parent that wait, and its own new threads get it.
#[test]
fn a_forked_child_works_with_a_client_of_its_own() {
    let server = Server::start();
    assert_children_work(&server.url());
    server.assert_clean();
}

fn assert_children_work(url: &str) {
    let env = [("LEASEHOLD_TEST_URL", url)];
    let mut child = Child::spawn("processes::forking_into_new_clients", &env);
    assert_eq!(child.expect("worked: "), CHILDREN.to_string());
    child.wait();
}

#[test]
#[ignore = "a program for other tests"]
fn forking_into_new_clients() {
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let done = std::env::temp_dir().join(format!("lh-forks-{}", std::process::id()));
    std::fs::create_dir_all(&done).unwrap();
    let client = LockClient::open(&url).unwrap();
    let held = client.lock("held").unwrap();
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| client.lock("held").unwrap().unlock().unwrap());
        }
        wait_until("all wait", || client.stats().waiting() == 8);
        for child in 0..CHILDREN {
            match fork::fork().unwrap() {
                fork::Fork::Child => {
                    // Not for ever, if it hangs.
                    std::thread::spawn(|| {
                        std::thread::sleep(CAP / 2);
                        kill_this_process();
                    });
                    contend(&LockClient::open(&url).unwrap());
                    std::fs::write(done.join(child.to_string()), "").unwrap();
                    kill_this_process();
                }
                fork::Fork::Parent(pid) => {
                    let _ = fork::waitpid(pid);
                }
            }
        }
        held.unlock().unwrap();
    });
    println!("@@worked: {}", std::fs::read_dir(&done).unwrap().count());
    std::fs::remove_dir_all(done).unwrap();
}

/// Eight threads take turns with four locks, and wait for each other all the time.
fn contend(client: &LockClient) {
    std::thread::scope(|s| {
        for thread in 0..8 {
            s.spawn(move || {
                for turn in 0..25 {
                    let name = format!("n{}", (thread + turn) % 4);
                    client.lock(name).unwrap().unlock().unwrap();
                }
            });
        }
    });
    client.close(CAP).unwrap();
}

/// Not `exit`, which would run code on state that the parent's threads left half changed.
fn kill_this_process() {
    let _ = std::process::Command::new("kill")
        .args(["-KILL", &std::process::id().to_string()])
        .status();
}

#[test]
fn locks_are_taken_and_given_back_in_the_destructor_of_a_thread_local() {
    let server = Server::start();
    let mut child =
        Child::spawn("processes::locking_in_destructors", &[("LEASEHOLD_TEST_URL", &server.url())]);
    for what in ["lock", "permit", "wait", "count", "client", "multi"] {
        child.expect(&format!("{what} worked"));
    }
    child.wait();
    wait_until("what the destructors acquired is released", || server.lock_keys().is_empty());
}

#[test]
#[ignore = "a program for other tests"]
fn locking_in_destructors() {
    type Last = Box<dyn FnOnce() + Send>;
    struct AtTheEnd(Option<Last>);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            self.0.take().unwrap()();
        }
    }
    thread_local! {
        static LAST: std::cell::RefCell<Vec<AtTheEnd>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    let client = LockClient::open(&url).unwrap();
    client.semaphore("permits").try_set_permits(1).unwrap();
    client.latch("latch").set_count(1).unwrap();
    let held = client.mutex("held").lock_owned().unwrap();
    let at_the_end = |last: Last| {
        let c = client.clone();
        std::thread::spawn(move || {
            // Thread-locals are destroyed in reverse order of first use: those that these calls use
            // are already destroyed.
            LAST.with_borrow_mut(|list| list.push(AtTheEnd(Some(last))));
            let guard = c.lock("early").unwrap();
            c.semaphore("permits").try_acquire().unwrap().unwrap().release().unwrap();
            guard.unlock().unwrap();
        })
        .join()
        .unwrap();
    };
    let c = client.clone();
    at_the_end(Box::new(move || {
        c.lock("job").unwrap().unlock().unwrap();
        println!("@@lock worked");
    }));
    let c = client.clone();
    at_the_end(Box::new(move || {
        c.semaphore("permits").try_acquire().unwrap().unwrap().release().unwrap();
        println!("@@permit worked");
    }));
    let c = client.clone();
    at_the_end(Box::new(move || {
        assert!(c.try_lock_for("held", ms(300)).unwrap().is_none());
        println!("@@wait worked");
    }));
    let c = client.clone();
    at_the_end(Box::new(move || {
        assert_eq!(c.latch("latch").count_down().unwrap(), 0);
        println!("@@count worked");
    }));
    at_the_end(Box::new(move || {
        LockClient::open(&url).unwrap().lock("job").unwrap().unlock().unwrap();
        println!("@@client worked");
    }));
    let c = client.clone();
    at_the_end(Box::new(move || {
        c.multi(["m1", "m2"]).lock().unwrap().unlock().unwrap();
        println!("@@multi worked");
    }));
    drop(held);
    client.semaphore("permits").delete().unwrap();
}

/// The logger may write to a database under a lock of the same client, and be slow.
#[test]
fn a_logger_that_blocks_and_uses_the_client_stalls_nothing() {
    let server = Server::start();
    let mut child = Child::spawn(
        "processes::logging_through_the_client",
        &[("LEASEHOLD_TEST_URL", &server.url())],
    );
    child.expect("ready");
    server.suspend();
    child.expect("logged: 2 leases cannot be renewed");
    server.resume();
    child.expect("logged: leases are renewed again");
    child.say("go on");
    assert_eq!(child.expect("held="), "true");
    child.wait();
    server.assert_clean();
}

#[test]
#[ignore = "a program for other tests"]
fn logging_through_the_client() {
    static CLIENT: std::sync::OnceLock<LockClient> = std::sync::OnceLock::new();
    struct Logger;
    impl log::Log for Logger {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            thread_local!(static BUSY: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
            if record.level() > log::Level::Warn || BUSY.replace(true) {
                return;
            }
            println!("@@logged: {}", record.args());
            let client = CLIENT.get().unwrap();
            let (_, _) = (format!("{client:?}"), client.nodes());
            drop(client.try_lock("log"));
            std::thread::sleep(ms(50));
            BUSY.set(false);
        }

        fn flush(&self) {}
    }
    let url = std::env::var("LEASEHOLD_TEST_URL").unwrap();
    CLIENT
        .set(LockClient::builder().url(url).lease(ms(9000)).io_timeout(ms(1500)).build().unwrap())
        .unwrap();
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
    let client = CLIENT.get().unwrap();
    let guards = [client.lock("a").unwrap(), client.lock("b").unwrap()];
    println!("@@ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    println!("@@held={}", guards.iter().all(leasehold::ReentrantMutexGuard::is_held));
    drop(guards);
    client.close(ms(3000)).unwrap();
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
