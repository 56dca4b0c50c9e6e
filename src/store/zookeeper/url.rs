//! `zookeeper://[user:password@]host[:port][,host[:port]..][/chroot]`. Every part is interpreted or
//! rejected.

use std::fmt;

use crate::base::error::{Error, ErrorKind, Result};
use crate::store::net::{Address, decode};

const PORT: u16 = 2181;

const SHAPE: &str = "the URL is not zookeeper://[user:password@]host[:port][,host[:port]..][/chroot]; with zookeeper+tls:// \
                     the connections have TLS";

/// A URL, taken apart and checked; nothing is connected.
#[derive(Clone)]
pub(crate) struct ZooKeeperUrl {
    pub(crate) hosts: Vec<Address>,
    /// `user:password` of a digest identity.
    pub(crate) digest: Option<String>,
    /// Without a slash at its end; empty for none.
    pub(crate) chroot: String,
    #[cfg_attr(
        not(any(feature = "tls-core", test)),
        expect(dead_code, reason = "without TLS it was only checked")
    )]
    pub(crate) secure: bool,
}

impl fmt::Debug for ZooKeeperUrl {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, host) in self.hosts.iter().enumerate() {
            write!(f, "{}{host:?}", if place > 0 { "," } else { "" })?;
        }
        f.write_str(&self.chroot)
    }
}

impl ZooKeeperUrl {
    /// No message quotes the URL, which may hold a password.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| invalid(SHAPE))?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "zookeeper" => false,
            "zookeeper+tls" => true,
            _ => return Err(invalid(SHAPE)),
        };
        if secure && !cfg!(feature = "tls-core") {
            return Err(invalid(
                "a zookeeper+tls:// URL needs leasehold's cargo feature \"tls\", which is off here",
            ));
        }
        if rest.contains('#') {
            return Err(invalid(
                "a '#' in a URL has no meaning; in a user or password write it as %23",
            ));
        }
        if rest.contains('?') {
            return Err(invalid(
                "a zookeeper:// URL has no parameters: the Builder has the settings; in a user, password or \
                 chroot a '?' is written %3F",
            ));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (digest, hosts) = match authority.rsplit_once('@') {
            Some((identity, hosts)) => (Some(digest_of(identity)?), hosts),
            None => (None, authority),
        };
        let hosts = hosts.split(',').map(host_of).collect::<Result<Vec<Address>>>()?;
        Ok(Self { hosts, digest, chroot: chroot_of(path)?, secure })
    }
}

fn digest_of(identity: &str) -> Result<String> {
    let (user, password) = identity.split_once(':').filter(|(user, _)| !user.is_empty()).ok_or_else(|| {
        invalid("a digest identity in the URL is user:password; a ':' in the user is written %3A, and '@' %40")
    })?;
    let user = decode(user)?;
    if user.contains(':') {
        return Err(invalid("the user of a digest identity cannot contain a ':'"));
    }
    Ok(format!("{user}:{}", decode(password)?))
}

fn host_of(text: &str) -> Result<Address> {
    let wrong = || {
        invalid("a host in the URL is host, host:port or [address]:port, and a port is 1 to 65535")
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
            let port = rest.strip_prefix(':');
            if port.is_none() && !rest.is_empty() {
                return Err(wrong());
            }
            (host, port)
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(PORT), |port| {
        port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong)
    })?;
    let is_name =
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:".contains(c));
    if is_name { Ok(Address::Tcp { host: host.to_owned(), port }) } else { Err(wrong()) }
}

fn chroot_of(path: &str) -> Result<String> {
    let path = decode(path)?;
    if path.is_empty() {
        return Ok(path);
    }
    if path.starts_with('/') {
        return Err(invalid("the chroot in the URL has an empty element"));
    }
    // The rules for its elements are those for a name.
    super::names::check_path(&path).map_err(|e| {
        invalid(format!("the chroot in the URL is not a valid path: {}", e.message()))
    })?;
    Ok(format!("/{path}"))
}

#[cold]
fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = ZooKeeperUrl::parse(
            "zookeeper://us%40er:p%3Aw%2F@a:2181,b,[::1]:2183/app/locks%20here",
        )
        .unwrap();
        assert_eq!(format!("{url:?}"), "a:2181,b:2181,[::1]:2183/app/locks here");
        assert_eq!((url.digest.as_deref(), url.secure), (Some("us@er:p:w/"), false));
        let plain = ZooKeeperUrl::parse("ZooKeeper://127.0.0.1").unwrap();
        assert_eq!((plain.hosts.len(), &*plain.chroot, plain.digest), (1, "", None));
        assert_eq!(ZooKeeperUrl::parse("zookeeper://h/").unwrap().chroot, "");
        assert_eq!(ZooKeeperUrl::parse("zookeeper://h/a").unwrap().chroot, "/a");
        let secure = ZooKeeperUrl::parse("zookeeper+tls://h");
        assert!(match secure {
            Ok(url) => cfg!(feature = "tls-core") && url.secure,
            Err(error) =>
                !cfg!(feature = "tls-core") && error.message().contains("cargo feature \"tls\""),
        });
    }

    #[test]
    fn what_is_not_understood_is_refused_without_quoting_it() {
        for url in [
            "zookeeper://u:secret@h?session=4",
            "zookeeper://u:secret@h/a#x",
            "zookeeper://secret@h",
            "zookeeper://:secret@h",
            "zookeeper://u:secret%zz@h",
            "zookeeper://u%3Av:secret@h",
            "zookeeper://u:secret@",
            "zookeeper://u:secret@h:0",
            "zookeeper://u:secret@h:x",
            "zookeeper://u:secret@h,,i",
            "zookeeper://u:secret@[::1",
            "zookeeper://u:secret@[::1]x",
            "zookeeper://u:sec/ret@h/secret",
            "zookeeper://u:secret@h//a",
            "zookeeper://u:secret@h/a/",
            "zookeeper://u:secret@h/a/../b",
            "zookeeper://u:secret@h/zookeeper",
            "zookeepers://u:secret@h",
            "zookeeper:u:secret@h",
        ] {
            let error = ZooKeeperUrl::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
            assert!(!error.to_string().contains("secret"), "{url}: {error}");
        }
    }
}
