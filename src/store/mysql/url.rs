//! Parses URLs of databases, with the parameters of MySQL's own programs.

use std::fmt;
use std::path::PathBuf;

use crate::base::error::{Error, ErrorKind, Result};
#[cfg(not(unix))]
use crate::store::net::NO_UNIX_SOCKETS;
use crate::store::net::{Address, Parameters, Url};
use crate::store::schemes::UrlKind;

const PORT: u16 = 3306;

const FORM: &str = "mysql://user[:password]@host[:port][,host[:port]..]/database[?parameter=..&..], where a unix socket \
                    is a host that is its path, with %2F for each '/'";

const PARAMETERS: &str = "ssl-mode, ssl-ca";

/// A URL, parsed and checked; nothing is connected.
#[derive(Clone)]
pub(crate) struct MysqlUrl {
    pub(crate) hosts: Vec<Address>,
    pub(crate) user: String,
    pub(crate) password: Option<String>,
    pub(crate) database: String,
    #[cfg_attr(not(feature = "tls-core"), expect(dead_code, reason = "it was only checked"))]
    pub(crate) ssl: Ssl,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ssl {
    pub(crate) mode: SslMode,
    /// Whether the URL sets the mode.
    pub(crate) said: bool,
    /// `None`: the authorities of the system.
    pub(crate) root: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SslMode {
    Disabled,
    /// With TLS if the server has it; its certificate is not checked.
    Preferred,
    /// With TLS; its certificate is not checked.
    Required,
    VerifyIdentity,
}

impl fmt::Debug for MysqlUrl {
    /// Only the addresses: the other fields contain the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> = self.hosts.iter().map(|host| format!("{host:?}")).collect();
        f.write_str(&hosts.join(","))
    }
}

impl MysqlUrl {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let url = Url::split(url, &[UrlKind::Mysql], FORM)?;
        let mut said = Parameters::of(&url, PARAMETERS);
        let parameters = url.query.unwrap_or_default().split('&');
        for parameter in parameters.filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').ok_or_else(|| {
                url.wrong("a parameter of the URL has no value, which follows a '='")
            })?;
            said.add(name, url.decode("value of a parameter", value)?)?;
        }
        let log_in = url.log_in.unwrap_or_default();
        let (user, password) =
            log_in.split_once(':').map_or((log_in, None), |(user, rest)| (user, Some(rest)));
        if user.is_empty() {
            return Err(url.wrong("the URL names no user"));
        }
        if url.path.is_empty() || url.path.contains('/') {
            return Err(
                url.wrong("the URL names no database, or one with a '/', which is written %2F")
            );
        }
        let hosts = url
            .hosts()?
            .into_iter()
            .map(|host| address(&url, &url.decode("host", host.name)?, host.port.unwrap_or(PORT)));
        Ok(Self {
            hosts: hosts.collect::<Result<_>>()?,
            user: url.decode("user", user)?,
            password: password.map(|password| url.decode("password", password)).transpose()?,
            database: url.decode("database", url.path)?,
            ssl: ssl(&said)?,
        })
    }
}

fn address(url: &Url<'_>, host: &str, port: u16) -> Result<Address> {
    if host.is_empty() {
        return Err(url.wrong("a host in the URL is empty"));
    }
    if host.starts_with('/') {
        #[cfg(unix)]
        return Ok(Address::Unix(PathBuf::from(host)));
        #[cfg(not(unix))]
        return Err(url.wrong(NO_UNIX_SOCKETS));
    }
    Ok(Address::Tcp { host: host.to_owned(), port })
}

fn ssl(said: &Parameters<'_>) -> Result<Ssl> {
    let root = said.get("ssl-ca").map(PathBuf::from);
    let mode = match said.get("ssl-mode").map(str::to_ascii_lowercase).as_deref() {
        None if root.is_some() => SslMode::VerifyIdentity,
        None | Some("preferred") => SslMode::Preferred,
        Some("disabled") => SslMode::Disabled,
        Some("required") => SslMode::Required,
        Some("verify_identity") => SslMode::VerifyIdentity,
        Some(_) => {
            return Err(invalid(
                "ssl-mode is one of disabled, preferred, required and verify_identity",
            ));
        }
    };
    if matches!(mode, SslMode::Required | SslMode::VerifyIdentity) && !cfg!(feature = "tls-core") {
        return Err(invalid(
            "the URL asks for TLS, which needs leasehold's cargo feature \"tls\", which is off here",
        ));
    }
    if root.is_some() && mode != SslMode::VerifyIdentity {
        return Err(invalid(
            "ssl-ca is for ssl-mode=verify_identity; with the other modes no certificate is checked",
        ));
    }
    Ok(Ssl { mode, said: said.get("ssl-mode").is_some(), root })
}

#[cold]
fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        match MysqlUrl::parse(url) {
            Ok(url) => format!("{url:?} {} {:?} {}", url.user, url.password, url.database),
            Err(error) => error.message().to_owned(),
        }
    }

    #[test]
    fn each_part_is_understood_or_refused() {
        for (url, says) in [
            ("mysql://app:p%40w@h/d", "h:3306 app Some(\"p@w\") d"),
            ("mariadb://app@a:7,[::1]/d", "a:7,[::1]:3306 app None d"),
            ("mysql://app@%2Frun%2Fmysqld%2Fmysqld.sock/d", "/run/mysqld/mysqld.sock app None d"),
            ("mysql://h/d", "names no user"),
            ("mysql://app@h", "names no database"),
            ("mysql://app@h/d?ssl-mode=x", "ssl-mode is one of"),
            ("mysql://app@h/d?sslmode=x", "unknown parameter"),
            ("mysql://app@h/d?ssl-mode=disabled&ssl-ca=x", "ssl-ca is for"),
        ] {
            assert!(shown(url).contains(says), "{url}: {}", shown(url));
        }
    }
}
