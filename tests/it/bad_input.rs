//! Invalid input is reported before anything is sent.

use std::error::Error as _;
use std::time::Duration;

use leasehold::{Error, ErrorKind, LockClient, Redis, Redlock};

use crate::rig::{Server, ms};
use crate::support::Clients;

const SECRET: &str = "s3cr3t-pw";
const BAD_LEASES: [Duration; 5] = [
    Duration::ZERO,
    ms(19),
    Duration::from_nanos(1),
    Duration::from_secs(366 * 24 * 60 * 60),
    Duration::MAX,
];

/// The text of an error and of all its causes.
fn words(e: &Error) -> String {
    let mut all = format!("{e} {e:?}");
    let mut cause = e.source();
    while let Some(c) = cause {
        all += &format!(" {c} {c:?}");
        cause = c.source();
    }
    all
}

#[track_caller]
fn invalid<T: std::fmt::Debug>(result: leasehold::Result<T>, name: Option<&str>, says: &str) {
    let e = result.unwrap_err();
    assert_eq!((e.kind(), e.name()), (ErrorKind::InvalidInput, name), "{e:?}");
    assert!(e.to_string().contains(says), "{e} does not say {says:?}");
    assert!(!words(&e).contains(SECRET), "{e:?}");
}

#[test]
fn names_that_cannot_work_are_refused_by_every_method() {
    let server = Server::start();
    let client = server.client();
    let before = server.call_count("evalsha");
    for (name, says) in
        [("", "empty"), ("a{b", "braces"), ("a{}b", "braces"), ("a}b", "braces"), ("{", "braces")]
    {
        let mutex = client.mutex(name);
        let named = Some(name);
        invalid(client.lock(name), named, says);
        invalid(mutex.try_lock(), named, says);
        invalid(mutex.try_lock_for(ms(10)), named, says);
        invalid(mutex.lock_owned(), named, says);
        invalid(mutex.try_lock_owned(), named, says);
        invalid(mutex.is_locked(), named, says);
        invalid(mutex.holder(), named, says);
        invalid(mutex.force_unlock(), named, says);
    }
    // The name is not quoted: a megabyte of message would help nobody.
    let long = "x".repeat(1 << 20);
    invalid(client.lock(&long), None, "1024");
    assert!(client.lock(&long).unwrap_err().to_string().len() < 200);
    invalid(client.lock("x".repeat(1025)), None, "1024");
    drop(client.lock("x".repeat(1024)).unwrap());

    let prefixed = server.builder().key_prefix("p".repeat(1000)).build().unwrap();
    invalid(prefixed.lock("x".repeat(25)), None, "prefix");
    drop(prefixed.lock("x".repeat(24)).unwrap());
    // The prefix opens a brace, so every name that does not close it is invalid.
    let braced = server.builder().key_prefix("app{").build().unwrap();
    invalid(braced.lock("job"), Some("job"), "braces");
    drop(braced.lock("job}").unwrap());

    // Each successful lock and release ran one script, and each connection its probe; invalid input
    // sent nothing.
    assert!(server.call_count("evalsha") - before <= 6 + 3);
    drop((client, prefixed, braced));
    server.assert_clean();
}

#[test]
fn leases_out_of_range_are_refused_wherever_they_are_given() {
    let server = Server::start();
    let client = server.client();
    for bad in BAD_LEASES {
        let mutex = client.mutex("job").with_lease(bad);
        invalid(mutex.lock(), Some("job"), "lease");
        invalid(mutex.try_lock_owned_for(ms(10)), Some("job"), "lease");
        invalid(server.builder().lease(bad).build(), None, "lease");
        let guard = client.lock("job").unwrap();
        invalid(guard.extend(bad), Some("job"), "lease");
        assert!(guard.is_held());
        guard.unlock().unwrap();
    }
    // A valid lease that overrides an invalid one is accepted.
    drop(client.mutex("job").with_lease(Duration::ZERO).with_lease(ms(2000)).lock().unwrap());
    drop(client);
    server.assert_clean();
}

#[test]
fn settings_are_checked_against_each_other() {
    let server = Server::start();
    let ok = || server.builder();
    invalid(LockClient::builder().build(), None, "by its URL");
    invalid(LockClient::builder().connect_lazily().build(), None, "by its URL");
    invalid(ok().lease(ms(500)).io_timeout(ms(500)).build(), None, "io_timeout");
    invalid(ok().io_timeout(Duration::from_secs(31)).build(), None, "io_timeout");
    invalid(ok().io_timeout(Duration::ZERO).build(), None, "io_timeout");
    invalid(ok().io_timeout(Duration::MAX).build(), None, "io_timeout");
    invalid(ok().connections(0).build(), None, "connections");
    invalid(ok().connections(1025).build(), None, "connections");
    invalid(ok().max_hold(Duration::ZERO).build(), None, "maximum hold");
    invalid(ok().waiter_timeout(ms(199)).build(), None, "waiter_timeout");
    invalid(ok().waiter_timeout(ms(300_001)).build(), None, "waiter_timeout");
    for wrong in [Duration::ZERO, Duration::MAX] {
        let beside_java = Redis::new(server.url()).java_waiter_timeout(wrong);
        invalid(LockClient::builder().redis(beside_java).build(), None, "java_waiter_timeout");
    }
    invalid(ok().key_prefix("p".repeat(1024)).build(), None, "key prefix");
    for bad in ["", "with space", "line\nfeed", "ümlaut", &"n".repeat(65)] {
        invalid(ok().client_name(bad).build(), None, "client_name");
    }
    drop(
        ok().client_name("a-B_3.c:d")
            .connections(1)
            .lease(ms(400))
            .io_timeout(ms(399))
            .connect_lazily()
            .build()
            .unwrap(),
    );
    drop(ok().lease(ms(20)).connect_lazily().build().unwrap());
    server.assert_clean();
}

/// A lazy client reports an invalid URL at once: only errors that need the server appear at the
/// first call.
#[track_caller]
fn invalid_url(url: &str, says: &str) {
    invalid(LockClient::builder().url(url).connect_lazily().build(), None, says);
}

#[test]
fn an_unknown_scheme_names_those_that_this_build_has() {
    for url in [
        "",
        "no url",
        "localhost:6379",
        "http://user:s3cr3t-pw@localhost/",
        "s3cr3t-pw@localhost",
        "redis-sentinel://localhost:26379/mymaster",
        "redis-cluster://localhost/",
        "postgre://u:s3cr3t-pw@localhost/d",
        "zookeepers://u:s3cr3t-pw@localhost",
    ] {
        let says = if url.is_empty() { "the URL is empty" } else { "scheme" };
        invalid(LockClient::open(url), None, says);
        invalid_url(url, "begins here with redis://, ");
        for (scheme, feature, is_on) in [
            ("rediss", "tls", cfg!(feature = "tls")),
            ("rediss+cluster", "tls", cfg!(feature = "tls")),
            ("postgres", "postgres", cfg!(feature = "postgres")),
            ("zookeeper", "zookeeper", cfg!(feature = "zookeeper")),
        ] {
            invalid_url(url, scheme);
            let error = LockClient::open(url).unwrap_err().to_string();
            let needs = format!("; with the cargo feature {feature:?} also ");
            assert_eq!(error.contains(&needs), !is_on, "{error}");
        }
    }
    for (url, feature, is_on) in [
        ("rediss://user:s3cr3t-pw@localhost/", "tls", cfg!(feature = "tls")),
        ("valkeys://localhost/", "tls", cfg!(feature = "tls")),
        ("postgres://u:s3cr3t-pw@localhost/d", "postgres", cfg!(feature = "postgres")),
        ("zookeeper://u:s3cr3t-pw@localhost", "zookeeper", cfg!(feature = "zookeeper")),
    ] {
        if !is_on {
            invalid_url(url, &format!("turn on the cargo feature {feature:?}"));
        }
    }
    // Each kind of servers has its own.
    let elsewhere = |builder: leasehold::Builder, says| invalid(builder.build(), None, says);
    elsewhere(LockClient::builder().redis("redis+cluster://h"), "begins here with redis://, ");
    let alone = "a URL of other servers, and given alone";
    let both = leasehold::Cluster::new(["redis+cluster://a:1", "redis://b:1"]);
    elsewhere(LockClient::builder().cluster(both), alone);
    elsewhere(
        LockClient::builder().sentinel(leasehold::Sentinel::new(["redis+sentinel://a/m"], "m")),
        alone,
    );
    elsewhere(
        LockClient::builder().sentinel("redis://h/m"),
        "begins here with redis+sentinel://, ",
    );
    elsewhere(LockClient::builder().cluster("redis+sentinel://h/m"), "redis+cluster");
    #[cfg(feature = "postgres")]
    elsewhere(
        LockClient::builder().postgres("redis://h/"),
        "begins here with postgres://, postgresql://",
    );
    #[cfg(feature = "zookeeper")]
    elsewhere(LockClient::builder().zookeeper("redis://h/"), "begins here with zookeeper://");
}

/// Each URL, and the part that its error names. If these were ignored, each URL would mean
/// something other than it says.
const WRONG_PARTS: [(&str, &str); 89] = [
    ("redis:localhost", "must be followed by ://"),
    ("redis:///", "host is missing"),
    ("redis://:6379/", "host is missing"),
    ("redis://user:s3cr3t-pw@/", "host is missing"),
    ("redis://localhost,other/", "several hosts"),
    ("redis://local host/", "a host in the URL"),
    ("redis://u:s3cr3t-pw@[::1/", "[address]:port"),
    ("redis://[::1]6379/", "[address]:port"),
    ("redis://[localhost]/", "a host in the URL"),
    ("redis://0.0.0.0/", "a host in the URL"),
    ("redis://::1/", "brackets"),
    ("redis://localhost:notaport/", "port"),
    ("redis://localhost:99999/", "port"),
    ("redis://localhost:0/", "port"),
    ("redis://localhost:+1/", "a host in the URL"),
    ("redis://:s3cr3t-pw@localhost:notaport/", "port"),
    ("redis://localhost/notadb", "database"),
    ("redis://user:s3cr3t-pw@localhost/x", "database"),
    ("redis://localhost/1/2", "database"),
    ("redis://localhost/?db=-1", "database"),
    ("redis://localhost/?db=x", "database"),
    ("redis+unix:///tmp/x?db=notadb", "database"),
    ("redis+unix:///tmp/x?db=x&pass=s3cr3t-pw", "database"),
    ("redis+unix://", "three slashes"),
    ("redis+unix://tmp/x", "three slashes"),
    ("redis+unix:///tmp/x?user=u", "no password"),
    ("redis+unix://u:s3cr3t-pw@localhost/tmp/x", "?user=..&pass=.."),
    ("redis+unix:///tmp/x#insecure", "'#'"),
    ("redis+unix:///tmp/x?ssl=true", "\"ssl\"; known are db, user, pass"),
    ("redis+unix:///tmp/x?db=2&db=3", "db twice"),
    ("redis://localhost/?ssl=true", "\"ssl\"; known are db, user, pass"),
    ("redis://localhost/?username=u", "\"username\"; known are user"),
    ("redis://localhost/?passwd=s3cr3t-pw", "an unknown parameter; known are db, user, pass"),
    ("redis://localhost/?pass=12&s3cr3t-pw=3", "an unknown parameter; known are db, user, pass"),
    ("redis://localhost/?protocol=3", "`protocol`"),
    ("redis://localhost/2?db=3", "db twice"),
    ("redis://localhost/?db=2&db=3", "db twice"),
    ("redis://u:s3cr3t-pw@localhost/?pass=s3cr3t-pw", "pass twice"),
    ("redis://u:s3cr3t-pw@localhost/?user=v", "user twice"),
    ("redis://localhost/#insecure", "'#'"),
    ("redis://localhost/\n3", "control character"),
    ("redis://user@localhost/", "no password"),
    ("redis://localhost/?user=u", "no password"),
    // A password that is not percent-encoded.
    ("redis://u:12/s3cr3t-pw@localhost/", "'@'"),
    ("redis://u:12/s3cr3t-pw@localhost/", "%2F"),
    ("redis://u:12#s3cr3t-pw@localhost/", "%23"),
    ("redis://u:12?s3cr3t-pw@localhost/", "%3F"),
    ("redis://u:12?s3cr3t-pw=@localhost/", "%3F"),
    ("redis://u:x/s3cr3t-pw@localhost/", "%2F"),
    ("redis://:s3cr3t-pw/@localhost/", "%2F"),
    ("redis+sentinel://localhost:26379", "names no master"),
    ("redis+sentinel://localhost,/m", "host is missing"),
    ("redis+sentinel://localhost:x/m", "port"),
    ("redis+sentinel://localhost/m/x", "database"),
    ("redis+sentinel://u:s3cr3t-pw@localhost/my master", "master's name"),
    ("redis+sentinel://u:s3cr3t-pw@localhost/m?sentinels=3", "\"sentinels\""),
    ("redis+sentinel://u:12/s3cr3t-pw@localhost:26379/mymaster", "%2F"),
    ("redis+sentinel://u:s3cr3t-pw@localhost/m#f", "'#'"),
    ("redis+cluster://u:s3cr3t-pw@a:7000,,b:7000", "host is missing"),
    ("redis+cluster://a:7000,b:x", "port"),
    ("redis+cluster://a:7000/x", "database"),
    ("redis+cluster://u:s3cr3t-pw@a:7000,b:7000?nodes=3", "\"nodes\""),
    ("postgres:u:s3cr3t-pw@localhost/d", "must be followed by ://"),
    ("postgres://u:s3cr3t-pw@/d", "host is missing"),
    ("postgres://u:s3cr3t-pw@a,:1/d", "host is missing"),
    ("postgres://u:s3cr3t-pw@localhost:x/d", "port"),
    ("postgres:///d?user=u&host=a&port=x", "port"),
    ("postgres:///d?user=u&host=a,b&port=1,2,3", "number of ports"),
    ("postgres://u:s3cr3t-pw@localhost/d?host=other", "host or port twice"),
    ("postgres://localhost/d", "no user"),
    ("postgres://u:s3cr3t-pw@localhost/d/e", "database"),
    ("postgres://u:s3cr3t-pw@localhost/%zz", "the database in the URL has a '%'"),
    ("postgres://u:s3cr3t-pw%zz@localhost/d", "the password in the URL has a '%'"),
    ("postgres://u:s3cr3t-pw%ff@localhost/d", "the password in the URL"),
    ("postgres://u%00:s3cr3t-pw@localhost/d", "the user in the URL has a zero byte"),
    ("postgres://u:s3cr3t-pw@localhost/d?sslmod=on", "\"sslmod\"; known are sslmode, "),
    ("postgres://u:s3cr3t-pw@localhost/d?tls=on", "\"tls\"; known are user, password, "),
    ("postgres://u:s3cr3t-pw@localhost/d?sslmode", "no value"),
    ("postgres://u:12/s3cr3t-pw@localhost/d", "%2F"),
    ("postgres://u:s3cr3t-pw@localhost/d#f", "'#'"),
    ("zookeeper://u:s3cr3t-pw@", "host is missing"),
    ("zookeeper://u:s3cr3t-pw@local_host!", "a host in the URL"),
    ("zookeeper://u:s3cr3t-pw@localhost:x", "port"),
    ("zookeeper://s3cr3t-pw@localhost", "user:password"),
    ("zookeeper://u:s3cr3t-pw%zz@localhost", "the password in the URL has a '%'"),
    ("zookeeper://u:s3cr3t-pw@localhost/a//b", "chroot"),
    ("zookeeper://u:s3cr3t-pw@localhost?session=4", "no parameters"),
    ("zookeeper://u:12/s3cr3t-pw@localhost", "%2F"),
    ("zookeeper://u:s3cr3t-pw@localhost/a#b", "'#'"),
];

#[test]
fn a_wrong_url_names_the_part() {
    let with_tls = [
        ("rediss://localhost/#insecure", "'#'"),
        ("rediss:///tmp/s", "host is missing"),
        ("zookeeper+tls://u:s3cr3t-pw@h:x", "port"),
    ];
    for (url, part) in WRONG_PARTS.into_iter().chain(with_tls) {
        let is_off = url.starts_with("rediss") && cfg!(not(feature = "tls"))
            || url.starts_with("postgres") && cfg!(not(feature = "postgres"))
            || url.starts_with("zookeeper") && cfg!(not(feature = "zookeeper"))
            || url.starts_with("zookeeper+tls") && cfg!(not(feature = "tls"));
        let part = if is_off { "turn on the cargo feature" } else { part };
        invalid_url(url, part);
        let error = LockClient::open(url).unwrap_err().to_string();
        let (why, _) = error.split_once("the form of the URL").unwrap_or((&error, ""));
        assert!(why.contains(part), "{why} does not say {part:?}");
    }
}

/// The parameters of a Unix socket URL work over TCP as well.
#[test]
fn parameters_count_over_tcp() {
    let server = Server::start_tcp(&[]);
    server.cmd::<()>(&["ACL", "SETUSER", "u", "on", ">p@/ss", "~*", "&*", "+@all"]);
    let url = server.url();
    for (url, db) in [
        (format!("{url}?db=3&user=u&pass=p%40%2Fss"), 3),
        (format!("{}4?protocol=2", url.replace("//", "//u:p%40%2Fss@")), 4),
    ] {
        // The server may still list the connections of the client before.
        let name = format!("asks{db}");
        let client = LockClient::builder().url(url).client_name(&name).build().unwrap();
        let guard = client.lock("job").unwrap();
        let lines = server.client_lines();
        let line = lines.iter().find(|line| line.contains(&format!("name={name}"))).unwrap();
        assert!(line.contains(" user=u ") && line.contains(&format!(" db={db} ")), "{line}");
        drop(guard);
    }
}

#[test]
fn a_builder_shows_every_setting() {
    let shown = format!(
        "{:?}",
        LockClient::builder()
            .redlock(
                Redlock::new([
                    format!("redis://u:{SECRET}@a.example:7000/3"),
                    format!("redis+unix:///tmp/s?pass={SECRET}")
                ])
                .longest_lease(ms(61_000))
                .durable_nodes(true)
            )
            .connect_lazily()
    );
    assert!(!shown.contains(SECRET), "{shown}");
    for says in [
        "a.example:7000",
        "/tmp/s",
        "Redlock {",
        "longest_lease: Some(61s)",
        "admit_fresh_nodes: false",
        "durable_nodes: true",
        "connect_lazily: true",
        "fencing: true",
    ] {
        assert!(shown.contains(says), "{shown} lacks {says}");
    }
}

#[test]
fn no_debug_or_error_shows_the_password() {
    let server = Server::start();
    server.cmd::<()>(&["ACL", "SETUSER", "u", "on", &format!(">{SECRET}"), "~*", "&*", "+@all"]);
    let url = format!("{}?user=u&pass={SECRET}", server.url());
    let builder = LockClient::builder().url(&url);
    assert!(!format!("{builder:?}").contains(SECRET));
    let client = builder.build().unwrap();
    let mutex = client.mutex("job");
    let guard = mutex.lock().unwrap();
    let value = client.fenced_value("v");
    let shown = format!(
        "{client:?} {client:#?} {mutex:?} {mutex:#?} {guard:?} {value:?} {:?}",
        mutex.holder()
    );
    assert!(!shown.contains(SECRET), "{shown}");
    drop(guard);

    // No server, a server that refuses this password, a server that does not know the user.
    let nobody =
        LockClient::open(&format!("redis+unix:///nonexistent/s?user=u&pass={SECRET}")).unwrap_err();
    let wrong = LockClient::open(&format!("{url}x")).unwrap_err();
    let unknown =
        LockClient::open(&format!("{}?user=who&pass={SECRET}", server.url())).unwrap_err();
    let lazy = LockClient::builder()
        .url(format!("redis://u:{SECRET}@127.0.0.1:1/"))
        .connect_lazily()
        .build()
        .unwrap();
    let closed_port = lazy.lock("job").unwrap_err();
    assert_eq!(closed_port.kind(), ErrorKind::Unreachable);
    for e in [nobody, wrong, unknown, closed_port] {
        assert!(!words(&e).contains(SECRET), "{e:?}");
    }
}

/// A larger count would be taken for the data of another program by the other clients.
#[test]
fn a_lock_is_entered_9999_times_at_most() {
    let client = LockClient::in_memory();
    let lock = client.rw_lock("job");
    let guards: Vec<_> = (0..9_999).map(|_| lock.read().unwrap()).collect();
    let refused = lock.read().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert!(refused.to_string().contains("9999 times"), "{refused}");
    assert!(guards.iter().all(|guard| guard.is_held()));
    drop(guards);
    lock.write().unwrap().unlock().unwrap();
}
