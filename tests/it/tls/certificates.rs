//! Which certificates are accepted, on both sides, and what errors say about the others.

use leasehold::{ErrorKind, LockClient, Tls};

use super::{IO_TIMEOUT, LEASE, client, refused, settings, text, trusting, works};
use crate::rig::{Certificates, Identity, Server, fresh_dir, logged, record_logs, wait_until};

#[test]
fn a_server_whose_authority_is_named_is_trusted() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    works(&client(&server, trusting(&certificates)));
    works(&client(&server, Tls::new().ca_pem(text(&certificates.ca_file()))));
    works(&client(&server, trusting(&certificates).also_system_authorities()));
    let by_name = server.url().replace("127.0.0.1", "localhost");
    works(&settings(&by_name, trusting(&certificates)).build().unwrap());
    works(
        &settings(&server.url(), trusting(&certificates).server_name("localhost")).build().unwrap(),
    );
    let valkeys = server.url().replace("rediss", "valkeys");
    works(&settings(&valkeys, trusting(&certificates)).build().unwrap());
    server.assert_clean();
}

#[test]
fn a_certificate_that_is_wrong_is_refused_with_the_reason() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let refused_as = |says: &[&str], tls: Tls| {
        let error = refused(ErrorKind::Tls, says, settings(&server.url(), tls.clone()));
        assert!(
            error
                .to_string()
                .starts_with(server.url().trim_start_matches("rediss://").trim_end_matches('/'))
        );
        // A waiting call does not wait it out: somebody must act.
        let lazy = settings(&server.url(), tls).connect_lazily().build().unwrap();
        let error = lazy.lock("job").unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::Tls, Some("job")), "{error}");
    };
    refused_as(&["authority", "ca_file"], Tls::new());
    let renewed = certificates.renewed();
    let cases: [(Identity, &[&str]); 5] = [
        (certificates.expired(), &["expired", "days ago", "clock"]),
        (certificates.other_name(), &["redis.example", "127.0.0.1", "server_name"]),
        (certificates.self_signed(), &["self-signed", "ca_file"]),
        (certificates.other_ca(), &["not trusted", "ca_file"]),
        (certificates.client().clone(), &["certificate"]),
    ];
    for (identity, says) in cases {
        server.present(&identity);
        refused_as(says, trusting(&certificates));
        works(&client(&server, Tls::new().danger_accept_any_certificate()));
    }
    server.present(&certificates.other_name());
    works(&client(&server, trusting(&certificates).server_name("redis.example")));
    server.present(&renewed);
    works(&client(&server, trusting(&certificates)));
    server.assert_clean();
}

#[test]
fn connections_resume_the_sessions_of_earlier_ones() {
    record_logs();
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    for (resume, kind) in [(true, "a resumed session"), (false, "a full handshake")] {
        let client = client(&server, trusting(&certificates).resume_sessions(resume));
        works(&client);
        let address = server.url().trim_start_matches("rediss://").trim_end_matches('/').to_owned();
        let before = logged(log::Level::Debug, &[&address, kind]).len();
        server.cmd::<u64>(&["CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES"]);
        works(&client);
        assert!(logged(log::Level::Debug, &[&address, kind]).len() > before, "resume: {resume}");
    }
    server.assert_clean();
}

#[cfg(feature = "tls-platform-verifier")]
#[test]
fn the_systems_verifier_also_trusts_the_authorities_of_the_settings() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    works(&client(&server, trusting(&certificates).platform_verifier()));
    refused(
        ErrorKind::Tls,
        &["authority"],
        settings(&server.url(), Tls::new().platform_verifier()),
    );
    server.present(&certificates.other_name());
    let other = || trusting(&certificates).platform_verifier();
    refused(ErrorKind::Tls, &["redis.example"], settings(&server.url(), other()));
    works(&client(&server, other().server_name("redis.example")));
    server.present(&certificates.expired());
    refused(ErrorKind::Tls, &["expired"], settings(&server.url(), other()));
    server.assert_clean();
}

#[test]
fn cryptography_that_is_not_validated_is_refused_where_fips_is_required() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let says = ["require_fips", "aws-lc-rs"];
    refused(
        ErrorKind::InvalidInput,
        &says,
        settings(&server.url(), trusting(&certificates).require_fips()),
    );
}

#[test]
fn a_user_logs_in_over_tls() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &["--requirepass", "of-all"]);
    server.cmd::<()>(&["ACL", "SETUSER", "app", "on", ">s3cr3t-pw", "~*", "&*", "+@all"]);
    let url = |user: &str| server.url().replace("//", &format!("//{user}@")) + "2";
    works(&settings(&url("app:s3cr3t-pw"), trusting(&certificates)).build().unwrap());
    works(&settings(&url(":of-all"), trusting(&certificates)).build().unwrap());
    let error =
        refused(ErrorKind::Denied, &[], settings(&url("app:other-pw"), trusting(&certificates)));
    assert!(!format!("{error:?}").contains("other-pw"), "{error:?}");
}

#[test]
fn a_self_signed_certificate_that_is_named_is_trusted() {
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &[]);
    let own = certificates.self_signed();
    server.present(&own);
    works(&client(&server, Tls::new().ca_file(&own.certificate)));
}

#[test]
fn a_server_that_asks_for_a_client_certificate_gets_one() {
    let certificates = Certificates::new();
    let other = Certificates::new();
    let server = Server::start_tls(&certificates, &["--tls-auth-clients", "yes"]);
    let (own, strange) = (certificates.client(), other.client());
    for versions in ["TLSv1.3", "TLSv1.2"] {
        server.cmd::<()>(&["CONFIG", "SET", "tls-protocols", versions]);
        let trusting = || trusting(&certificates);
        works(&client(&server, trusting().identity_files(&own.certificate, &own.key)));
        works(&client(&server, trusting().identity_pem(text(&own.certificate), text(&own.key))));
        refused(
            ErrorKind::Tls,
            &["asks for a client certificate", "identity_files"],
            settings(&server.url(), trusting()),
        );
        let wrong = trusting().identity_files(&strange.certificate, &strange.key);
        refused(
            ErrorKind::Tls,
            &["refused the client certificate"],
            settings(&server.url(), wrong),
        );
        // The subscriber connects separately.
        let [holder, client] = [(); 2]
            .map(|()| client(&server, trusting().identity_files(&own.certificate, &own.key)));
        let guard = holder.lock("job").unwrap();
        std::thread::scope(|s| {
            let waiter = s.spawn(|| client.lock("job").unwrap().unlock());
            wait_until("the waiter has subscribed", || !server.channels().is_empty());
            guard.unlock().unwrap();
            waiter.join().unwrap().unwrap();
        });
    }
}

#[test]
fn settings_that_cannot_work_are_refused_when_the_client_is_built() {
    let certificates = Certificates::new();
    let dir = fresh_dir();
    let (missing, empty) = (dir.join("missing.pem"), dir.join("empty.pem"));
    std::fs::write(&empty, "nothing").unwrap();
    let own = certificates.client();
    let invalid = |says: &str, tls: Tls| {
        let builder = settings("rediss://127.0.0.1:1/", tls).connect_lazily();
        refused(ErrorKind::InvalidInput, &[says], builder);
    };
    invalid("missing.pem cannot be read", Tls::new().ca_file(&missing));
    invalid("empty.pem has no certificate", Tls::new().ca_file(&empty));
    invalid("has no certificate", Tls::new().ca_pem("nothing"));
    let trusting = || trusting(&certificates);
    invalid("missing.pem", trusting().identity_files(&missing, &own.key));
    invalid("empty.pem has no private key", trusting().identity_files(&own.certificate, &empty));
    invalid("has no private key", trusting().identity_files(&own.certificate, &own.certificate));
    invalid(
        "is not that of",
        trusting().identity_files(&own.certificate, &certificates.server().key),
    );
    invalid("server_name", trusting().server_name("not a name"));
    let plain = LockClient::builder().url("redis://127.0.0.1:1/").tls(Tls::new()).connect_lazily();
    refused(ErrorKind::InvalidInput, &["rediss://"], plain);
    let memory = LockClient::builder().tls(Tls::new()).build_in_memory().unwrap_err();
    assert_eq!(memory.kind(), ErrorKind::InvalidInput);
    let insecure = settings("rediss://127.0.0.1:1/#insecure", trusting()).connect_lazily();
    refused(ErrorKind::InvalidInput, &["#"], insecure);
    let _ = std::fs::remove_dir_all(dir);
}

/// A client's files are replaced during its life, and so is the server's certificate.
#[test]
fn certificates_are_rotated_while_a_client_lives() {
    record_logs();
    let certificates = Certificates::new();
    let server = Server::start_tls(&certificates, &["--tls-auth-clients", "yes"]);
    let dir = fresh_dir();
    let (ca, certificate, key) =
        (dir.join("ca.pem"), dir.join("client.pem"), dir.join("client.key"));
    let install = |from: &Certificates| {
        for (from, to) in [
            (&from.ca_file(), &ca),
            (&from.client().certificate, &certificate),
            (&from.client().key, &key),
        ] {
            let beside = to.with_extension("new");
            std::fs::copy(from, &beside).unwrap();
            std::fs::rename(&beside, to).unwrap();
        }
    };
    install(&certificates);
    let client = client(&server, Tls::new().ca_file(&ca).identity_files(&certificate, &key));
    let reconnects = || {
        server.cmd::<u32>(&["CLIENT", "KILL", "TYPE", "normal"]);
        client.try_lock("job").map(|guard| guard.expect("it is free").unlock().unwrap())
    };
    let guard = client.lock("held").unwrap();
    server.present(&certificates.renewed());
    reconnects().unwrap();

    // All certificates are replaced by those of another authority; connections attempted meanwhile
    // are refused.
    let other = Certificates::new();
    let trusted = server.dir().join("ca.pem");
    std::fs::copy(other.ca_file(), &trusted).unwrap();
    server.cmd::<()>(&["CONFIG", "SET", "tls-ca-cert-file", trusted.to_str().unwrap()]);
    server.present(other.server());
    assert_eq!(reconnects().unwrap_err().kind(), ErrorKind::Tls);
    install(&other);
    // A connect of the client, for the hold, may have begun when only some files were there.
    wait_until("it has a connection again", || reconnects().is_ok());

    // The client keeps its certificate despite a broken file.
    std::fs::write(&key, "broken").unwrap();
    reconnects().unwrap();
    let warned = logged(log::Level::Warn, &[&key.display().to_string()]);
    assert!(warned.iter().any(|line| line.contains("stay in use")), "{warned:?}");
    reconnects().unwrap();
    assert_eq!(
        logged(log::Level::Warn, &[&key.display().to_string()]).len(),
        warned.len(),
        "once is enough"
    );
    install(&other);
    wait_until("it has a connection again", || reconnects().is_ok());
    guard.ensure_held().unwrap();
    guard.unlock().unwrap();
    drop(client);
    server.assert_clean();
    let _ = std::fs::remove_dir_all(dir);
}

/// What was wrong may end without a trace: the rights to a file, the number of open files.
#[test]
fn a_file_that_could_not_be_used_is_read_again_though_it_looks_the_same() {
    let [certificates, other] = [(); 2].map(|()| Certificates::new());
    let server = Server::start_tls(&certificates, &[]);
    let dir = fresh_dir();
    let ca = dir.join("ca.pem");
    std::fs::copy(certificates.ca_file(), &ca).unwrap();
    let client = client(&server, Tls::new().ca_file(&ca));
    let reconnects = || {
        server.cmd::<u32>(&["CLIENT", "KILL", "TYPE", "normal"]);
        client.try_lock("job").map(|guard| guard.expect("it is free").unlock().unwrap())
    };
    let good = std::fs::read(other.ca_file()).unwrap();
    std::fs::write(&ca, vec![b'x'; good.len()]).unwrap();
    let written_at = std::fs::metadata(&ca).unwrap().modified().unwrap();
    reconnects().expect("the certificates that were read before stay in use");

    std::fs::write(&ca, good).unwrap();
    std::fs::File::options().write(true).open(&ca).unwrap().set_modified(written_at).unwrap();
    server.present(other.server());
    reconnects().expect("it trusts the other authority");
    drop(client);
    server.assert_clean();
    let _ = std::fs::remove_dir_all(dir);
}

#[test]
fn a_port_without_tls_asked_in_tls_and_the_other_way_round() {
    let certificates = Certificates::new();
    let secure = Server::start_tls(&certificates, &[]);
    let plain = Server::start_tcp(&[]);
    let with_tls = plain.url().replace("redis://", "rediss://");
    for _ in 0..20 {
        let builder = settings(&with_tls, trusting(&certificates));
        let error = builder.build().unwrap_err();
        // The server waits for the end of a line, or finds one in the first message and complains.
        assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Protocol), "{error:?}");
        assert!(error.to_string().contains("the URL is redis://"), "{error}");
        if error.kind() == ErrorKind::Unreachable {
            break;
        }
    }
    let without = secure.url().replace("rediss://", "redis://");
    let builder = LockClient::builder().url(without).lease(LEASE).io_timeout(IO_TIMEOUT);
    let error = builder.build().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Protocol), "{error:?}");
    assert!(error.to_string().contains("rediss://"), "{error}");
    secure.assert_clean();
    plain.assert_clean();
}
