//! The schemes of URLs: the servers that each names, and the cargo features that it needs.

use crate::base::advice::Advice;
use crate::base::error::{Result, invalid};

/// What a URL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UrlKind {
    Redis,
    Sentinels,
    Cluster,
    Postgres,
    Mysql,
    ZooKeeper,
}

/// A cargo feature, and whether this build has it.
type Feature = (&'static str, bool);

const REDIS: Feature = ("redis", cfg!(feature = "redis"));
const POSTGRES: Feature = ("postgres", cfg!(feature = "postgres"));
const MYSQL: Feature = ("mysql", cfg!(feature = "mysql"));
const ZOOKEEPER: Feature = ("zookeeper", cfg!(feature = "zookeeper"));
const TLS: Feature = ("tls", cfg!(feature = "tls-core"));

/// What URLs of these schemes name, and the features that they need.
type Row = (UrlKind, &'static [Feature], &'static str);

const SCHEMES: [Row; 10] = [
    (UrlKind::Redis, &[REDIS], "redis, redis+unix, valkey, valkey+unix, unix"),
    (UrlKind::Redis, &[REDIS, TLS], "rediss, valkeys"),
    (UrlKind::Sentinels, &[REDIS], "redis+sentinel, valkey+sentinel"),
    (UrlKind::Sentinels, &[REDIS, TLS], "rediss+sentinel, valkeys+sentinel"),
    (UrlKind::Cluster, &[REDIS], "redis+cluster, valkey+cluster"),
    (UrlKind::Cluster, &[REDIS, TLS], "rediss+cluster, valkeys+cluster"),
    (UrlKind::Postgres, &[POSTGRES], "postgres, postgresql"),
    (UrlKind::Mysql, &[MYSQL], "mysql, mariadb"),
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
        for (kind, needs, names) in allowed(kinds) {
            let name = names.split(", ").find(|name| name.eq_ignore_ascii_case(written));
            match (name, lacked(needs)) {
                (Some(name), None) => {
                    return Ok(Self { kind, name, is_secure: needs.contains(&TLS), rest });
                }
                (Some(name), Some(feature)) => {
                    let why = format!("this build has no {name}://");
                    let error = invalid(why);
                    return Err(error.advise(Advice::EnableFeature(feature)));
                }
                (None, _) => {}
            }
        }
        let is_of_others = !kinds.is_empty() && Self::find(url, &[]).is_ok();
        let why = if is_of_others {
            "it is a URL of other servers, and given alone".to_owned()
        } else {
            what_is_wrong(url)
        };
        let why = format!("{why}; a URL begins here with {}", all(kinds));
        Err(invalid(why))
    }
}

fn allowed(kinds: &[UrlKind]) -> impl Iterator<Item = Row> {
    SCHEMES.into_iter().filter(move |(kind, ..)| kinds.is_empty() || kinds.contains(kind))
}

/// The feature that this build lacks for a scheme.
fn lacked(needs: &[Feature]) -> Option<&'static str> {
    needs.iter().find(|(_, is_on)| !is_on).map(|(feature, _)| *feature)
}

/// The schemes of this build, and those that each lacking feature would bring.
fn all(kinds: &[UrlKind]) -> String {
    let mut lists: Vec<(Option<&str>, Vec<String>)> = vec![(None, Vec::new())];
    for (_, needs, names) in allowed(kinds) {
        let feature = lacked(needs);
        let place = lists.iter().position(|(of, _)| *of == feature).unwrap_or(lists.len());
        if place == lists.len() {
            lists.push((feature, Vec::new()));
        }
        lists[place].1.extend(names.split(", ").map(|name| format!("{name}://")));
    }
    let shown = |(feature, schemes): &(Option<&str>, Vec<String>)| match feature {
        Some(feature) => format!("with the cargo feature {feature:?} also {}", schemes.join(", ")),
        None => schemes.join(", "),
    };
    lists.iter().map(shown).collect::<Vec<_>>().join("; ")
}

/// What others call these servers.
const MEANT: [(&str, &str); 10] = [
    ("http", "redis"),
    ("https", "rediss"),
    ("tcp", "redis"),
    ("redis+tls", "rediss"),
    ("redis+ssl", "rediss"),
    ("redis-sentinel", "redis+sentinel"),
    ("redis-cluster", "redis+cluster"),
    ("postgre", "postgres"),
    ("zk", "zookeeper"),
    ("zookeepers", "zookeeper+tls"),
];

/// Quotes only what can be no password: one may stand where a scheme or a host is expected.
fn what_is_wrong(url: &str) -> String {
    if url.is_empty() {
        return "the URL is empty".to_owned();
    }
    if url.starts_with(['"', '\'']) {
        return "the URL begins with a quotation mark, which is not a part of it".to_owned();
    }
    if let Some((scheme, _)) = url.split_once("://") {
        let is_plain = |c: char| c.is_ascii_alphabetic() || "+-.".contains(c);
        if !scheme.chars().all(is_plain) {
            return "the URL has an unknown scheme".to_owned();
        }
        let meant = MEANT.iter().find(|(said, _)| scheme.eq_ignore_ascii_case(said));
        let hint = meant.map(|(_, meant)| format!(": did you mean {meant}:// ?"));
        return format!("the URL has the unknown scheme {scheme:?}{}", hint.unwrap_or_default());
    }
    let meant = if url.starts_with('/') {
        "redis+unix:///path/of/the/socket".to_owned()
    } else {
        let (host, port) = url.split_once(':').unwrap_or((url, "6379"));
        let is_host = host == "localhost" || host.parse::<std::net::Ipv4Addr>().is_ok();
        let port = port.parse().ok().filter(|_| is_host).unwrap_or(6379_u16);
        format!("redis://{}:{port}", if is_host { host } else { "host" })
    };
    format!("the URL has no scheme: did you mean {meant} ?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(url: &str) -> String {
        Scheme::find(url, &[]).unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_scheme_is_named_and_a_password_is_not() {
        for (url, says) in [
            (" \n", "the URL is empty;"),
            ("http://h", "the unknown scheme \"http\": did you mean redis:// ?;"),
            ("etcd://h", "the unknown scheme \"etcd\";"),
            ("s3cret://h", "an unknown scheme;"),
            ("\"redis://s3cret@h\"", "a quotation mark"),
            ("localhost:7000", "did you mean redis://localhost:7000 ?"),
            ("127.0.0.1", "did you mean redis://127.0.0.1:6379 ?"),
            ("s3cret@h:7", "did you mean redis://host:6379 ?"),
            ("s3cret", "did you mean redis://host:6379 ?"),
            ("/run/s3cret", "did you mean redis+unix:///path/of/the/socket ?"),
        ] {
            let wrong = wrong(url);
            assert!(wrong.contains(says) && !wrong.contains("s3cret"), "{wrong}");
        }
    }

    #[test]
    fn each_scheme_is_found_or_its_feature_is_named() {
        let every = SCHEMES
            .iter()
            .flat_map(|(_, needs, names)| names.split(", ").map(move |name| (lacked(needs), name)));
        for (lacked, name) in every {
            assert!(wrong("").contains(&format!("{name}://")), "{}", wrong(""));
            match (Scheme::find(&format!("{}://h", name.to_uppercase()), &[]), lacked) {
                (Ok(scheme), None) => assert_eq!((scheme.name, scheme.rest), (name, "//h")),
                (Err(error), Some(feature)) => {
                    assert_eq!(error.advice(), Some(&Advice::EnableFeature(feature)));
                    assert!(error.message().contains(&format!("no {name}://")), "{error}");
                }
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
    }
}
