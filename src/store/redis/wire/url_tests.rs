use super::*;
use crate::base::fuzz_tests::{Dice, fuzz};

fn settings(url: &str) -> (u32, Option<String>, Option<String>) {
    let Endpoint { db, log_in, .. } = Endpoint::parse(url).unwrap();
    let password_of = |log_in: &LogIn| match &log_in.password {
        Password::Said(password) => Some(password.clone()),
        _ => None,
    };
    let (user, password) =
        log_in.map_or((None, None), |log_in| (log_in.user.clone(), password_of(&log_in)));
    (db, user, password)
}

#[test]
fn parameters_mean_the_same_over_tcp_and_unix() {
    let all = (3, Some("u".to_owned()), Some("p@ss".to_owned()));
    assert_eq!(settings("redis://host/?db=3&user=u&pass=p%40ss"), all);
    assert_eq!(settings("redis://host?db=3&user=u&pass=p@ss&protocol=2"), all);
    assert_eq!(settings("redis://u:p%40ss@host/3"), all);
    assert_eq!(settings("valkey://u@host/3?pass=x").2, Some("x".to_owned()));
    assert_eq!(settings("redis://:p@host"), (0, None, Some("p".to_owned())));
    #[cfg(unix)]
    assert_eq!(settings("redis+unix:///tmp/s?db=3&user=u&pass=p%40ss"), all);
}

#[cfg(feature = "tls-core")]
#[test]
fn a_secure_url_is_the_same_but_secure() {
    assert_eq!(
        settings("rediss://u:p%40ss@host:6380/3"),
        (3, Some("u".to_owned()), Some("p@ss".to_owned()))
    );
    for (url, is_secure) in [
        ("rediss://host/", true),
        ("REDISS://host/?db=2", true),
        ("valkeys://[::1]:6380", true),
        ("redis://host/?user=rediss&pass=rediss", false),
    ] {
        assert_eq!(Endpoint::parse(url).unwrap().is_secure(), is_secure, "{url}");
    }
    assert_eq!(
        format!("{:?}", Endpoint::parse("rediss://u:secret@[::1]:6380").unwrap()),
        "[::1]:6380"
    );
    for url in ["rediss://host/#insecure", "rediss+unix:///tmp/s", "rediss:///tmp/s", "rediss"] {
        assert!(Endpoint::parse(url).is_err(), "{url}");
    }
}

/// What this crate accepts, the crate `redis` accepts as well, and with the same meaning. The
/// other way round there are a few exceptions, which nobody can have meant.
#[test]
fn fuzzed_urls_mean_what_they_mean_to_the_redis_crate() {
    let valid = |dice: &mut Dice| {
        let log_in = *dice.choose(&["", "u:p%40s@", ":p@", "u:a b+c@d@", "u@"]);
        let host = *dice.choose(&["h", "h:7", "[::1]:7", "[::1]", "127.0.0.1:", "a%20b"]);
        let tail = *dice.choose(&["", "/", "/3", "/3/", "?", "/?protocol=2"]);
        format!("redis://{log_in}{host}{tail}").into_bytes()
    };
    fuzz(valid, |bytes, _| {
        let text = &*String::from_utf8_lossy(bytes);
        let theirs = redis::parse_redis_url(text)
            .filter(|url| url.scheme() == "redis" && url.fragment().is_none())
            .and_then(|url| url.into_connection_info().ok());
        let ours = Endpoint::parse(text).ok().filter(|ours| ours.is_tcp() && !ours.is_secure());
        let Some(ours) = ours else {
            let text = text.trim_end();
            let (begin, query) = text.split_once('?').unwrap_or((text, ""));
            let authority = begin.split('/').nth(2).unwrap_or_default();
            let is_exception = |theirs: redis::ConnectionInfo| {
                !query.is_empty()
                    || u32::try_from(theirs.redis_settings().db()).is_err()
                    || begin.contains("/-0")
                    || text.contains(|c: char| c.is_ascii_control())
                    || authority.contains(',')
                    || authority.trim_end_matches('0').ends_with(':')
                    || begin.matches('@').count() > authority.matches('@').count()
            };
            assert!(theirs.is_none_or(is_exception), "{text:?}");
            return;
        };
        let scheme = text.trim_start().split(':').next().unwrap_or_default();
        if !scheme.eq_ignore_ascii_case("redis") {
            return;
        }
        let theirs = theirs.unwrap_or_else(|| panic!("only we accept {text:?}"));
        let redis::ConnectionAddr::Tcp(host, port) = theirs.addr() else { panic!("{text:?}") };
        let settings = theirs.redis_settings();
        let said = ours.log_in.map(|log_in| match log_in.password {
            Password::Said(password) => (log_in.user, Some(password)),
            _ => (log_in.user, None),
        });
        let (user, password) = said.unwrap_or_default();
        assert_eq!(ours.address, Address::Tcp { host: host.clone(), port: *port }, "{text:?}");
        let has = |name: &str| text.contains(&format!("{name}="));
        assert!(has("user") || user.as_deref() == settings.username(), "{text:?}");
        assert!(has("pass") || password.as_deref() == settings.password(), "{text:?}");
        assert!(has("db") || i64::from(ours.db) == settings.db(), "{text:?}");
    });
}
