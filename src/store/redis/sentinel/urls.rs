//! What the URLs of a client contain about sentinels, and about the server that they watch.

use std::sync::Arc;

use crate::base::error::{Result, invalid};
use crate::store::net::Url;
use crate::store::redis::wire::{Endpoint, Provider, SENTINEL_PORT};
use crate::store::schemes::UrlKind;

const FORM: &str = "redis+sentinel://[user:password@]host[:port][,host[:port]..]/master[/db], or \
                    the same with rediss+sentinel:// (TLS); user and password are the server's";

pub(crate) struct SentinelUrls {
    /// The name of the master.
    pub(crate) name: String,
    pub(crate) sentinels: Vec<Endpoint>,
    /// How to connect to the master, with a placeholder for its address. With TLS if the sentinels
    /// have it.
    pub(crate) server: Endpoint,
}

/// The sources of the passwords that the URLs do not contain.
#[derive(Clone, Copy)]
pub(crate) struct Providers<'p> {
    pub(crate) of_servers: Option<&'p Arc<Provider>>,
    pub(crate) of_sentinels: Option<&'p Arc<Provider>>,
}

impl SentinelUrls {
    /// Each URL is that of a sentinel, except for the database, which is the server's. `name`:
    /// that of the master.
    pub(crate) fn of_each(urls: &[String], name: &str, providers: Providers<'_>) -> Result<Self> {
        if urls.is_empty() {
            return Err(invalid("the URL of at least one sentinel is needed"));
        }
        let parse = |url: &String| {
            Endpoint::parse_with(url, SENTINEL_PORT)?.with_provider(providers.of_sentinels)
        };
        let endpoints: Vec<Endpoint> = urls.iter().map(parse).collect::<Result<_>>()?;
        let server = endpoints[0].clone().logged_in_by(providers.of_servers);
        if endpoints.iter().any(|endpoint| endpoint.is_secure() != server.is_secure()) {
            return Err(invalid("either all URLs of sentinels are rediss:// (TLS), or none is"));
        }
        if endpoints.iter().any(|endpoint| endpoint.db() != server.db()) {
            return Err(invalid(
                "the database in a sentinel's URL is the server's, so all URLs must have the same",
            ));
        }
        let sentinels = endpoints.into_iter().map(Endpoint::without_db).collect();
        Self { name: name.to_owned(), sentinels, server }.checked()
    }

    /// One URL names all sentinels and the master.
    pub(crate) fn of_one(url: &str, providers: Providers<'_>) -> Result<Self> {
        let url = Url::split(url, &[UrlKind::Sentinels], FORM)?;
        let (name, db) = url.path.split_once('/').unwrap_or((url.path, ""));
        if name.is_empty() {
            return Err(url.wrong("the URL names no master behind its hosts"));
        }
        let endpoints = Endpoint::parse_each(&url, db, SENTINEL_PORT)?
            .into_iter()
            .map(|endpoint| endpoint.with_provider(providers.of_servers))
            .collect::<Result<Vec<_>>>()?;
        let server = endpoints[0].clone();
        let of_sentinel =
            |endpoint: Endpoint| endpoint.without_db().logged_in_by(providers.of_sentinels);
        Self {
            name: name.to_owned(),
            sentinels: endpoints.into_iter().map(of_sentinel).collect(),
            server,
        }
        .checked()
    }

    fn checked(self) -> Result<Self> {
        // All that Redis allows, so that nothing behind a `#` or a `%` is taken for a part of it.
        let is_named_well = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        if self.name.is_empty() || !self.name.chars().all(is_named_well) {
            return Err(invalid(
                "a master's name has letters, digits, '.', '-' and '_', as in the sentinels' configuration",
            ));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Providers<'_> = Providers { of_servers: None, of_sentinels: None };

    fn parse(
        urls: &[&str],
        name: Option<&str>,
    ) -> std::result::Result<(String, String, u32), String> {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        let parsed = match name {
            Some(name) => SentinelUrls::of_each(&urls, name, NOBODY),
            None => SentinelUrls::of_one(&urls[0], NOBODY),
        };
        let parsed = parsed.map_err(|e| e.to_string())?;
        Ok((parsed.name, format!("{:?}", parsed.sentinels), parsed.server.db()))
    }

    #[test]
    fn both_forms_are_understood() {
        let all = Ok(("m".to_owned(), "[a:26379, b:7, [::1]:26379]".to_owned(), 3));
        assert_eq!(parse(&["redis://a/3", "redis://x:y@b:7/3", "redis://[::1]/3"], Some("m")), all);
        assert_eq!(parse(&["redis+sentinel://u:p%40@a,b:7,[::1]/m/3"], None), all);
        assert_eq!(parse(&["redis+sentinel://a,b:7,[::1]/m?db=3"], None), all);
        assert_eq!(parse(&["redis+sentinel://a/m"], None).unwrap().2, 0);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (urls, name) in [
            (&["redis+sentinel://a"][..], None),
            (&["redis+sentinel://a/"], None),
            (&["redis+sentinel://a,,b/m"], None),
            (&["redis+sentinel://a/m/x"], None),
            (&["redis+sentinel://a/m/1/2"], None),
            (&["redis+sentinel://a/m?x=1"], None),
            (&["redis+sentinel://a/m#f"], None),
            (&["redis+sentinels://a/m"], None),
            (&["redis-sentinel://a/m"], None),
            (&["redis+sentinel://u@a/m"], None),
            (&["redis+sentinel://a/m"], Some("m")),
            (&["redis+sentinel://a/m", "redis://b/"], Some("m")),
            (&["redis://a/1", "redis://b/2"], Some("m")),
            (&["redis://a/"], Some("")),
            (&["redis://a/"], Some("a b")),
            (&[], Some("m")),
        ] {
            assert!(parse(urls, name).is_err(), "{urls:?} {name:?}");
        }
    }
}
