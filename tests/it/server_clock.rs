//! The server's clock is stepped, and the user may not kill connections, so acquires have a time
//! by that clock after which they do not run.

use std::time::Duration;

use leasehold::{Every, LockClient, Once, Redlock};

use crate::rig::{Fault, Proxy, Server, ms, wait_until};
use crate::support::{Clients, Masters, wait_for_votes};

/// For a user who may not kill.
fn url(server: &Server, proxy: &Proxy) -> String {
    server.cmd::<()>(&["ACL", "SETUSER", "meek", "on", ">pw", "~*", "&*", "+@all", "-client"]);
    format!("{}?user=meek&pass=pw", proxy.url())
}

/// The next connection learns a time that is a minute old: as if the clock was stepped forward by a
/// minute as soon as it is made.
fn steps_forward(server: &Server, proxy: &Proxy) {
    let (seconds, _): (u64, u64) = server.cmd(&["TIME"]);
    let reply = format!("*2\r\n$10\r\n{}\r\n$6\r\n123456\r\n", seconds - 60);
    proxy.inject("TIME", Fault::Reply(Box::leak(reply.into_bytes().into_boxed_slice())));
}

type Call = fn(&LockClient);

#[test]
fn after_a_step_forward_every_call_works() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let url = url(&server, &proxy);
    let calls: [(&str, Call); 6] = [
        ("a mutex", |client| client.try_lock("m").unwrap().unwrap().unlock().unwrap()),
        ("a fair lock", |client| client.fair("f").try_lock().unwrap().unwrap().unlock().unwrap()),
        ("a reader", |client| client.rw_lock("rw").try_read().unwrap().unwrap().unlock().unwrap()),
        ("several locks", |client| {
            client.multi(["a", "b"]).try_lock().unwrap().unwrap().unlock().unwrap();
        }),
        ("a permit", |client| {
            let permits = client.counting_semaphore("p");
            permits.try_set_permits(1).unwrap();
            drop(permits.try_acquire().unwrap().unwrap());
        }),
        ("a latch", |client| assert!(client.latch("l").try_set_count(1).unwrap())),
    ];
    for (what, call) in calls {
        steps_forward(&server, &proxy);
        // The connections of the client before may still be open.
        let name = what.replace(' ', "-");
        let client = LockClient::builder().url(&url).client_name(&name).build().unwrap();
        let own = || {
            let named = format!(" name={name} ");
            server.client_lines().iter().filter(|line| line.contains(&named)).count()
        };
        assert_eq!(proxy.hits(), 1);
        proxy.forget_hit();
        println!("{what}");
        call(&client);
        let connections = own();
        for _ in 0..20 {
            client.try_lock("again").unwrap().unwrap().unlock().unwrap();
        }
        assert_eq!(own(), connections, "{what}: the new connection is kept");
    }
}

#[test]
fn after_a_step_forward_of_all_masters_every_call_works() {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let urls: Vec<String> =
        masters.0.iter().zip(&proxies).map(|(server, proxy)| url(server, proxy)).collect();
    for (server, proxy) in masters.0.iter().zip(&proxies) {
        steps_forward(server, proxy);
    }
    let client =
        LockClient::builder().redlock(Redlock::new(urls)).io_timeout(ms(2000)).build().unwrap();
    assert!(proxies.iter().all(|proxy| proxy.hits() == 1));
    for _ in 0..5 {
        client.try_lock("job").unwrap().unwrap().unlock().unwrap();
    }
    wait_for_votes(&client, 3);
    drop(client);
    wait_until("nothing is left", || masters.0.iter().all(|server| server.lock_keys().is_empty()));
}

/// The connection learned a time that is an hour ahead: as if the clock was set back since.
#[test]
fn after_a_step_back_a_lost_request_is_soon_undone() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let url = url(&server, &proxy);
    let (seconds, _): (u64, u64) = server.cmd(&["TIME"]);
    let reply = format!("*2\r\n$10\r\n{}\r\n$6\r\n123456\r\n", seconds + 3600);
    proxy.inject("TIME", Fault::Reply(Box::leak(reply.into_bytes().into_boxed_slice())));
    let lease = Duration::from_secs(300);
    let client = LockClient::builder().url(url).lease(lease).io_timeout(ms(500)).build().unwrap();
    proxy.inject("job", Fault::BlackHoleReply);
    assert!(client.try_lock("job").is_err());
    assert!(!server.lock_keys().is_empty(), "it ran");
    let began = std::time::Instant::now();
    while !server.lock_keys().is_empty() {
        assert!(began.elapsed() < lease / 4, "it is still locked");
        std::thread::sleep(ms(20));
    }
    client.try_lock("job").unwrap().unwrap().unlock().unwrap();
}

/// Runs it if it may run.
fn run(client: &LockClient, occurrence: impl Into<leasehold::Occurrence>) -> Once<String, ()> {
    let job = client.once("report", occurrence).keep(Duration::from_secs(1800));
    job.run(|run| Ok(run.occurrence().to_owned())).unwrap()
}

/// The clock of the store is set by an hour while an occurrence is done or at work. Its lease, and
/// the record of its attempts, may end with it; what was done is not done again.
#[test]
fn a_clock_that_is_stepped_does_no_job_twice() {
    const HOUR: i64 = 3600;
    let server = Server::start_with_a_clock();
    let [one, other] = [(); 2].map(|()| server.client());
    assert!(matches!(run(&one, "1"), Once::Done(_)));
    // Longer than its record is kept: only the newest label is known then.
    server.step_clock(HOUR);
    assert!(matches!(run(&other, "1"), Once::Passed { .. }));
    assert!(matches!(run(&other, "2"), Once::Done(_)));
    server.step_clock(-HOUR);
    for label in ["1", "2"] {
        let again = run(&one, label);
        assert!(matches!(again, Once::AlreadyDone { .. } | Once::Passed { .. }), "{again:?}");
    }

    // Set back at work: the lease only lasts longer.
    server.step_clock(0);
    let back = one.once("report", "3").run(|job| {
        server.step_clock(-HOUR);
        assert!(job.is_held());
        Ok::<_, ()>(())
    });
    assert!(matches!(back.unwrap(), Once::Done(())));
    assert!(matches!(run(&other, "3"), Once::AlreadyDone { .. }));

    // Set ahead at work: the lease is over. The success is not recorded, and says so; whoever comes
    // next does the work, and that one is recorded.
    server.step_clock(0);
    let ahead = one.once("report", "4").run(|_| {
        server.step_clock(HOUR);
        Ok::<_, ()>(())
    });
    let ahead = ahead.unwrap();
    assert!(matches!(ahead, Once::Unrecorded((), _)), "{ahead:?}");
    assert!(matches!(run(&other, "4"), Once::Done(_)));
    assert!(matches!(run(&one, "4"), Once::AlreadyDone { .. }));
}

/// The last fire time is one by the store's clock. If that is set ahead, it is done too early, and
/// those before it have passed when the clock is right again: none is done twice.
#[test]
fn a_fire_time_of_a_clock_that_was_wrong_is_not_done_again() {
    const HOUR: i64 = 3600;
    let server = Server::start_with_a_clock();
    let client = server.client();
    let hourly = || run(&client, Every::new(Duration::from_secs(HOUR.unsigned_abs())));
    let Once::Done(now) = hourly() else { panic!("it is due") };
    server.step_clock(HOUR);
    let Once::Done(early) = hourly() else { panic!("the next one is due by this clock") };
    assert!(early > now, "{early} after {now}");
    for seconds in [0, -HOUR] {
        server.step_clock(seconds);
        let again = hourly();
        assert!(matches!(again, Once::AlreadyDone { .. } | Once::Passed { .. }), "{again:?}");
    }
    // Two hours later the times go on.
    server.step_clock(2 * HOUR);
    assert!(matches!(hourly(), Once::Done(later) if later > early));
}
