//! Parses URLs. Every part is understood or refused: a part that is silently ignored would mean no
//! encryption, or locks in another database.

use std::borrow::Cow;

use redis::IntoConnectionInfo;

use super::endpoint::{Address, Endpoint, LogIn};
use crate::base::error::{Error, ErrorKind, Result};

const SHAPES: &str = "the URL is not one of redis://[user:password@]host[:port][/db], the same with rediss:// \
                      (TLS), and redis+unix:///path, each with ?db=..&user=..&pass=.. if need be";

/// No message quotes the URL, which may hold a password.
pub(super) fn parse(text: &str) -> Result<Endpoint> {
    let (text, secure) = check_scheme(text)?;
    let text = &*text;
    parse_redis(text, secure).map_err(|why| {
        let hint = if may_hold_a_broken_password(text) {
            "; a '/', '?', '#' or '@' in a user or password is written %2F, %3F, %23 or %40"
        } else {
            ""
        };
        Error::new(ErrorKind::InvalidInput, format!("{why}{hint}"))
    })
}

/// The URL with a scheme that the `redis` crate parses without its own TLS, and whether TLS is
/// wanted.
fn check_scheme(text: &str) -> Result<(Cow<'_, str>, bool)> {
    let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
    let refuse = |why| Err(Error::new(ErrorKind::InvalidInput, why));
    match &*scheme.to_ascii_lowercase() {
        "rediss" | "valkeys" if cfg!(feature = "tls") => Ok((format!("redis:{rest}").into(), true)),
        "rediss" | "valkeys" => refuse("rediss:// (TLS) needs leasehold's cargo feature \"tls\", which is off here"),
        s if s.contains("sentinel") => {
            refuse("sentinels are not asked by this version; name the primary they watch, as redis://host")
        }
        s if s.contains("cluster") => {
            refuse("Redis Cluster is not supported; name a standalone server, as redis://host")
        }
        _ => Ok((text.into(), false)),
    }
}

/// A `/`, `?` or `#` in a password ends the address for the parser, and the `@` comes behind it.
fn may_hold_a_broken_password(text: &str) -> bool {
    let tail = |rest: &str| rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@'));
    text.split_once("://").is_some_and(|(_, rest)| tail(rest))
}

fn parse_redis(text: &str, secure: bool) -> std::result::Result<Endpoint, String> {
    let url = redis::parse_redis_url(text).ok_or(SHAPES)?;
    if url.fragment().is_some() {
        let hint = if secure { "; Tls has the settings of TLS" } else { "" };
        return Err(format!("nothing behind a '#' in a URL is understood{hint}"));
    }
    let tcp = !url.scheme().ends_with("unix");
    let log_in = !url.username().is_empty() || url.password().is_some();
    if !tcp && (log_in || url.port().is_some()) {
        return Err(
            "the URL of a unix socket has user and password behind the path (?user=..&pass=..), and no port".into()
        );
    }
    // The settings that the address has already.
    let mut said: Vec<String> = Vec::new();
    said.extend((tcp && !url.path().trim_matches('/').is_empty()).then(|| "db".to_owned()));
    said.extend((!url.username().is_empty()).then(|| "user".to_owned()));
    said.extend(url.password().is_some().then(|| "pass".to_owned()));
    let mut settings = Vec::new();
    for (name, value) in url.query_pairs() {
        match &*name {
            "db" | "user" | "pass" => {}
            "protocol" if ["2", "resp2"].contains(&&*value) => {}
            "protocol" => return Err("of the protocol only version 2 is spoken; leave the parameter out".into()),
            // The name could be part of a password, so it is not quoted.
            _ if may_hold_a_broken_password(text) => {
                return Err("the URL has a parameter that is not understood".into());
            }
            _ => return Err(format!("the URL's parameter {name:?} is not understood; there are db, user and pass")),
        }
        if said.iter().any(|known| **known == *name) {
            return Err(format!("the URL says {name} twice"));
        }
        said.push(name.to_string());
        settings.push((name.into_owned(), value.into_owned()));
    }
    let info = url.into_connection_info().map_err(|_| SHAPES)?;
    let redis = info.redis_settings();
    let mut db = redis.db();
    let (mut user, mut password) = (redis.username().map(str::to_owned), redis.password().map(str::to_owned));
    for (name, value) in settings {
        match &*name {
            "db" => db = value.parse().map_err(|_| SHAPES)?,
            "user" => user = Some(value),
            "pass" => password = Some(value),
            _ => {}
        }
    }
    let log_in = match (user, password) {
        (user, Some(password)) => Some(LogIn { user, password }),
        (None, None) => None,
        (Some(_), None) => {
            return Err("the URL has a user and no password; for a user who needs none, any will do".into());
        }
    };
    let (address, db) = (address_of(info.addr())?, u32::try_from(db).map_err(|_| SHAPES)?);
    Ok(Endpoint::new(address, log_in, db, secure))
}

fn address_of(address: &redis::ConnectionAddr) -> std::result::Result<Address, String> {
    match address {
        redis::ConnectionAddr::Tcp(host, port) => Ok(Address::Tcp { host: host.clone(), port: *port }),
        #[cfg(unix)]
        redis::ConnectionAddr::Unix(path) => Ok(Address::Unix(path.clone())),
        _ => Err(SHAPES.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> (u32, Option<String>, Option<String>) {
        let Endpoint { db, log_in, .. } = parse(url).unwrap();
        let (user, password) = log_in.map_or((None, None), |log_in| (log_in.user, Some(log_in.password)));
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

    #[cfg(feature = "tls")]
    #[test]
    fn a_secure_url_is_the_same_but_secure() {
        assert_eq!(settings("rediss://u:p%40ss@host:6380/3"), (3, Some("u".to_owned()), Some("p@ss".to_owned())));
        for (url, is_secure) in [
            ("rediss://host/", true),
            ("REDISS://host/?db=2", true),
            ("valkeys://[::1]:6380", true),
            ("redis://host/?user=rediss&pass=rediss", false),
        ] {
            assert_eq!(parse(url).unwrap().is_secure(), is_secure, "{url}");
        }
        assert_eq!(format!("{:?}", parse("rediss://u:secret@[::1]:6380").unwrap()), "[::1]:6380");
        for url in ["rediss://host/#insecure", "rediss+unix:///tmp/s", "rediss:///tmp/s", "rediss"] {
            assert!(parse(url).is_err(), "{url}");
        }
    }
}
