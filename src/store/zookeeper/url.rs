//! `zookeeper://[user:password@]host[:port][,host[:port]..][/chroot]`.

use std::fmt;

use crate::base::error::Result;
use crate::store::net::{Address, Url};
use crate::store::schemes::UrlKind;

const PORT: u16 = 2181;

const FORM: &str = "zookeeper://[user:password@]host[:port][,host[:port]..][/chroot]; with \
                    zookeeper+tls:// the connections have TLS";

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
        let hosts: Vec<String> = self.hosts.iter().map(|host| format!("{host:?}")).collect();
        write!(f, "{}{}", hosts.join(","), self.chroot)
    }
}

impl ZooKeeperUrl {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let url = Url::split(url, &[UrlKind::ZooKeeper], FORM)?;
        if url.query.is_some() {
            return Err(url.wrong(
                "a zookeeper:// URL has no parameters, since the Builder has the settings; in a \
                 chroot a '?' is written %3F",
            ));
        }
        Ok(Self {
            hosts: hosts_of(&url)?,
            digest: url.log_in.map(|log_in| digest_of(&url, log_in)).transpose()?,
            chroot: chroot_of(&url)?,
            secure: url.scheme.is_secure,
        })
    }
}

fn digest_of(url: &Url<'_>, log_in: &str) -> Result<String> {
    let (user, password) =
        log_in.split_once(':').filter(|(user, _)| !user.is_empty()).ok_or_else(|| {
            url.wrong("in front of the '@' in the URL is a digest identity, user:password")
        })?;
    let user = url.decode("user", user)?;
    if user.contains(':') {
        return Err(url.wrong("the user of a digest identity cannot contain a ':'"));
    }
    Ok(format!("{user}:{}", url.decode("password", password)?))
}

fn hosts_of(url: &Url<'_>) -> Result<Vec<Address>> {
    let is_in_a_name = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    let hosts = url.hosts()?;
    if hosts.iter().any(|host| !host.name.chars().all(is_in_a_name)) {
        return Err(url.wrong("a host in the URL is neither a name nor an IP address"));
    }
    let addresses = hosts
        .into_iter()
        .map(|host| Address::Tcp { host: host.name.to_owned(), port: host.port.unwrap_or(PORT) });
    Ok(addresses.collect())
}

fn chroot_of(url: &Url<'_>) -> Result<String> {
    let path = url.decode("chroot", url.path)?;
    if path.is_empty() {
        return Ok(path);
    }
    if path.starts_with('/') {
        return Err(url.wrong("the chroot in the URL has an empty element"));
    }
    // The rules for its elements are those for a name.
    super::names::check_path(&path).map_err(|e| {
        url.wrong(format!("the chroot in the URL is not a valid path: {}", e.message()))
    })?;
    Ok(format!("/{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

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
