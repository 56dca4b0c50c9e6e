//! The schemes of URLs: the servers that each names, and the cargo features that it needs.

use crate::base::error::{Error, ErrorKind, Result};

/// What a URL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UrlKind {
    Redis,
    Sentinels,
    Cluster,
    Postgres,
    ZooKeeper,
}

/// A cargo feature, and whether this build has it.
type Feature = (&'static str, bool);

const REDIS: Feature = ("redis", cfg!(feature = "redis"));
const POSTGRES: Feature = ("postgres", cfg!(feature = "postgres"));
const ZOOKEEPER: Feature = ("zookeeper", cfg!(feature = "zookeeper"));
const TLS: Feature = ("tls", cfg!(feature = "tls-core"));

const SCHEMES: [(UrlKind, &[Feature], &str); 9] = [
    (UrlKind::Redis, &[REDIS], "redis, redis+unix, valkey, valkey+unix, unix"),
    (UrlKind::Redis, &[REDIS, TLS], "rediss, valkeys"),
    (UrlKind::Sentinels, &[REDIS], "redis+sentinel, valkey+sentinel"),
    (UrlKind::Sentinels, &[REDIS, TLS], "rediss+sentinel, valkeys+sentinel"),
    (UrlKind::Cluster, &[REDIS], "redis+cluster, valkey+cluster"),
    (UrlKind::Cluster, &[REDIS, TLS], "rediss+cluster, valkeys+cluster"),
    (UrlKind::Postgres, &[POSTGRES], "postgres, postgresql"),
    (UrlKind::ZooKeeper, &[ZOOKEEPER], "zookeeper"),
    (UrlKind::ZooKeeper, &[ZOOKEEPER, TLS], "zookeeper+tls"),
];

/// The scheme of a URL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scheme<'u> {
    pub(crate) kind: UrlKind,
    pub(crate) name: &'static str,
    pub(crate) is_secure: bool,
    /// What follows the colon.
    pub(crate) rest: &'u str,
}

impl<'u> Scheme<'u> {
    /// `kinds`: what the URL may name; anything if there are none.
    pub(crate) fn find(url: &'u str, kinds: &[UrlKind]) -> Result<Self> {
        // A URL that was read from a file may end with the end of a line.
        let url = url.trim_matches(|c| c <= ' ');
        let (written, rest) = url.split_once(':').unwrap_or_default();
        let mut usable = Vec::new();
        let is_allowed = |kind| kinds.is_empty() || kinds.contains(kind);
        for (kind, needs, names) in SCHEMES.iter().filter(|(kind, ..)| is_allowed(kind)) {
            let shown = names.replace(", ", "://, ");
            if let Some((feature, _)) = needs.iter().find(|(_, is_on)| !is_on) {
                usable.push(format!("{shown}:// (only with the cargo feature {feature:?})"));
                continue;
            }
            if let Some(name) = names.split(", ").find(|name| name.eq_ignore_ascii_case(written)) {
                return Ok(Self { kind: *kind, name, is_secure: needs.contains(&TLS), rest });
            }
            usable.push(format!("{shown}://"));
        }
        let is_of_others = !kinds.is_empty() && Self::find(url, &[]).is_ok();
        let hint =
            if is_of_others { "; it is a URL of other servers, and given alone" } else { "" };
        // The scheme is not quoted: without its colon, it may be a part of a password.
        let why = format!("the scheme of the URL is none of {}{hint}", usable.join(", "));
        Err(Error::new(ErrorKind::InvalidInput, why))
    }
}
