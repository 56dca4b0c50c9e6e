//! Parses URLs. Every part is interpreted or rejected: a part that is silently ignored would mean
//! no encryption, or locks in another database.

use std::borrow::Cow;
use std::sync::Arc;

use redis::IntoConnectionInfo;

use super::endpoint::Endpoint;
use super::log_in::{LogIn, Password, Provider};
use crate::base::error::{Error, ErrorKind, Result};
use crate::store::net::{Address, NO_UNIX_SOCKETS};

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

const SHAPES: &str = "the URL is not one of redis://[user:password@]host[:port][/db], the same with rediss:// \
                      (TLS), and redis+unix:///path, each with ?db=..&user=..&pass=.. if need be";

impl Endpoint {
    /// The server of a URL. `provider`: supplies the password, which the URL must then not contain.
    pub(crate) fn parse(url: &str, provider: Option<&Arc<Provider>>) -> Result<Self> {
        Self::parse_with(url, provider, REDIS_PORT)
    }

    /// The sentinel of a URL.
    pub(crate) fn parse_sentinel(url: &str, provider: Option<&Arc<Provider>>) -> Result<Self> {
        Self::parse_with(url, provider, SENTINEL_PORT)
    }

    fn parse_with(url: &str, provider: Option<&Arc<Provider>>, port: u16) -> Result<Self> {
        let mut endpoint = parse(url, port)?;
        let invalid = |why| Err(Error::new(ErrorKind::InvalidInput, why));
        match (&mut endpoint.log_in, provider) {
            (Some(LogIn { password: Password::Said(_), .. }), Some(_)) => invalid(
                "the URL has a password, and the settings have a password_file or a provider of credentials; leave one out",
            ),
            (Some(LogIn { password: Password::Missing, .. }), None) => invalid(
                "the URL has a user and no password; for a user without one, any password will do",
            ),
            (log_in, Some(provider)) => {
                let user = log_in.take().and_then(|log_in| log_in.user);
                *log_in = Some(LogIn { user, password: Password::Provided(provider.clone()) });
                Ok(endpoint)
            }
            (_, None) => Ok(endpoint),
        }
    }
}

/// No message quotes the URL, which may hold a password.
fn parse(text: &str, port: u16) -> Result<Endpoint> {
    let (text, secure) = check_scheme(text)?;
    let text = &*text;
    parse_redis(text, secure, port).map_err(|why| {
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
        "rediss" | "valkeys" if cfg!(feature = "tls-core") => {
            Ok((format!("redis:{rest}").into(), true))
        }
        "rediss" | "valkeys" => {
            refuse("rediss:// (TLS) needs leasehold's cargo feature \"tls\", which is off here")
        }
        s if s.contains("sentinel") => refuse(
            "a redis+sentinel:// URL names all sentinels and the master: it is given alone, without other URLs",
        ),
        s if s.contains("cluster") => {
            refuse("a redis+cluster:// URL names all nodes: it is given alone, without other URLs")
        }
        _ => Ok((text.into(), false)),
    }
}

/// A `/`, `?` or `#` in a password ends the address for the parser, and the `@` comes after it.
fn may_hold_a_broken_password(text: &str) -> bool {
    let tail = |rest: &str| rest.find(['/', '?', '#']).is_some_and(|end| rest[end..].contains('@'));
    text.split_once("://").is_some_and(|(_, rest)| tail(rest))
}

fn parse_redis(text: &str, secure: bool, usual_port: u16) -> std::result::Result<Endpoint, String> {
    let url = redis::parse_redis_url(text).ok_or(SHAPES)?;
    if url.fragment().is_some() {
        let hint = if secure { "; Tls has the settings of TLS" } else { "" };
        return Err(format!("a '#' in a URL has no meaning{hint}"));
    }
    let tcp = !url.scheme().ends_with("unix");
    let log_in = !url.username().is_empty() || url.password().is_some();
    if !tcp && cfg!(not(unix)) {
        return Err(NO_UNIX_SOCKETS.into());
    }
    if !tcp && (log_in || url.port().is_some()) {
        return Err(
            "the URL of a unix socket has user and password after the path (?user=..&pass=..), and no port".into()
        );
    }
    // The settings that the address already contains.
    let mut said: Vec<String> = Vec::new();
    said.extend((tcp && !url.path().trim_matches('/').is_empty()).then(|| "db".to_owned()));
    said.extend((!url.username().is_empty()).then(|| "user".to_owned()));
    said.extend(url.password().is_some().then(|| "pass".to_owned()));
    let mut settings = Vec::new();
    for (name, value) in url.query_pairs() {
        match &*name {
            "db" | "user" | "pass" => {}
            "protocol" if ["2", "resp2"].contains(&&*value) => {}
            "protocol" => {
                return Err("only RESP2 is supported: leave the parameter `protocol` out".into());
            }
            // The parameter's name could be part of a password, so it is not quoted.
            _ if may_hold_a_broken_password(text) => {
                return Err("the URL has an unknown parameter".into());
            }
            _ => {
                return Err(format!(
                    "the URL has the unknown parameter {name:?}; known are db, user and pass"
                ));
            }
        }
        if said.iter().any(|known| **known == *name) {
            return Err(format!("the URL sets {name} twice"));
        }
        said.push(name.to_string());
        settings.push((name.into_owned(), value.into_owned()));
    }
    let says_port = url.port().is_some();
    let info = url.into_connection_info().map_err(|_| SHAPES)?;
    let redis = info.redis_settings();
    let mut db = redis.db();
    let (mut user, mut password) =
        (redis.username().map(str::to_owned), redis.password().map(str::to_owned));
    for (name, value) in settings {
        match &*name {
            "db" => db = value.parse().map_err(|_| SHAPES)?,
            "user" => user = Some(value),
            "pass" => password = Some(value),
            _ => {}
        }
    }
    let log_in = match (user, password) {
        (user, Some(password)) => Some(LogIn { user, password: Password::Said(password) }),
        (None, None) => None,
        (user, None) => Some(LogIn { user, password: Password::Missing }),
    };
    let mut address = address_of(info.addr())?;
    if let Address::Tcp { port, .. } = &mut address
        && !says_port
    {
        *port = usual_port;
    }
    Ok(Endpoint::new(address, log_in, u32::try_from(db).map_err(|_| SHAPES)?, secure))
}

fn address_of(address: &redis::ConnectionAddr) -> std::result::Result<Address, String> {
    match address {
        redis::ConnectionAddr::Tcp(host, port) => {
            Ok(Address::Tcp { host: host.clone(), port: *port })
        }
        #[cfg(unix)]
        redis::ConnectionAddr::Unix(path) => Ok(Address::Unix(path.clone())),
        _ => Err(SHAPES.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> (u32, Option<String>, Option<String>) {
        let Endpoint { db, log_in, .. } = parse(url, 1).unwrap();
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
            assert_eq!(parse(url, REDIS_PORT).unwrap().is_secure(), is_secure, "{url}");
        }
        assert_eq!(
            format!("{:?}", parse("rediss://u:secret@[::1]:6380", REDIS_PORT).unwrap()),
            "[::1]:6380"
        );
        for url in ["rediss://host/#insecure", "rediss+unix:///tmp/s", "rediss:///tmp/s", "rediss"]
        {
            assert!(parse(url, REDIS_PORT).is_err(), "{url}");
        }
    }
}
