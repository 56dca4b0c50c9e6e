//! Parses the URLs of Redis. The crate `redis` reads what was split, so that a URL means what it
//! means to other programs.

use std::sync::Arc;

use redis::IntoConnectionInfo;

use super::endpoint::Endpoint;
use super::log_in::{LogIn, Password, Provider};
use crate::base::error::{Result, invalid};
use crate::store::net::{Address, NO_UNIX_SOCKETS, Parameters, Url};
use crate::store::schemes::UrlKind;

const REDIS_PORT: u16 = 6379;
pub(crate) const SENTINEL_PORT: u16 = 26379;

const FORM: &str = "redis://[user:password@]host[:port][/db], the same with rediss:// (TLS), or \
                    redis+unix:///path, each with ?db=..&user=..&pass=.. if need be";
const CLUSTER_FORM: &str = "redis+cluster://[user:password@]host:port[,host:port..], or \
                            redis://[user:password@]host:port for one node, and rediss for TLS";

impl Endpoint {
    /// The server of a URL.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        Self::parse_with(url, REDIS_PORT)
    }

    /// The same for a server whose usual port is another one.
    pub(crate) fn parse_with(url: &str, usual_port: u16) -> Result<Self> {
        let url = Url::split(url, &[UrlKind::Redis], FORM)?;
        Ok(Self::parse_each(&url, url.path, usual_port)?.remove(0))
    }

    /// The nodes of a URL that is given alone.
    pub(crate) fn parse_nodes(url: &str) -> Result<Vec<Self>> {
        let url = Url::split(url, &[UrlKind::Cluster, UrlKind::Redis], CLUSTER_FORM)?;
        Self::parse_each(&url, url.path, REDIS_PORT)
    }

    /// The server at each host of a URL: at least one. `path` has the database.
    pub(crate) fn parse_each(url: &Url<'_>, path: &str, usual_port: u16) -> Result<Vec<Self>> {
        let hosts = url.hosts()?;
        if hosts.len() > 1 && url.scheme.kind == UrlKind::Redis {
            return Err(url.wrong(
                "the URL has several hosts, as only redis+sentinel:// and redis+cluster:// can",
            ));
        }
        hosts
            .iter()
            .map(|host| parse_at(url, host.written, path, host.port.unwrap_or(usual_port)))
            .collect()
    }

    /// `provider`: supplies the password, which the URL must then not contain.
    pub(crate) fn with_provider(mut self, provider: Option<&Arc<Provider>>) -> Result<Self> {
        let refused = |why| Err(invalid(why));
        match (self.log_in.as_ref().map(|log_in| &log_in.password), provider) {
            (Some(Password::Said(_)), Some(_)) => refused(
                "the URL has a password, and the settings have a password_file or a provider of \
                 credentials; leave one out",
            ),
            (Some(Password::Missing), None) => refused(
                "the URL has a user and no password; for a user without one, any password will do",
            ),
            (_, Some(provider)) => {
                let user = self.log_in.and_then(|log_in| log_in.user);
                self.log_in = Some(LogIn { user, password: Password::Provided(provider.clone()) });
                Ok(self)
            }
            (_, None) => Ok(self),
        }
    }
}

/// The server at one of the hosts of a URL.
fn parse_at(url: &Url<'_>, host: &str, path: &str, port: u16) -> Result<Endpoint> {
    let is_unix = url.is_unix();
    if is_unix && cfg!(not(unix)) {
        return Err(url.wrong(NO_UNIX_SOCKETS));
    }
    let has_host = url.log_in.is_some() || !["", "localhost"].contains(&host);
    if is_unix && (has_host || url.path.is_empty()) {
        return Err(url.wrong(
            "the URL of a unix socket has three slashes and a path, no host and no port, and user \
             and password after the path (?user=..&pass=..)",
        ));
    }
    // TLS is added by this crate.
    let scheme = if is_unix { "redis+unix" } else { "redis" };
    let log_in = url.log_in.map(|log_in| format!("{log_in}@")).unwrap_or_default();
    let text = format!("{scheme}://{log_in}{host}/{path}?{}", url.query.unwrap_or_default());
    let refused = || url.wrong("a host in the URL is not valid, or user or password is not UTF-8");
    let parsed = redis::parse_redis_url(&text).ok_or_else(refused)?;
    let mut said = Parameters::of(url, "db, user, pass, protocol");
    let password = parsed.password().unwrap_or_default();
    let db = parsed.path().trim_matches('/');
    let address = [("db", db), ("user", parsed.username()), ("pass", password)];
    for (name, value) in address.into_iter().filter(|(_, value)| !is_unix && !value.is_empty()) {
        said.add(name, value.to_owned())?;
    }
    for (name, value) in parsed.query_pairs() {
        said.add(&name, value.into_owned())?;
    }
    let db = said.get("db").map_or(Ok(0), str::parse);
    let db = db.map_err(|_| url.wrong("the database in the URL is not a number"))?;
    if said.get("protocol").is_some_and(|version| !["2", "resp2"].contains(&version)) {
        return Err(url.wrong("only RESP2 is supported: leave the parameter `protocol` out"));
    }
    let info = parsed.into_connection_info().map_err(|_| refused())?;
    let address = match info.addr() {
        redis::ConnectionAddr::Tcp(host, _) => Address::Tcp { host: host.clone(), port },
        #[cfg(unix)]
        redis::ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
        _ => return Err(refused()),
    };
    // The crate has decoded those in the address.
    let decoded = info.redis_settings();
    let user = decoded.username().map(str::to_owned).or_else(|| said.own("user"));
    let password = match decoded.password().map(str::to_owned).or_else(|| said.own("pass")) {
        Some(password) => Some(Password::Said(password)),
        None => user.is_some().then_some(Password::Missing),
    };
    let log_in = password.map(|password| LogIn { user, password });
    Ok(Endpoint::new(address, log_in, db, url.scheme.is_secure))
}

#[cfg(test)]
mod tests {
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
        for url in ["rediss://host/#insecure", "rediss+unix:///tmp/s", "rediss:///tmp/s", "rediss"]
        {
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
}
