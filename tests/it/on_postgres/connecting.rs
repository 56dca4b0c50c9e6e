//! Log-in, TLS, rights, the installation of the schema, and servers of other kinds.

use std::io::{Read, Write};
use std::time::Duration;

use leasehold::{ErrorKind, LockClient, POSTGRES_SCHEMA};

use super::{server, use_everything_as_app, wait_for_a_renewal};
use crate::rig::{CAP, Child, Postgres, ms, wait_until};
use crate::support::{Clients, ShortLease};

/// The timeout leaves time for the log-in, which is slow without optimizations.
fn open(url: &str) -> leasehold::Result<LockClient> {
    LockClient::builder().url(url).io_timeout(ms(9000)).lease(Duration::from_secs(60)).build()
}

#[track_caller]
fn refused(url: &str) -> leasehold::Error {
    let error = open(url).unwrap_err();
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    error
}

fn ask_for_passwords(server: &Postgres, method: &str) {
    std::fs::write(
        server.data().join("pg_hba.conf"),
        format!("local all leasehold trust\nlocal all all {method}\nhost all all all {method}\n"),
    )
    .unwrap();
    server.run_sql("SELECT pg_reload_conf()");
}

#[test]
fn passwords_are_checked_both_ways() {
    let server = server!(Postgres::start());
    server.run_sql(&format!(
        "{POSTGRES_SCHEMA}; SET password_encryption = 'md5'; CREATE ROLE old SUPERUSER LOGIN PASSWORD 'secret: 1'; \
        SET password_encryption = 'scram-sha-256'; CREATE ROLE app SUPERUSER LOGIN PASSWORD 'secret: 1'"
    ));
    let url = |user: &str, password: &str| {
        format!("postgres://{user}{password}@/postgres?host={}", server.dir().display())
    };
    for (method, user) in
        [("scram-sha-256", "app"), ("md5", "old"), ("md5", "app"), ("password", "old")]
    {
        ask_for_passwords(&server, method);
        wait_until("the configuration is read", || open(&url(user, ":wrong")).is_err());
        let client = open(&url(user, ":secret%3A%201")).unwrap();
        client.lock("k").unwrap().unlock().unwrap();
        for wrong in [":secret", ":", ""] {
            let error = refused(&url(user, wrong));
            assert_eq!(error.kind(), ErrorKind::Denied, "{method} {wrong:?}: {error:?}");
        }
    }
    assert_eq!(refused(&url("nobody", ":secret")).kind(), ErrorKind::Denied);
    let other = url("app", ":secret%3A%201").replace("/postgres?", "/missing?");
    assert_eq!(refused(&other).kind(), ErrorKind::InvalidInput);
    // The bound log-in needs TLS.
    let bound = url("app", ":secret%3A%201") + "&channel_binding=require";
    ask_for_passwords(&server, "scram-sha-256");
    wait_until("the configuration is read", || open(&url("old", ":secret%3A%201")).is_err());
    assert_eq!(refused(&bound).kind(), ErrorKind::Denied);

    // From the variable, and from the password file, which may be in the home directory.
    let files = ["pgpass", ".pgpass"].map(|name| server.dir().join(name));
    for file in &files {
        std::fs::write(file, "*:*:*:app:secret\\: 1\n").unwrap();
        std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .unwrap();
    }
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    for (name, value) in [
        ("PGPASSWORD", "secret: 1"),
        ("PGPASSFILE", &text(&files[0])),
        ("HOME", &text(server.dir())),
    ] {
        let url = url("app", "");
        let mut child = Child::spawn(
            "on_postgres::connecting::a_client_without_a_password",
            &[("LEASEHOLD_TEST_URL", &url), (name, value)],
        );
        child.expect("connected");
        child.wait();
    }
}

#[test]
#[ignore = "a program for other tests"]
fn a_client_without_a_password() {
    LockClient::open(&std::env::var("LEASEHOLD_TEST_URL").unwrap()).unwrap();
    println!("@@connected");
}

/// The rights that the chapter lists are sufficient, and the role has no others.
#[test]
fn a_role_needs_few_rights() {
    let server = server!(Postgres::start());
    server.run_sql("CREATE ROLE app LOGIN");
    let url = server.url().replace("leasehold@", "app@");
    let error = refused(&url);
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("POSTGRES_SCHEMA"), "{error}");
    let error = LockClient::builder()
        .postgres(leasehold::Postgres::new(&url).create_schema(false))
        .build()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("POSTGRES_SCHEMA"), "{error}");

    server.run_sql(POSTGRES_SCHEMA);
    let error = refused(&url);
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    server.run_sql(&crate::rig::role_grants());

    let client = LockClient::builder()
        .postgres(leasehold::Postgres::new(&url).create_schema(false))
        .short_lease(ms(6000))
        .build()
        .unwrap();
    let guard = client.lock("k").unwrap();
    wait_for_a_renewal(&server, "k");
    let mut db = server.connect();
    db.batch_execute("SET ROLE app").unwrap();
    let fence = guard.fence_sql().unwrap();
    for sql in [fence.sql(), fence.sql_at_commit()] {
        db.execute(sql, &[&fence.name(), &fence.token().as_i64()]).unwrap();
    }
    guard.unlock().unwrap();
    let fair = client.fair("f").lock().unwrap();
    assert!(client.fair("f").try_lock_owned().is_ok_and(|won| won.is_none()));
    let other = client.clone();
    assert!(
        std::thread::spawn(move || other.fair("f").try_lock_for(ms(50)).unwrap().is_none())
            .join()
            .unwrap()
    );
    fair.unlock().unwrap();
    db.batch_execute("RESET ROLE; SET ROLE app; SELECT leasehold_v1.sweep(0, 100), leasehold_v1.sweep_locks(0, 100)")
        .unwrap();
    use_everything_as_app(&server, &client);
    assert!(db.batch_execute("DROP TABLE leasehold.lock").is_err());
}

#[test]
fn the_schema_is_installed_once_and_known_by_its_version() {
    let server = server!(Postgres::start());
    std::thread::scope(|s| {
        let installs: Vec<_> = (0..6)
            .map(|_| s.spawn(|| server.client().lock("k").map(|guard| guard.unlock())))
            .collect();
        for install in installs {
            install.join().unwrap().unwrap().unwrap();
        }
    });
    server.run_sql(POSTGRES_SCHEMA);
    let client = server.client();
    let guard = client.lock("k").unwrap();
    // The functions are replaced while a client has prepared them.
    server.run_sql(POSTGRES_SCHEMA);
    client.lock("j").unwrap().unlock().unwrap();
    guard.unlock().unwrap();
    // Simulates the restore of a database without the schema.
    server.run_sql("DROP SCHEMA leasehold_v1 CASCADE; DROP SCHEMA leasehold CASCADE");
    client.lock("j").unwrap().unlock().unwrap();
    server.run_sql("UPDATE leasehold.meta SET tables = 2");
    assert_eq!(LockClient::open(&server.url()).unwrap_err().kind(), ErrorKind::Unsupported);
}

/// A pooler reports a process id other than the backend's.
#[test]
fn a_pooler_is_recognized() {
    let server = server!();
    let number = Postgres::fresh_number();
    let listener =
        std::os::unix::net::UnixListener::bind(server.dir().join(format!(".s.PGSQL.{number}")))
            .unwrap();
    let upstream = server.socket();
    let pooler = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut backend = std::os::unix::net::UnixStream::connect(upstream).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), backend.try_clone().unwrap());
        std::thread::scope(|s| {
            s.spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                to.shutdown(std::net::Shutdown::Both)
            });
            let mut bytes = [0; 8192];
            let mut changed = false;
            while let Ok(length @ 1..) = backend.read(&mut bytes) {
                // The message K: its length, 12, and the process id.
                let key = bytes[..length].windows(5).position(|part| part == [b'K', 0, 0, 0, 12]);
                if let Some(at) = key.filter(|_| !std::mem::replace(&mut changed, true)) {
                    bytes[at + 8] ^= 1;
                }
                if client.write_all(&bytes[..length]).is_err() {
                    break;
                }
            }
            let _ = backend.shutdown(std::net::Shutdown::Both);
        });
    });
    let error = LockClient::open(&server.url_at(number)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("pooler"), "{error}");
    pooler.join().unwrap();
}

#[test]
fn a_name_that_the_encoding_of_the_database_cannot_express_is_invalid_input() {
    let server = server!(Postgres::start());
    server.run_sql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let client = LockClient::open(&server.url().replace("/postgres?", "/latin?")).unwrap();
    client.lock("é").unwrap().unlock().unwrap();
    let error = client.try_lock("€").map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("UTF8"), "{error}");
}

/// The server counts and logs sessions whose client was lost.
#[test]
fn a_client_that_is_closed_says_goodbye_on_all_its_connections() {
    let server = server!(Postgres::start());
    let mut db = server.connect();
    let mut number = |column: &str| -> i64 {
        let sql =
            format!("SELECT {column} FROM pg_stat_database WHERE datname = current_database()");
        db.query_one(&sql, &[]).unwrap().get(0)
    };
    let (abandoned, sessions) = (number("sessions_abandoned"), number("sessions"));
    for closes in [true, false] {
        let builder = server.builder().connections(2).lease(ms(12_000));
        let client = builder.io_timeout(ms(9000)).build().unwrap();
        let guard = client.lock("held").unwrap();
        wait_for_a_renewal(&server, "held");
        std::thread::scope(|s| {
            let waits = s.spawn(|| client.try_lock_for("held", CAP).map(drop));
            wait_until("it listens", || server.listeners() > 0);
            guard.unlock().unwrap();
            waits.join().unwrap().unwrap();
        });
        if closes {
            client.close(CAP).unwrap();
        }
        drop(client);
    }
    wait_until("one was for calls, one for renewals, one for messages", || {
        number("sessions") >= sessions + 6
    });
    // That of `db` goes on.
    wait_until("all have ended", || server.backends() == 1);
    std::thread::sleep(ms(300));
    assert_eq!(number("sessions_abandoned"), abandoned);
}

#[test]
fn servers_that_are_none_are_told_as_that() {
    let dir = crate::rig::fresh_dir();
    let socket = dir.join(".s.PGSQL.5432");
    let url = format!("postgres://u:secret@/d?host={}", dir.display());
    assert_eq!(refused(&url).kind(), ErrorKind::Unreachable);
    // Huge lengths, invalid tags, an immediate end, endless notices, and silence.
    let notice = [&b"N"[..], &16_u32.to_be_bytes(), b"SNOTICE\0Mx\0\0"].concat();
    assert_eq!(notice.len(), 17);
    let cases: [(&[u8], bool, ErrorKind); 6] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", false, ErrorKind::Protocol),
        (b"R\xff\xff\xff\xff\0\0\0\0", false, ErrorKind::Protocol),
        (b"Z\0\0\0\x05I", false, ErrorKind::Protocol),
        (b"", true, ErrorKind::Unreachable),
        (&notice, false, ErrorKind::Unreachable),
        (b"", false, ErrorKind::Unreachable),
    ];
    for (answer, closes, kind) in cases {
        let _ = std::fs::remove_file(&socket);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let rains = answer.first() == Some(&b'N');
        let server = std::thread::spawn({
            let answer = answer.to_vec();
            move || {
                let (mut client, _) = listener.accept().unwrap();
                let mut bytes = [0; 512];
                let _ = client.read(&mut bytes);
                let _ = client.write_all(&answer);
                while rains && client.write_all(&answer).is_ok() {
                    std::thread::sleep(ms(5));
                }
                while !closes && matches!(client.read(&mut bytes), Ok(1..)) {}
            }
        });
        // What says something wrong is told at once.
        let io = if kind == ErrorKind::Protocol { ms(9000) } else { ms(300) };
        let error = LockClient::builder().url(&url).io_timeout(io).build().unwrap_err();
        assert_eq!(error.kind(), kind, "{answer:?}: {error:?}");
        server.join().unwrap();
    }
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_client_that_is_not_connected_shows_no_password_and_checks_names() {
    let url = "postgres://u:secret@localhost/d";
    let elsewhere = LockClient::builder().postgres("redis://localhost/").build().unwrap_err();
    assert_eq!(elsewhere.kind(), ErrorKind::InvalidInput);
    let builder = LockClient::builder().url(url);
    assert!(
        !format!("{builder:?}").contains("secret")
            && format!("{builder:?}").contains("localhost:5432")
    );
    let client = LockClient::builder().url(url).connect_lazily().build().unwrap();
    assert_eq!(client.lock("zero\0byte").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(
        client
            .fenced_value("k")
            .claim(leasehold::fencing::FencingToken::new(1))
            .unwrap_err()
            .kind(),
        ErrorKind::Unsupported
    );
    client.close(Duration::from_secs(1)).unwrap();
}

#[cfg(feature = "tls")]
#[test]
fn tls_is_checked_and_bound_to_the_log_in() {
    use crate::rig::Certificates;
    let certificates = Certificates::new();
    let server = server!(Postgres::prepare("ssl = on"));
    let server = server.listening_with(certificates.server());
    server
        .run_sql(&format!("{POSTGRES_SCHEMA}; CREATE ROLE app SUPERUSER LOGIN PASSWORD 'secret'"));
    ask_for_passwords(&server, "scram-sha-256");
    let ca = certificates.ca_file();
    let url = |parameters: &str| server.tcp_url("app:secret", parameters);
    wait_until("the configuration is read", || open(&server.tcp_url("app:wrong", "")).is_err());
    let is_secure = |client: &LockClient| {
        client.lock("k").unwrap().unlock().unwrap();
        server.number_of(
            "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND usename = 'app'",
        ) > 0
    };
    for parameters in ["", "sslmode=require", "sslmode=require&channel_binding=require"] {
        assert!(is_secure(&open(&url(parameters)).unwrap()), "{parameters}");
        wait_until("its backends are gone", || server.backends() == 0);
    }
    let full = format!("sslmode=verify-full&sslrootcert={}&channel_binding=require", ca.display());
    assert!(is_secure(&open(&url(&full)).unwrap()));
    wait_until("its backends are gone", || server.backends() == 0);
    let by_builder = LockClient::builder()
        .url(url(""))
        .io_timeout(ms(9000))
        .lease(Duration::from_secs(60))
        .tls(leasehold::Tls::new().ca_file(&ca))
        .build()
        .unwrap();
    assert!(is_secure(&by_builder));
    // Another authority, and a waiter over TLS.
    let other = Certificates::new();
    let wrong = format!("sslmode=verify-full&sslrootcert={}", other.ca_file().display());
    assert_eq!(refused(&url(&wrong)).kind(), ErrorKind::Tls);
    let plain = open(&url("sslmode=disable")).unwrap();
    let guard = plain.lock("k").unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| by_builder.lock("k").unwrap().unlock().unwrap());
        wait_until("it waits", || {
            server.number_of("SELECT count(*) FROM leasehold.lock WHERE wants IS NOT NULL") > 0
        });
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
    drop((plain, by_builder));
    server.assert_clean();
    // A server without TLS.
    server.run_sql("ALTER SYSTEM SET ssl = off");
    server.run_sql("SELECT pg_reload_conf()");
    wait_until("TLS is off", || {
        open(&url("sslmode=require")).is_err_and(|e| e.kind() == ErrorKind::Tls)
    });
    open(&url("")).unwrap();
}
