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
#[path = "url_tests.rs"]
mod tests;
