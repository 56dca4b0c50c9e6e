//! TLS modes of the URL, client certificates, and log-ins bound to the TLS connection.

use std::io::{ErrorKind as Io, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use leasehold::{ErrorKind, LockClient, POSTGRES_SCHEMA};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::server;
use crate::rig::{Certificates, Identity, Postgres, TlsFront, ms, wait_until};

/// The timeout leaves time for the log-in, which is slow without optimizations.
fn open(url: &str) -> leasehold::Result<LockClient> {
    LockClient::builder().url(url).io_timeout(ms(9000)).build()
}

#[track_caller]
fn refused(url: &str) -> leasehold::Error {
    let error = open(url).unwrap_err();
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    error
}

/// A server with this certificate, and a role `app` with a password.
fn start(certificates: &Certificates, identity: &Identity) -> Postgres {
    let server = Postgres::prepare(
        "ssl = on\nssl_ca_file = 'root.crt'\npassword_encryption = 'scram-sha-256'",
    );
    let root = server.data().join("root.crt");
    std::fs::copy(certificates.ca_file(), &root).unwrap();
    std::fs::set_permissions(&root, PermissionsExt::from_mode(0o600)).unwrap();
    server.own(&root);
    let server = server.listening_with(identity);
    server.run_sql(&format!(
        "{POSTGRES_SCHEMA}; CREATE ROLE app SUPERUSER LOGIN PASSWORD 'secret'; CREATE ROLE client SUPERUSER LOGIN"
    ));
    server
}

/// Sets the log-in rules for everybody except the tests themselves.
fn let_in(server: &Postgres, rules: &str) {
    // A new connection inherits this time from the main process, which then also reads the rules.
    let loaded =
        || server.number_of("SELECT (extract(epoch FROM pg_conf_load_time()) * 1000000)::bigint");
    let before = loaded();
    std::fs::write(
        server.data().join("pg_hba.conf"),
        format!("local all leasehold trust\n{rules}\n"),
    )
    .unwrap();
    server.run_sql("SELECT pg_reload_conf()");
    wait_until("the rules are read", || loaded() > before);
}

/// Whether the client uses TLS, shown by a lock that it takes.
fn is_secure(server: &Postgres, client: LockClient) -> bool {
    client.lock("k").unwrap().unlock().unwrap();
    let sql = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
               WHERE ssl AND usename IN ('app', 'client')";
    let secure = server.number_of(sql) > 0;
    drop(client);
    wait_until("its backends are gone", || server.backends() == 0);
    secure
}

/// The behaviour of libpq in each mode if the server's rules allow only one way.
#[test]
fn each_mode_finds_the_way_that_is_open() {
    let certificates = Certificates::new();
    let server = server!(start(&certificates, certificates.server()));
    let with = |mode: &str| server.tcp_url("app:secret", &format!("sslmode={mode}"));
    // The outcome in each mode: with TLS, without, or refused.
    let found = |mode: &str| match open(&with(mode)) {
        Ok(client) => Ok(is_secure(&server, client)),
        Err(error) => Err(error.kind()),
    };
    let_in(&server, "hostssl all app all scram-sha-256");
    for mode in ["allow", "prefer", "require"] {
        assert_eq!(found(mode), Ok(true), "{mode}, with TLS only");
    }
    assert_eq!(found("disable"), Err(ErrorKind::Denied));
    let_in(&server, "hostnossl all app all scram-sha-256");
    for mode in ["allow", "prefer", "disable"] {
        assert_eq!(found(mode), Ok(false), "{mode}, without TLS only");
    }
    assert_eq!(found("require"), Err(ErrorKind::Denied));
    let_in(&server, "host all app all scram-sha-256");
    assert_eq!((found("allow"), found("prefer")), (Ok(false), Ok(true)), "both ways");
    // A wrong password is not a matter of rules: it is not sent a second time in the other way.
    for mode in ["allow", "prefer"] {
        let error = refused(&server.tcp_url("app:wrong-secret", &format!("sslmode={mode}")));
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(!error.to_string().contains("without TLS"), "{error}");
    }
    let_in(&server, "");
    for mode in ["allow", "prefer"] {
        let error = refused(&with(mode));
        let said = error.to_string();
        assert!(
            said.contains("with TLS") && said.contains("without TLS"),
            "both are reported: {said}"
        );
        assert_eq!(error.kind(), ErrorKind::Denied);
    }
    let_in(&server, "host all app all scram-sha-256");
    drop(open(&with("require")).unwrap());
    server.assert_clean();
}

#[test]
fn the_certificate_is_checked_as_far_as_the_mode_says() {
    let certificates = Certificates::new();
    let other = Certificates::new();
    let opens =
        |server: &Postgres, parameters: &str| match open(&server.tcp_url("app:secret", parameters))
        {
            Ok(client) => is_secure(server, client).to_string(),
            Err(error) => format!("{:?}", error.kind()),
        };
    let ca = format!("sslrootcert={}", certificates.ca_file().display());
    let foreign = format!("sslrootcert={}", other.ca_file().display());
    // The server's certificate; with verify-full, verify-ca, require and the authority.
    let cases = [
        (certificates.server().clone(), ["true", "true", "true"]),
        // A certificate for another host.
        (certificates.other_name(), ["Tls", "true", "true"]),
        (certificates.expired(), ["Tls", "Tls", "Tls"]),
        (certificates.other_ca(), ["Tls", "Tls", "Tls"]),
        (certificates.self_signed(), ["Tls", "Tls", "Tls"]),
    ];
    for (identity, wanted) in cases {
        let server = server!(start(&certificates, &identity));
        let modes = ["verify-full", "verify-ca", "require"];
        let found = modes.map(|mode| opens(&server, &format!("sslmode={mode}&{ca}")));
        assert_eq!(found, wanted, "{identity:?}");
        let foreign = modes.map(|mode| opens(&server, &format!("sslmode={mode}&{foreign}")));
        assert_eq!(foreign, ["Tls"; 3], "{identity:?}");
        assert_eq!(opens(&server, "sslmode=require"), "true", "{identity:?}");
        server.assert_clean();
    }
}

/// `clientcert=verify-full`: the certificate is signed by an authority that the server trusts, and
/// contains the name of the role.
#[test]
fn a_client_certificate_is_the_log_in() {
    let certificates = Certificates::new();
    let server = server!(start(&certificates, certificates.server()));
    let files = |identity: &Identity| {
        format!("sslcert={}&sslkey={}", identity.certificate.display(), identity.key.display())
    };
    let ca = format!("sslmode=verify-full&sslrootcert={}", certificates.ca_file().display());
    let (own, foreign) = (files(certificates.client()), files(Certificates::new().client()));
    // Instead of a password, and in addition to it.
    let_in(
        &server,
        "hostssl all client all cert\nhostssl all app all scram-sha-256 clientcert=verify-full\n\
         hostssl postgres all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca",
    );
    assert!(is_secure(&server, open(&server.tcp_url("client", &format!("{ca}&{own}"))).unwrap()));
    for mode in ["prefer", "require"] {
        let url = server.tcp_url("client", &format!("sslmode={mode}&{own}"));
        assert!(is_secure(&server, open(&url).unwrap()), "{mode}");
    }
    // Configured by the builder.
    let tls = leasehold::Tls::new().ca_file(certificates.ca_file());
    let tls = tls.identity_files(&certificates.client().certificate, &certificates.client().key);
    let client = LockClient::builder()
        .url(server.tcp_url("client", ""))
        .io_timeout(ms(9000))
        .tls(tls)
        .build();
    assert!(is_secure(&server, client.unwrap()));
    // No certificate, that of another role, one that the server does not trust.
    let none = refused(&server.tcp_url("client", &ca));
    assert_eq!(none.kind(), ErrorKind::Denied, "{none}");
    let another = refused(&server.tcp_url("app:secret", &format!("{ca}&{own}")));
    assert_eq!(another.kind(), ErrorKind::Denied, "{another}");
    let error = open(&server.tcp_url("client", &format!("{ca}&{foreign}"))).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Tls | ErrorKind::InvalidInput), "{error}");
    server.assert_clean();
}

/// `channel_binding=require`: either SCRAM over TLS, or a refusal before the password is sent.
#[test]
fn a_log_in_that_must_be_bound_is_bound_or_refused() {
    let certificates = Certificates::new();
    let server = server!(start(&certificates, certificates.server()));
    server.run_sql(
        "SET password_encryption = 'md5'; CREATE ROLE old SUPERUSER LOGIN PASSWORD 'secret'",
    );
    let bound = "channel_binding=require";
    let_in(
        &server,
        "local all app scram-sha-256\nhost all app all scram-sha-256\nhost all old all md5",
    );
    assert!(is_secure(&server, open(&server.tcp_url("app:secret", bound)).unwrap()));
    for parameters in ["channel_binding=prefer", "channel_binding=disable", ""] {
        assert!(
            is_secure(&server, open(&server.tcp_url("app:secret", parameters)).unwrap()),
            "{parameters}"
        );
    }
    let wrong = refused(&server.tcp_url("app:wrong-secret", bound));
    assert_eq!(wrong.kind(), ErrorKind::Denied);
    assert!(wrong.to_string().contains("28P01"), "the password: {wrong}");
    let because_of_binding = |url: &str| {
        let error = refused(url);
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("channel_binding=require"), "{error}");
    };
    // Without TLS; with a log-in that cannot be bound. The client refuses it before the server
    // could report a wrong password.
    because_of_binding(&server.tcp_url("app:secret", &format!("{bound}&sslmode=disable")));
    because_of_binding(&server.tcp_url("old:wrong-secret", bound));
    let_in(
        &server,
        "hostssl all app all password\nhostssl all old all trust\nlocal all app scram-sha-256",
    );
    because_of_binding(&server.tcp_url("app:wrong-secret", bound));
    because_of_binding(&server.tcp_url("old:secret", bound));
    // A man in the middle, with a certificate that would be accepted.
    let front = TlsFront::before_postgres(&certificates, server.socket());
    because_of_binding(&front.postgres_url("app:secret", bound));
    assert!(
        open(&front.postgres_url("app:secret", "channel_binding=prefer")).is_ok(),
        "that is what it prevents"
    );
    drop(front);
    server.assert_clean();
}

/// The log-in is bound for any hash of the certificate's signature; if no binding is defined for
/// it, the error says so.
#[test]
fn a_log_in_is_bound_by_the_hash_of_the_signature() {
    let certificates = Certificates::new();
    let server = server!(start(&certificates, &certificates.with_sha512()));
    let_in(&server, "host all app all scram-sha-256");
    for binding in ["require", "prefer"] {
        let url =
            server.tcp_url("app:secret", &format!("sslmode=require&channel_binding={binding}"));
        assert!(is_secure(&server, open(&url).unwrap()), "{binding}");
    }
    server.assert_clean();
    let server = server!(start(&certificates, &certificates.with_ed25519()));
    let_in(&server, "host all app all scram-sha-256");
    let error = refused(&server.tcp_url("app:secret", "sslmode=require&channel_binding=require"));
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("signed in a way"), "{error}");
    server.assert_clean();
}

/// A man in the middle who has a certificate of the same authority for the same host, and TLS to
/// both sides: only the binding reveals it.
#[test]
fn a_bound_log_in_does_not_pass_somebody_with_a_good_certificate() {
    let certificates = Certificates::new();
    let server = server!(start(&certificates, &certificates.renewed()));
    let_in(&server, "host all app all scram-sha-256");
    let upstream = pass_on_over_tls(&server, &certificates);
    let front = TlsFront::before_postgres(&certificates, upstream);
    let verified = format!("sslmode=verify-full&sslrootcert={}", certificates.ca_file().display());
    for binding in ["require", "prefer"] {
        let parameters = format!("{verified}&channel_binding={binding}");
        let error = refused(&front.postgres_url("app:secret", &parameters));
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(error.to_string().contains("channel binding"), "{error}");
        assert!(is_secure(&server, open(&server.tcp_url("app:secret", &parameters)).unwrap()));
    }
    let without = format!("{verified}&channel_binding=disable");
    drop(open(&front.postgres_url("app:secret", &without)).expect("that is what it prevents"));
    drop(front);
    server.assert_clean();
}

/// A socket that leads to the server over TLS.
fn pass_on_over_tls(server: &Postgres, certificates: &Certificates) -> std::path::PathBuf {
    let path = server.dir().join("middle");
    let (listener, port) = (UnixListener::bind(&path).unwrap(), server.number());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificates.ca_file()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let session =
                ClientConnection::new(config.clone(), ServerName::try_from("127.0.0.1").unwrap())
                    .unwrap();
            let upstream = TcpStream::connect(("127.0.0.1", port));
            // Ends with either connection.
            std::thread::spawn(move || {
                upstream.and_then(|upstream| pass_on(client, upstream, session))
            });
        }
    });
    path
}

fn pass_on(
    mut client: UnixStream,
    mut server: TcpStream,
    mut session: ClientConnection,
) -> std::io::Result<()> {
    // The request for TLS.
    server.write_all(&[0, 0, 0, 8, 4, 210, 22, 47])?;
    server.read_exact(&mut [0])?;
    session.complete_io(&mut server)?;
    client.set_read_timeout(Some(ms(5)))?;
    server.set_read_timeout(Some(ms(5)))?;
    let is_late = |error: &std::io::Error| matches!(error.kind(), Io::WouldBlock | Io::TimedOut);
    let mut chunk = [0; 4096];
    loop {
        match client.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(length) => session.writer().write_all(&chunk[..length])?,
            Err(error) if is_late(&error) => {}
            Err(error) => return Err(error),
        }
        while session.wants_write() {
            session.write_tls(&mut server)?;
        }
        match session.read_tls(&mut server) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                session.process_new_packets().map_err(std::io::Error::other)?;
            }
            Err(error) if is_late(&error) => {}
            Err(error) => return Err(error),
        }
        let mut plain = Vec::new();
        match session.reader().read_to_end(&mut plain) {
            Err(error) if error.kind() != Io::WouldBlock => return Err(error),
            _ => client.write_all(&plain)?,
        }
    }
}
