//! The server's clock is stepped, and the user may not kill connections, so acquires have a time
//! by that clock after which they do not run.

use std::time::Duration;

use leasehold::{LockClient, Redlock};

use crate::rig::{Fault, Proxy, Server, ms, wait_until};
use crate::support::{Masters, wait_for_votes};

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
        let client = LockClient::builder().url(&url).build().unwrap();
        assert_eq!(proxy.hits(), 1);
        proxy.forget_hit();
        println!("{what}");
        call(&client);
        let connections = server.client_lines().len();
        for _ in 0..20 {
            client.try_lock("again").unwrap().unwrap().unlock().unwrap();
        }
        assert_eq!(server.client_lines().len(), connections, "{what}: the new connection is kept");
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
