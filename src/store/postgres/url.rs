//! Parses URLs as libpq does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::error::{Result, invalid};
use crate::store::database::{self, DatabaseUrl, Ssl, SslMode, check_tls, log_in};
use crate::store::net::{Address, Parameters, Url};
use crate::store::schemes::UrlKind;

const PORT: u16 = 5432;

const FORM: &str = "postgres://user[:password]@host[:port][,host[:port]..]/database[?parameter=..&..], \
                    where a unix socket is a host that is the path of its directory, with %2F for \
                    each '/', or as it is in ?host=/var/run/postgresql";

const PARAMETERS: &str = "user, password, passfile, host, port, dbname, application_name, options, \
                          connect_timeout, target_session_attrs, sslmode, sslrootcert, sslcert, \
                          sslkey, channel_binding";

pub(crate) type PostgresUrl = DatabaseUrl<More>;

/// What only URLs of libpq say.
#[derive(Clone)]
pub(crate) struct More {
    pub(super) passfile: Option<PathBuf>,
    pub(crate) application_name: Option<String>,
    pub(super) options: Option<String>,
    pub(super) connect_timeout: Option<Duration>,
    pub(super) binding: Binding,
}

/// Whether SCRAM is bound to the TLS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binding {
    Disable,
    Prefer,
    Require,
}

impl PostgresUrl {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let url = Url::split(url, &[UrlKind::Postgres], FORM)?;
        let mut said = Parameters::of(&url, PARAMETERS);
        let (user, password) = log_in(&url);
        if !user.is_empty() {
            said.add("user", url.decode("user", user)?)?;
        }
        if let Some(password) = password {
            said.add("password", url.decode("password", password)?)?;
        }
        if url.path.contains('/') {
            return Err(url.wrong("the database in the URL has a '/', which is written %2F there"));
        }
        if !url.path.is_empty() {
            said.add("dbname", url.decode("database", url.path)?)?;
        }
        said.add_query()?;
        Self::of(&url, &said)
    }

    fn of(url: &Url<'_>, said: &Parameters<'_>) -> Result<Self> {
        let user = said.own("user").ok_or_else(|| url.wrong("the URL names no user"))?;
        check_session_attrs(said.get("target_session_attrs"))?;
        let connect_timeout = match said.get("connect_timeout").map(str::parse::<u64>) {
            None | Some(Ok(0)) => None,
            Some(Ok(seconds)) => Some(Duration::from_secs(seconds)),
            Some(Err(_)) => return Err(invalid("connect_timeout is a number of seconds")),
        };
        let binding = match said.get("channel_binding") {
            None | Some("prefer") => Binding::Prefer,
            Some("disable") => Binding::Disable,
            Some("require") => Binding::Require,
            Some(_) => {
                return Err(invalid("channel_binding is one of disable, prefer and require"));
            }
        };
        Ok(Self {
            hosts: hosts(url, said)?,
            database: said.own("dbname").unwrap_or_else(|| user.clone()),
            user,
            password: said.own("password"),
            ssl: ssl(said)?,
            more: More {
                passfile: said.get("passfile").map(PathBuf::from),
                application_name: said.own("application_name"),
                options: said.own("options"),
                connect_timeout,
                binding,
            },
        })
    }
}

/// Locks need the server that takes writes, so that one is used whatever the URL says.
fn check_session_attrs(said: Option<&str>) -> Result<()> {
    match said {
        None | Some("any" | "read-write" | "primary") => Ok(()),
        Some(_) => Err(invalid(
            "target_session_attrs is one of any, read-write and primary: a standby cannot give locks, so of several \
             hosts the one that takes writes is used",
        )),
    }
}

fn hosts(url: &Url<'_>, said: &Parameters<'_>) -> Result<Vec<Address>> {
    match (said.get("host"), said.get("port")) {
        (None, None) => {
            let hosts = url.hosts()?.into_iter().map(|host| {
                let name = url.decode("host", host.name)?;
                address(url, &name, host.port.unwrap_or(PORT))
            });
            hosts.collect()
        }
        (Some(names), ports) if url.hosts.is_empty() => {
            let names: Vec<&str> = names.split(',').collect();
            let ports = ports.map_or(Ok(vec![PORT]), |ports| {
                ports.split(',').map(|port| url.port(port)).collect::<Result<_>>()
            })?;
            if ports.len() != 1 && ports.len() != names.len() {
                return Err(url.wrong("the URL has a different number of ports than hosts"));
            }
            let pairs = names.into_iter().zip(ports.into_iter().cycle());
            pairs.map(|(name, port)| address(url, name, port)).collect()
        }
        _ => Err(url.wrong("the URL sets host or port twice, or only the parameter port")),
    }
}

fn address(url: &Url<'_>, host: &str, port: u16) -> Result<Address> {
    if host.is_empty() || host.starts_with('@') {
        return Err(url.wrong("a host in the URL is empty, or an abstract socket"));
    }
    database::address(url, host, port, || Path::new(host).join(format!(".s.PGSQL.{port}")))
}

fn ssl(said: &Parameters<'_>) -> Result<Ssl> {
    let mode = match said.get("sslmode") {
        None | Some("prefer") => SslMode::Prefer,
        Some("disable") => SslMode::Disable,
        Some("require") => SslMode::Require,
        Some("verify-full") => SslMode::VerifyFull,
        Some("verify-ca") => SslMode::VerifyCa,
        Some("allow") => SslMode::Allow,
        Some(_) => {
            return Err(invalid(
                "sslmode is one of disable, allow, prefer, require, verify-ca and verify-full",
            ));
        }
    };
    let path = |name: &str| said.get(name).map(PathBuf::from);
    let identity = match (path("sslcert"), path("sslkey")) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err(invalid("sslcert and sslkey must be set together")),
    };
    let root = path("sslrootcert").filter(|root| root.as_os_str() != "system");
    // An authority that is named is checked, as in libpq.
    let mode = if mode == SslMode::Require && root.is_some() { SslMode::VerifyCa } else { mode };
    let insists = matches!(mode, SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull);
    let wants = insists || identity.is_some() || root.is_some();
    check_tls(wants)?;
    if said.get("sslrootcert").is_some() && !matches!(mode, SslMode::VerifyCa | SslMode::VerifyFull)
    {
        return Err(invalid(
            "sslrootcert is for sslmode=verify-full and verify-ca; with the other modes no certificate is checked",
        ));
    }
    if mode == SslMode::VerifyCa && root.is_none() {
        return Err(invalid(
            "sslmode=verify-ca takes any server of one authority: name its file with sslrootcert, or use verify-full",
        ));
    }
    if identity.is_some() && mode == SslMode::Disable {
        return Err(invalid("sslcert and sslkey are for TLS, but the URL sets sslmode=disable"));
    }
    Ok(Ssl { mode, said: said.get("sslmode").is_some(), root, identity })
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
