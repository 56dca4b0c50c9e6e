//! Splits a URL into its parts, as they are written, and says which part is wrong. Every part is
//! interpreted or refused: a part that is ignored could mean no encryption, or other locks.

use std::fmt::Display;

use crate::base::error::{Error, Result, invalid};
use crate::store::schemes::{Scheme, UrlKind};

/// The parts of a URL. No error quotes one of them, which may belong to a password.
#[allow(dead_code, reason = "no store reads all parts")]
pub(crate) struct Url<'u> {
    pub(crate) scheme: Scheme<'u>,
    /// What is in front of the last `@`.
    pub(crate) log_in: Option<&'u str>,
    pub(crate) hosts: &'u str,
    /// Without the slash that begins it.
    pub(crate) path: &'u str,
    pub(crate) query: Option<&'u str>,
    /// A `/`, `?` or `#` in a password ends the hosts, and an `@` follows.
    pub(super) may_hold_a_broken_password: bool,
    form: &'static str,
}

/// One of the hosts of a URL.
#[allow(dead_code, reason = "no store reads all parts")]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host<'u> {
    pub(crate) written: &'u str,
    /// Without the brackets of an IPv6 address.
    pub(crate) name: &'u str,
    pub(crate) port: Option<u16>,
}

impl<'u> Url<'u> {
    /// `kinds`: see [`Scheme::find`]. `form`: what such URLs look like, for errors.
    pub(crate) fn split(text: &'u str, kinds: &[UrlKind], form: &'static str) -> Result<Self> {
        let scheme = Scheme::find(text, kinds)?;
        let rest = scheme.rest.strip_prefix("//").unwrap_or(scheme.rest);
        let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (address, query) =
            tail.split_once('?').map_or((tail, None), |(address, query)| (address, Some(query)));
        let (log_in, hosts) = authority
            .rsplit_once('@')
            .map_or((None, authority), |(log_in, hosts)| (Some(log_in), hosts));
        let url = Self {
            scheme,
            log_in,
            hosts,
            path: address.strip_prefix('/').unwrap_or(address),
            query,
            may_hold_a_broken_password: tail.contains('@'),
            form,
        };
        // A unix socket may also be unix:/path.
        if rest.len() == scheme.rest.len() && !url.is_unix() {
            return Err(url.wrong("the scheme of the URL must be followed by ://"));
        }
        if rest.split(',').skip(1).any(|next| next.contains("://")) {
            return Err(url.wrong(
                "a comma joins two URLs; several servers are one URL with one scheme, as in \
                 redis+sentinel://a,b/master and redis+cluster://a,b, and those of Redlock are \
                 given one by one",
            ));
        }
        if rest.contains(|c: char| c.is_ascii_control()) {
            return Err(url.wrong("the URL has a control character, such as the end of a line"));
        }
        if tail.contains('#') {
            return Err(url.wrong(
                "a '#' in a URL has no meaning: in a user or password it is written %23, and the \
                 settings of TLS are in Tls",
            ));
        }
        if url.path.contains('@') && !authority.is_empty() {
            return Err(url.wrong("the path of the URL has an '@', which is written %40 there"));
        }
        Ok(url)
    }

    pub(crate) fn is_unix(&self) -> bool {
        self.scheme.name.ends_with("unix")
    }

    /// An error that says what is wrong, how to encode a password if that may be the reason, and
    /// what the URL looks like.
    #[cold]
    pub(crate) fn wrong(&self, why: impl Display) -> Error {
        let hint = if self.may_hold_a_broken_password {
            "; a '/', '?', '#' or '@' in a user or password is written %2F, %3F, %23 or %40"
        } else {
            ""
        };
        let why = format!("{why}{hint}; the form of the URL is {}", self.form);
        invalid(why)
    }

    pub(crate) fn hosts(&self) -> Result<Vec<Host<'u>>> {
        self.hosts.split(',').map(|host| self.host(host)).collect()
    }

    fn host(&self, written: &'u str) -> Result<Host<'u>> {
        let is_end = |end: &str| end.is_empty() || end.starts_with(':');
        let (name, end) = match written.strip_prefix('[') {
            Some(rest) => rest.split_once(']').filter(|(_, end)| is_end(end)).ok_or_else(|| {
                self.wrong("an IPv6 address in the URL is not [address] or [address]:port")
            })?,
            None => written.split_at(written.find(':').unwrap_or(written.len())),
        };
        let port = end.strip_prefix(':').filter(|port| !port.is_empty());
        let port = port.map(|port| self.port(port)).transpose()?;
        if name.is_empty() && !self.is_unix() {
            let is_path = self.hosts.is_empty() && !self.path.is_empty();
            let hint =
                if is_path { " (the URL of a socket begins with redis+unix:///)" } else { "" };
            return Err(self.wrong(format!("a host is missing in the URL{hint}")));
        }
        Ok(Host { written, name, port })
    }

    /// The number of a port.
    pub(crate) fn port(&self, text: &str) -> Result<u16> {
        text.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
            // Anything else may belong to a password.
            let is_number = text.len() <= 5 && text.bytes().all(|c| c.is_ascii_digit());
            let (port, hint) = if is_number {
                (format!("the port {text}"), "")
            } else {
                ("a port".to_owned(), " (an IPv6 address is written in brackets, [::1])")
            };
            self.wrong(format!("{port} in the URL is not a number from 1 to 65535{hint}"))
        })
    }

    /// Decodes the %-escapes of a part. The crate `percent-encoding` would let invalid ones pass.
    #[cfg(any(feature = "postgres", feature = "mysql", feature = "zookeeper"))]
    pub(crate) fn decode(&self, name: &str, text: &str) -> Result<String> {
        let mut parts = text.split('%');
        let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
        for part in parts {
            let digits = part.get(..2).filter(|two| two.chars().all(|c| c.is_ascii_hexdigit()));
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(byte.ok_or_else(|| {
                self.wrong(format!(
                    "the {name} in the URL has a '%' without two hexadecimal digits behind \
                     it; a literal '%' is written %25"
                ))
            })?);
            bytes.extend(&part.as_bytes()[2..]);
        }
        String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')).ok_or_else(|| {
            self.wrong(format!(
                "the {name} in the URL has a zero byte, or is not UTF-8, after its %-escapes are \
                 decoded"
            ))
        })
    }
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
