//! Credentials that come from a provider, and change while clients are connected.

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Builder, Credentials, CredentialsProvider, ErrorKind, LockClient, Redis, Redlock};
use parking_lot::Mutex;

use crate::rig::{Fault, Proxy, Server, logged_anywhere, ms, record_logs, wait_until};
use crate::support::{Load, Masters, ShortLease, builder_with};

const EXPIRED: Fault = Fault::Reply(b"-NOAUTH Authentication required.\r\n");

/// What the provider returns now.
#[derive(Clone)]
struct Vault(Arc<Mutex<Option<Credentials>>>);

impl Vault {
    fn with(user: &str, password: &str) -> Self {
        Self(Arc::new(Mutex::new(Some(Credentials::new(user, password)))))
    }

    fn set(&self, user: &str, password: &str) {
        *self.0.lock() = Some(Credentials::new(user, password));
    }

    fn fail(&self) {
        *self.0.lock() = None;
    }
}

impl CredentialsProvider for Vault {
    fn credentials(&self) -> Result<Credentials, Box<dyn StdError + Send + Sync>> {
        self.0.lock().clone().ok_or_else(|| "the vault is sealed".into())
    }
}

fn set_user(server: &Server, rules: &[&str]) {
    let words = [&["ACL", "SETUSER", "app", "on", "~*", "&*", "+@all"], rules].concat();
    server.cmd::<()>(&words);
}

/// Replaces the password on all servers a few times, and each time ends all connections that logged
/// in with the previous one.
fn rotate(load: &Load, servers: &[&Server], vault: &Vault) {
    for round in 0..5 {
        load.wait_for_more(20);
        let (old, new) = (format!("p{round}"), format!("p{}", round + 1));
        for server in servers {
            set_user(server, &[&format!(">{new}")]);
        }
        vault.set("app", &new);
        for server in servers {
            set_user(server, &[&format!("<{old}")]);
            server.cmd::<u32>(&["CLIENT", "KILL", "USER", "app"]);
        }
    }
    load.wait_for_more(20);
}

#[test]
fn a_password_is_rotated_under_load() {
    let sum = Server::start();
    for server in [Server::start(), Server::start_tcp(&[])] {
        set_user(&server, &[">p0"]);
        let vault = Vault::with("app", "p0");
        let client =
            builder_with(&server, |redis| redis.credentials(vault.clone())).build().unwrap();
        let guard = client.lock("held").unwrap();
        let late = Load::run(&[&client], &sum, |load| rotate(load, &[&server], &vault));
        assert_eq!(late, 0);
        assert!(guard.is_held());
        guard.unlock().unwrap();
        drop(client);
        sum.cmd::<()>(&["FLUSHALL"]);
        server.assert_clean();
    }
}

#[test]
fn a_password_is_rotated_under_load_on_all_masters() {
    let masters = Masters::fresh(3);
    let servers: Vec<&Server> = masters.0.iter().collect();
    for server in &servers {
        set_user(server, &[">p0"]);
    }
    let (vault, sum) = (Vault::with("app", "p0"), Server::start());
    let client = masters
        .builder_with(|masters| masters.credentials(vault.clone()))
        .io_timeout(ms(5000))
        .build()
        .unwrap();
    let late = Load::run(&[&client], &sum, |load| rotate(load, &servers, &vault));
    assert_eq!(late, 0);
    drop(client);
    masters.assert_clean();
}

/// The provider learns the new password only while a log-in with the old one is in progress.
#[test]
fn a_refused_log_in_asks_the_provider_once_more() {
    let server = Server::start();
    let mut admin = server.connect();
    redis::cmd("CONFIG").arg(&["SET", "requirepass", "new"]).exec(&mut admin).unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let provider = move || {
        let first = count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        Ok(Credentials::password(if first { "old" } else { "new" }))
    };
    let client = builder_with(&server, |redis| redis.credentials(provider)).build().unwrap();
    client.lock("job").unwrap().unlock().unwrap();
    assert!(asked.load(Ordering::SeqCst).is_multiple_of(2));
}

#[test]
fn requirepass_is_changed_and_a_file_replaced() {
    let server = Server::start();
    let mut admin = server.connect();
    let mut require = |password: &str| {
        redis::cmd("CONFIG").arg(&["SET", "requirepass", password]).exec(&mut admin).unwrap();
        redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut admin).unwrap();
    };
    let path = server.dir().join("password");
    std::fs::write(&path, "first\n").unwrap();
    require("first");
    let client = builder_with(&server, |redis| redis.password_file(&path)).build().unwrap();
    let guard = client.lock("held").unwrap();
    client.lock("job").unwrap().unlock().unwrap();

    require("second");
    let e = client.lock("job").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Denied, "{e:?}");
    std::fs::write(&path, "second\r\n").unwrap();
    client.lock("job").unwrap().unlock().unwrap();
    assert!(guard.is_held());
    guard.unlock().unwrap();

    for (content, says) in [("", "is empty"), ("\n", "is empty")] {
        std::fs::write(&path, content).unwrap();
        require("third");
        let e = client.lock("job").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Denied);
        assert!(e.source().unwrap().to_string().contains(says), "{e:?}");
    }
    std::fs::remove_file(&path).unwrap();
    let e = client.lock("job").unwrap_err();
    assert!(e.source().unwrap().to_string().contains("password file"), "{e:?}");
    std::fs::write(&path, "third").unwrap();
    client.lock("job").unwrap().unlock().unwrap();
}

/// The URL's user logs in with the password of the file, or of a provider that names no user.
#[test]
fn the_user_may_be_in_the_url() {
    let server = Server::start();
    set_user(&server, &[">pw"]);
    let path = server.dir().join("password");
    std::fs::write(&path, "pw").unwrap();
    let named = || Redis::new(format!("{}?user=app", server.url()));
    for named in
        [named().password_file(&path), named().credentials(|| Ok(Credentials::password("pw")))]
    {
        let client = LockClient::builder().redis(named).build().unwrap();
        let guard = client.lock("job").unwrap();
        assert!(server.client_lines().iter().any(|line| line.contains("user=app")));
        guard.unlock().unwrap();
    }
    let refused = |builder: Builder| {
        let e = builder.build().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidInput, "{e:?}");
    };
    refused(LockClient::builder().redis(named()));
    refused(
        LockClient::builder()
            .redis(Redis::new(format!("{}?pass=pw", server.url())).password_file(&path)),
    );
    let both = format!("{}?user=app&pass=pw", server.url());
    refused(LockClient::builder().redis(Redis::new(both).credentials(|| Ok(("app", "pw").into()))));
}

/// Waits until the hold is renewed.
#[track_caller]
fn wait_for_a_renewal(server: &Server, name: &str) {
    let mut least = i64::MAX;
    wait_until("a renewal", || {
        let pttl = server.pttl(name);
        least = least.min(pttl);
        pttl > least
    });
}

/// Existing connections continue; new ones fail with the provider's error until it recovers.
#[test]
fn a_provider_that_fails_costs_no_hold() {
    let server = Server::start();
    set_user(&server, &[">pw"]);
    let vault = Vault::with("app", "pw");
    // A renewal has a quarter of it, and one that takes longer ends its connection.
    let lease = Duration::from_secs(16);
    // If the provider answers later than in a quarter of the I/O timeout, the credentials that it
    // gave before are used: a busy machine may take half a second.
    let builder =
        builder_with(&server, |redis| redis.credentials(vault.clone())).io_timeout(lease / 2);
    let client = builder.lease(lease).connections(1).build().unwrap();
    let guard = client.lock("held").unwrap();
    wait_until("it is renewed", || {
        server.client_lines().iter().filter(|line| line.contains("user=app")).count() >= 2
    });
    vault.fail();
    wait_for_a_renewal(&server, "held");
    wait_for_a_renewal(&server, "held");
    assert!(guard.is_held(), "renewed over the existing connection");
    client.lock("job").unwrap().unlock().unwrap();

    server.cmd::<u32>(&["CLIENT", "KILL", "USER", "app"]);
    let e = client.lock("job").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Denied);
    assert_eq!(e.source().unwrap().to_string(), "the vault is sealed");
    vault.set("app", "pw");
    client.lock("job").unwrap().unlock().unwrap();
    assert!(guard.is_held());
    guard.unlock().unwrap();
}

/// With Redlock, a master whose connections cannot be replaced counts as down.
#[test]
fn a_provider_that_fails_costs_no_hold_on_several_masters() {
    let masters = Masters::fresh(3);
    for server in &masters.0 {
        set_user(server, &[">pw"]);
    }
    let vault = Vault::with("app", "pw");
    let client = masters
        .builder_with(|masters| masters.credentials(vault.clone()))
        .lease(Duration::from_secs(16))
        .io_timeout(Duration::from_secs(8))
        .build()
        .unwrap();
    let guard = client.lock("held").unwrap();
    // `lock` returns with a majority; the third master may connect only now, with a log-in.
    wait_until("all masters hold it", || {
        masters.0.iter().all(|server| server.cmd::<u32>(&["EXISTS", "held"]) == 1)
    });
    vault.fail();
    masters.0[0].cmd::<u32>(&["CLIENT", "KILL", "USER", "app"]);
    wait_for_a_renewal(&masters.0[1], "held");
    wait_for_a_renewal(&masters.0[1], "held");
    assert!(guard.is_held(), "a majority is still connected");
    vault.set("app", "pw");
    guard.unlock().unwrap();
}

/// An expired identity: the server no longer knows the connection's user. Nothing ran, so each
/// request is repeated after a new log-in.
#[test]
fn a_connection_that_is_logged_out_is_replaced() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let asked = Arc::new(AtomicU32::new(0));
    let count = asked.clone();
    let provider = move || {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(Credentials::new("default", "any"))
    };
    let builder = LockClient::builder()
        .redis(Redis::new(proxy.url()).credentials(provider))
        .lease(Duration::from_secs(9))
        .io_timeout(Duration::from_secs(6));
    let client = builder.connections(1).build().unwrap();
    let expire = |word: &str| {
        proxy.inject(word, EXPIRED);
        (proxy.hits(), asked.load(Ordering::SeqCst))
    };
    let logged_in_again = |(hits, logins): (u32, u32)| {
        proxy.wait_hits(hits + 1);
        wait_until("a new log-in", || asked.load(Ordering::SeqCst) > logins);
    };
    let before = expire("job");
    let guard = client.lock("job").unwrap();
    logged_in_again(before);
    let before = expire("job");
    guard.unlock().unwrap();
    logged_in_again(before);

    let guard = client.lock("renewed").unwrap();
    logged_in_again(expire("renewed"));
    wait_for_a_renewal(&server, "renewed");
    assert!(guard.is_held());
    guard.unlock().unwrap();

    // Many callers share one connection: one request of a batch is refused, the others are not.
    let before = expire("batch7");
    std::thread::scope(|s| {
        for n in 0..16 {
            let client = &client;
            s.spawn(move || client.lock(format!("batch{n}")).unwrap().unlock().unwrap());
        }
    });
    logged_in_again(before);

    proxy.inject_times("twice", 2, EXPIRED);
    let e = client.lock("twice").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Denied, "{e:?}");
    client.lock("twice").unwrap().unlock().unwrap();
    drop(client);
    drop(proxy);
    server.assert_clean();
}

#[test]
fn masters_that_log_a_connection_out_are_asked_again() {
    let masters = Masters::fresh(3);
    let proxies: Vec<Proxy> = masters.0.iter().map(Proxy::start).collect();
    let urls: Vec<String> = proxies.iter().map(Proxy::url).collect();
    let builder = LockClient::builder()
        .redlock(Redlock::new(urls).credentials(|| Ok(("default", "any").into())));
    let client = builder.io_timeout(ms(5000)).build().unwrap();
    let expire = || proxies.iter().for_each(|proxy| proxy.inject("job", EXPIRED));
    for _ in 0..3 {
        expire();
        let guard = client.lock("job").unwrap();
        expire();
        guard.unlock().unwrap();
    }
    drop(client);
    drop(proxies);
    masters.assert_clean();
}

const SECRET: &str = "s3cr3t-0f-credent1als";

#[test]
fn the_secret_is_never_shown() {
    record_logs();
    let server = Server::start();
    let mut admin = server.connect();
    redis::cmd("CONFIG").arg(&["SET", "requirepass", SECRET]).exec(&mut admin).unwrap();
    let path = server.dir().join("password");
    std::fs::write(&path, SECRET).unwrap();
    let shown = Mutex::new(Vec::new());
    let show = |what: &dyn std::fmt::Debug| shown.lock().push(format!("{what:?} {what:#?}"));

    let client = builder_with(&server, |redis| redis.password_file(&path))
        .short_lease(ms(2000))
        .build()
        .unwrap();
    let guard = client.lock("job").unwrap();
    show(&builder_with(&server, |redis| redis.password_file(&path)));
    show(&LockClient::builder().url(format!("{}?pass={SECRET}", server.url())));
    show(&client);
    show(&guard);
    show(&client.nodes());
    show(&Credentials::new("me", SECRET));
    redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).exec(&mut admin).unwrap();
    std::thread::sleep(ms(1000));
    drop(guard);

    let mut errors = Vec::new();
    let mut fails = |builder: Builder| errors.push(builder.build().unwrap_err());
    let wrong = move || Ok(Credentials::password(format!("{SECRET}!")));
    fails(builder_with(&server, |redis| redis.credentials(wrong)));
    fails(builder_with(&server, |redis| redis.credentials(|| panic!("{}", SECRET))));
    fails(
        LockClient::builder()
            .redis(Redis::new(format!("{}?pass={SECRET}", server.url())).credentials(wrong)),
    );
    fails(LockClient::builder().url(format!("{}?pass={SECRET}!", server.url())));
    fails(LockClient::builder().url(format!("{}?user={SECRET}&pass={SECRET}", server.url())));
    // A server that does not know AUTH quotes the whole command; another one echoes it.
    let proxy = Proxy::start(&server);
    let unknown = b"-ERR unknown command 'AUTH', with args beginning with: 'default' 's3cr3t-0f-credent1als' \r\n";
    for reply in [&unknown[..], b"$21\r\ns3cr3t-0f-credent1als\r\n"] {
        proxy.inject("AUTH", Fault::Reply(Box::leak(reply.to_vec().into_boxed_slice())));
        fails(LockClient::builder().redis(Redis::new(proxy.url()).password_file(&path)));
    }
    for e in &errors {
        show(e);
        show(&format!("{e}"));
        let call = || -> leasehold::Result<()> { Err(e.clone()) };
        let panic = catch_unwind(AssertUnwindSafe(|| call().unwrap())).unwrap_err();
        show(panic.downcast_ref::<String>().unwrap());
        let mut cause = e.source();
        while let Some(e) = cause {
            show(&format!("{e} {e:?}"));
            cause = e.source();
        }
    }
    for text in shown.into_inner() {
        assert!(!text.contains(SECRET), "{text}");
    }
    assert_eq!(logged_anywhere(SECRET), [""; 0]);
    let its_path = server.dir().display().to_string();
    assert!(!logged_anywhere(&its_path).is_empty(), "what is said of this server is recorded");
}
