//! The URL of the store, as a screen or a picture shows it.

use crate::store::may_have_password;
use crate::text::visible;

/// The URLs without anything that may be a password, and without the user in front of it.
pub(crate) fn shown(urls: &[String]) -> String {
    let shown: Vec<String> = urls.iter().map(|url| visible(&without_password(url))).collect();
    shown.join(" ")
}

fn without_password(url: &str) -> String {
    if !may_have_password(url) {
        return url.to_owned();
    }
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let host = match rest.rsplit_once('@') {
        // Both `?` and `@` may be part of the password.
        Some((log_in, _)) if log_in.contains('?') => "…",
        Some((_, host)) => host,
        None => rest,
    };
    let host = host.split('?').next().unwrap_or_default();
    let between = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{between}{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for (url, seen) in [
            ("redis://host:6379/3?db=3", "redis://host:6379/3?db=3"),
            ("postgres://app@host/db", "postgres://app@host/db"),
            ("redis://:secret@host:6379/", "redis://host:6379/"),
            ("redis://user:se@cr/et@host/", "redis://host/"),
            ("redis+unix:///run/redis.sock?db=1&pass=secret", "redis+unix:///run/redis.sock"),
            ("redis://u@h/?pass=a@secret", "redis://…"),
            ("redis://:se?cret@host/", "redis://…"),
            ("secret@host", "host"),
            ("unix:/run/redis.sock?pass=secret", "unix:/run/redis.sock"),
        ] {
            assert_eq!(without_password(url), seen);
        }
        let both = ["redis://:secret@a".to_owned(), "redis://b".to_owned()];
        assert_eq!(shown(&both), "redis://a redis://b");
    }
}
