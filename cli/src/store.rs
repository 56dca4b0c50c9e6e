//! Which store the command uses, and how to log in there without a password on the command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::{Builder, Cluster, LockClient, Redis, Redlock, Sentinel};

use crate::duration;
use crate::failure::{Failure, status};

/// The environment variable for the URL, used if no argument gives one.
pub(crate) const URL_VARIABLE: &str = "LEASEHOLD_URL";

/// The longest lease at the masters of Redlock, if the user gives none: the default lease.
const LONGEST_LEASE: Duration = Duration::from_secs(30);

/// The forms of URLs that this command was built for.
const WAYS: [Option<&str>; 10] = [
    Some("redis:// or valkey://host[:port][/db]"),
    Some("redis+unix:///path"),
    Some("redis+sentinel://host,../master"),
    Some("redis+cluster://host,.."),
    only(
        cfg!(feature = "tls"),
        "rediss:// or valkeys:// for TLS, also rediss+sentinel:// and rediss+cluster://",
    ),
    only(cfg!(feature = "postgres"), "postgres://user@host/database"),
    only(cfg!(feature = "postgres"), "postgres://%2Frun%2Fpostgresql/database (a socket)"),
    only(cfg!(feature = "mysql"), "mysql:// or mariadb://user@host/database"),
    only(cfg!(feature = "zookeeper"), "zookeeper://host,../path"),
    only(cfg!(all(feature = "zookeeper", feature = "tls")), "zookeeper+tls://host,../path"),
];

const fn only(is_built: bool, form: &'static str) -> Option<&'static str> {
    if is_built { Some(form) } else { None }
}

fn long_help_of_url() -> String {
    format!(
        "The store, instead of LEASEHOLD_URL. Give no password here: every user of the machine can see arguments\n\n\
         This command was built for {}. With --redlock, give --url several times.",
        ways()
    )
}

/// All forms, as a list for people.
fn ways() -> String {
    WAYS.iter().flatten().copied().collect::<Vec<_>>().join(", ")
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "The store")]
pub(crate) struct StoreArgs {
    /// The store, instead of LEASEHOLD_URL. Give no password here: every user of the machine can
    /// see arguments
    #[arg(long, value_name = "URL", global = true, long_help = long_help_of_url())]
    url: Vec<String>,

    /// Log in with the password in this file. The URL may name the user
    #[arg(long, value_name = "FILE", global = true)]
    password_file: Option<PathBuf>,

    /// Log in to the sentinels with the password in this file (redis+sentinel://)
    #[arg(long, value_name = "FILE", global = true)]
    sentinel_password_file: Option<PathBuf>,

    /// Lock a majority of several independent masters (Redlock), one --url for each
    ///
    /// A master that restarted without its data has no vote until some client has been connected to
    /// it for the longest lease: a run whose command takes that long, or a program that keeps its
    /// client.
    #[arg(long, global = true)]
    redlock: bool,

    /// The longest lease that any client of these masters has; the same for all clients (with
    /// --redlock). Defaults to 30s
    #[arg(long, value_name = "TIME", value_parser = duration::parse, global = true, requires = "redlock")]
    longest_lease: Option<Duration>,

    /// Let masters without any data vote at once (with --redlock). Only for a first installation
    /// and for tests: a master that has forgotten its locks could help to grant them a second time
    #[arg(long, global = true, requires = "redlock")]
    admit_fresh_nodes: bool,

    /// The prefix of every name in the store, which keeps the locks of programs apart
    #[arg(long, value_name = "PREFIX", global = true)]
    key_prefix: Option<String>,

    /// Trust the certificate authorities in this PEM file instead of the system's (TLS)
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", global = true)]
    ca_file: Option<PathBuf>,

    /// The client's certificate as a PEM file, for a server that requires one (TLS)
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", global = true, requires = "key_file")]
    cert_file: Option<PathBuf>,

    /// The private key of the client's certificate as a PEM file (TLS)
    #[cfg(feature = "tls")]
    #[arg(long, value_name = "FILE", global = true, requires = "cert_file")]
    key_file: Option<PathBuf>,
}

impl StoreArgs {
    /// The settings of a client of this store.
    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        self.builder_at(&[])
    }

    /// The same for a subcommand that also takes URLs without `--url`.
    pub(crate) fn builder_at(&self, named: &[String]) -> Result<Builder, Failure> {
        let urls = self.urls(named)?;
        [&self.password_file, &self.sentinel_password_file]
            .into_iter()
            .flatten()
            .try_for_each(|file| readable(file))?;
        let mut builder = self.servers(&urls)?.client_name("leasehold-cli");
        if let Some(prefix) = &self.key_prefix {
            builder = builder.key_prefix(prefix);
        }
        #[cfg(feature = "tls")]
        if let Some(tls) = self.tls() {
            builder = builder.tls(tls);
        }
        Ok(builder)
    }

    fn servers(&self, urls: &[String]) -> Result<Builder, Failure> {
        let builder = LockClient::builder();
        if self.redlock {
            return Ok(builder.redlock(self.masters(urls)?));
        }
        let [url] = urls else {
            let why = format!(
                "{} URLs need --redlock; name the nodes of a cluster, or the sentinels, in one URL: redis+cluster://a,b or \
                 redis+sentinel://a,b/master",
                urls.len()
            );
            return Err(Failure::new(status::USAGE, why));
        };
        let scheme = scheme(url);
        let refuse = |option: &str, whose: &str| {
            Err(Failure::new(
                status::USAGE,
                format!("{option} works only with {whose}; leave it out"),
            ))
        };
        if self.sentinel_password_file.is_some() && !scheme.contains("sentinel") {
            return refuse("--sentinel-password-file", "redis+sentinel:// URLs");
        }
        let Some(file) = &self.password_file else {
            return Ok(match &self.sentinel_password_file {
                Some(file) => builder.sentinel(Sentinel::from(url).sentinel_password_file(file)),
                None => builder.url(url),
            });
        };
        match &*scheme {
            scheme
                if ["postgres", "mysql", "mariadb", "zookeeper"]
                    .iter()
                    .any(|other| scheme.starts_with(other)) =>
            {
                refuse("--password-file", "Redis")
            }
            scheme if scheme.contains("sentinel") => {
                let sentinel = Sentinel::from(url).password_file(file);
                Ok(builder.sentinel(match &self.sentinel_password_file {
                    Some(file) => sentinel.sentinel_password_file(file),
                    None => sentinel,
                }))
            }
            scheme if scheme.contains("cluster") => {
                Ok(builder.cluster(Cluster::from(url).password_file(file)))
            }
            _ => Ok(builder.redis(Redis::new(url).password_file(file))),
        }
    }

    fn masters(&self, urls: &[String]) -> Result<Redlock, Failure> {
        if self.sentinel_password_file.is_some() {
            return Err(Failure::new(
                status::USAGE,
                "the masters of Redlock have no sentinels; leave out --sentinel-password-file",
            ));
        }
        // Not the library's default, which grows with the lease of this one client.
        let masters = Redlock::new(urls)
            .longest_lease(self.longest_lease.unwrap_or(LONGEST_LEASE))
            .admit_fresh_nodes(self.admit_fresh_nodes);
        Ok(match &self.password_file {
            Some(file) => masters.password_file(file),
            None => masters,
        })
    }

    /// The URLs of the arguments or, without one, of the environment.
    pub(crate) fn urls(&self, named: &[String]) -> Result<Vec<String>, Failure> {
        let arguments = [named, &self.url].concat();
        if arguments.iter().any(|url| may_have_password(url)) {
            let why = format!(
                "every user of this machine can see a password in an argument: change the password, and put the URL into \
                 {URL_VARIABLE}, or the password into a file and give --password-file"
            );
            return Err(Failure::new(status::USAGE, why));
        }
        let said = match std::env::var(URL_VARIABLE) {
            _ if !arguments.is_empty() => arguments.join(" "),
            Ok(urls) => urls,
            Err(std::env::VarError::NotPresent) => String::new(),
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(Failure::new(status::USAGE, format!("{URL_VARIABLE} is not UTF-8")));
            }
        };
        let urls: Vec<String> = said.split_whitespace().map(str::to_owned).collect();
        if urls.is_empty() {
            let why = format!("no store is given: set {URL_VARIABLE} or give --url ({})", ways());
            return Err(Failure::new(status::USAGE, why));
        }
        Ok(urls)
    }

    /// Whether the URLs are those of Redlock's masters.
    pub(crate) fn is_redlock(&self) -> bool {
        self.redlock
    }

    pub(crate) fn key_prefix(&self) -> &str {
        self.key_prefix.as_deref().unwrap_or_default()
    }

    #[cfg(feature = "tls")]
    fn tls(&self) -> Option<leasehold::Tls> {
        let Self { ca_file, cert_file, key_file, .. } = self;
        if ca_file.is_none() && cert_file.is_none() {
            return None;
        }
        let mut tls = leasehold::Tls::new();
        if let Some(file) = ca_file {
            tls = tls.ca_file(file);
        }
        if let (Some(certificate), Some(key)) = (cert_file, key_file) {
            tls = tls.identity_files(certificate, key);
        }
        Some(tls)
    }
}

/// In lower case, as they are listed; empty if there is none.
pub(crate) fn scheme(url: &str) -> String {
    url.split_once("://").map_or("", |(scheme, _)| scheme).to_ascii_lowercase()
}

/// A wrong path is a mistake in the arguments, and not a refusal of the server.
fn readable(file: &Path) -> Result<(), Failure> {
    let opened = std::fs::File::open(file).map(drop);
    opened.map_err(|e| {
        Failure::new(status::USAGE, format!("the password file {}: {e}", file.display()))
    })
}

/// Whether a URL may contain a password. In doubt, yes: a URL whose `/` or `@` is not escaped is
/// split elsewhere than its author expects.
pub(crate) fn may_have_password(url: &str) -> bool {
    let rest = match url.split_once("://") {
        Some((_, rest)) => rest,
        None if url.contains('@') => return true,
        // That of a unix socket may also be unix:/path?pass=...
        None => url,
    };
    let in_front = rest.rsplit_once('@').is_some_and(|(log_in, _)| log_in.contains(':'));
    let (_, parameters) = rest.split_once('?').unwrap_or_default();
    let is_one = |parameter: &str| {
        let key = parameter.split('=').next().unwrap_or_default().to_ascii_lowercase();
        (key.starts_with("pass") && key != "passfile") || key.contains('%')
    };
    in_front || parameters.split(['&', '?']).any(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_urls_are_found() {
        for url in [
            "redis://:secret@host/",
            "redis://user:secret@host:6379/3",
            "redis://:se/cr@et@host",
            "redis://:1/secret@host",
            "unix:/run/redis.sock?pass=secret",
            "rediss://host/?pass=secret",
            "redis+unix:///run/redis.sock?db=1&PASS=secret",
            "redis+unix:///run/redis.sock?p%61ss=secret",
            "postgres://app@host/db?password=secret",
            "redis+sentinel://user:secret@a,b/mymaster",
            "zookeeper://app:secret@a:2181,b:2181/locks",
            "secret@host",
        ] {
            assert!(may_have_password(url), "{url}");
        }
        for url in [
            "redis://host:6379/",
            "redis://user@host/3?db=3",
            "redis+unix:///run/redis.sock?db=1&user=app",
            "postgres://app@host/db?passfile=/etc/pg",
            "redis+cluster://a:7000,b:7000",
            "zookeeper://a:2181,b:2181/locks",
        ] {
            assert!(!may_have_password(url), "{url}");
        }
    }
}
