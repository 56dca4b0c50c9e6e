//! How clients log in, over what, and what the server must be.

use leasehold::{ErrorKind, LockClient};

use crate::rig::{Child, Mysql};
use crate::support::Clients;

#[test]
fn a_password_is_proved_over_tcp() {
    let server = Mysql::shared();
    let client = LockClient::open(&server.tcp_url("")).unwrap();
    client.lock("job").unwrap().unlock().unwrap();
    let wrong = server.tcp_url("").replace("secret", "guess");
    let error = LockClient::open(&wrong).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(!format!("{error:?}").contains("guess"));
    let nowhere = server.tcp_url("").replace("/test_", "/nowhere_");
    let error = LockClient::open(&nowhere).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
}

/// The settings of the server must not reach the statements of locks.
#[test]
fn settings_of_the_server_do_not_matter() {
    let server = Mysql::start_with(&[
        "--sql-mode=ANSI,TRADITIONAL",
        "--transaction-isolation=SERIALIZABLE",
        "--autocommit=0",
        "--default-time-zone=+05:00",
        "--character-set-server=latin1",
        "--innodb-lock-wait-timeout=100",
    ]);
    let (a, b) = (server.client(), server.client());
    let name = "ünicode 'quoted' \\ \u{1f512}";
    let guard = a.lock(name).unwrap();
    assert!(b.try_lock(name).unwrap().is_none());
    let left = b.mutex(name).holder().unwrap().unwrap().remaining().unwrap();
    assert!(left > std::time::Duration::from_secs(20), "{left:?}");
    assert_eq!(server.held(), [name]);
    guard.unlock().unwrap();
    assert!(b.try_lock(name).unwrap().is_some());
}

#[cfg(feature = "tls")]
#[test]
fn the_certificate_is_checked_if_it_is_wanted() {
    let certificates = crate::rig::Certificates::new();
    let (identity, ca) = (certificates.server(), certificates.ca_file());
    let options = [
        format!("--ssl-cert={}", identity.certificate.display()),
        format!("--ssl-key={}", identity.key.display()),
        format!("--ssl-ca={}", ca.display()),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = Mysql::start_with(&options);
    let encrypted = |parameters: &str| -> leasehold::Result<bool> {
        let client = LockClient::open(&server.tcp_url(parameters))?;
        client.lock("job")?.unlock()?;
        let findings = client.diagnose();
        Ok(findings.findings().iter().any(|finding| finding.found().contains("has TLS")))
    };
    let ca = ca.display().to_string().replace('/', "%2F");
    assert!(encrypted("").unwrap(), "preferred");
    assert!(encrypted("ssl-mode=required").unwrap());
    assert!(encrypted(&format!("ssl-ca={ca}")).unwrap());
    assert!(!encrypted("ssl-mode=disabled").unwrap());
    let error = encrypted("ssl-mode=verify_identity").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tls, "{error:?}");
}

#[test]
fn what_it_cannot_keep_is_refused_with_the_reason() {
    let server = Mysql::shared();
    let client = server.client();
    for (error, says) in [
        (client.fair("x").try_lock().map(drop), "fair locks"),
        (client.counting_semaphore("x").try_acquire().map(drop), "counting semaphores"),
        (client.latch("x").set_count(1).map(drop), "latches"),
        (client.mutex("x").with_data("d").try_lock().map(drop), "no data"),
        (client.rate_limiter("x").try_acquire(1).map(drop), "rate limiters"),
    ] {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
    assert!(server.held().is_empty());
}

#[test]
fn a_fork_gets_no_fence() {
    let server = Mysql::shared();
    let env = [("LEASEHOLD_TEST_URL", &*server.url())];
    let mut child = Child::spawn("processes::forking_process", &env);
    let said = child.expect("child held=false ");
    assert_eq!(said, "lost=Err(Disconnected) lock=Forked fence=Forked");
    child.kill();
    server.assert_clean();
}
