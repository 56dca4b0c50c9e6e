//! What a URL sets by its address and by its parameters: each once, and nothing unknown.

use super::url::Url;
use crate::base::error::Result;

pub(crate) struct Parameters<'u> {
    url: &'u Url<'u>,
    known: &'static str,
    said: Vec<(String, String)>,
}

impl<'u> Parameters<'u> {
    /// `known`: the names that the URL may set, separated by `, `.
    pub(crate) fn of(url: &'u Url<'u>, known: &'static str) -> Self {
        Self { url, known, said: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: &str, value: String) -> Result<()> {
        if !self.known.split(", ").any(|known| known == name) {
            return Err(self.url.wrong(self.unknown(name)));
        }
        if self.get(name).is_some() {
            return Err(self.url.wrong(format!("the URL sets {name} twice")));
        }
        self.said.push((name.to_owned(), value));
        Ok(())
    }

    /// What is behind the `?` of the URL.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn add_query(&mut self) -> Result<()> {
        let parameters = self.url.query.unwrap_or_default().split('&');
        for parameter in parameters.filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').ok_or_else(|| {
                self.url.wrong("a parameter of the URL has no value, which follows a '='")
            })?;
            self.add(name, self.url.decode("value of a parameter", value)?)?;
        }
        Ok(())
    }

    /// With a '?' or a '&' that was not encoded, the name could be a part of a password.
    fn unknown(&self, name: &str) -> String {
        let known = self.known;
        let has_password = self.url.query.is_some_and(|query| query.contains("pass"));
        if has_password || self.url.may_hold_a_broken_password {
            return format!("the URL has an unknown parameter; known are {known}");
        }
        let begin: String = name.chars().take(3).collect();
        let near: Vec<_> = known.split(", ").filter(|known| known.starts_with(&begin)).collect();
        let near = if near.is_empty() { known.to_owned() } else { near.join(", ") };
        format!("the URL has the unknown parameter {name:?}; known are {near}")
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.said.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn own(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }
}

#[cfg(all(test, feature = "redis", any(feature = "postgres", feature = "mysql")))]
mod tests {
    use super::*;

    /// What these parameters of a URL say, or what is wrong with them.
    fn said(query: &str) -> std::result::Result<Vec<(String, String)>, String> {
        let text = format!("redis://h/{query}");
        let url = Url::split(&text, &[], "FORM").unwrap();
        let mut parameters = Parameters::of(&url, "user, password, sslmode, sslcert");
        let added = parameters.add_query();
        added.map(|()| parameters.said).map_err(|e| e.message().to_owned())
    }

    #[test]
    fn each_parameter_is_known_and_said_once() {
        let pairs = |pairs: &[(&str, &str)]| {
            Ok(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
        };
        assert_eq!(said(""), pairs(&[]));
        assert_eq!(said("?"), pairs(&[]));
        let two = pairs(&[("user", "a&b"), ("sslmode", "")]);
        assert_eq!(said("?user=a%26b&&sslmode="), two);
        let wrong = |query: &str| said(query).unwrap_err();
        assert!(wrong("?user").contains("has no value"));
        assert!(wrong("?user=%").contains("two hexadecimal digits"));
        assert!(wrong("?user=a&user=b").contains("sets user twice"));
        let near = wrong("?sslfoo=1");
        assert!(near.contains("\"sslfoo\"; known are sslmode, sslcert;"), "{near}");
        let none = wrong("?timeout=1");
        assert!(none.contains("\"timeout\"; known are user, password, sslmode"), "{none}");
    }

    /// With a '&' that was not encoded, what follows may be a part of a password.
    #[test]
    fn no_error_shows_a_part_of_a_password() {
        for query in ["?password=s3c&ret=7", "?user=a&s3cret=1@b"] {
            let wrong = said(query).unwrap_err();
            assert!(wrong.contains("an unknown parameter; known are user"), "{wrong}");
            assert!(!wrong.contains("ret"), "{wrong}");
        }
    }

    #[test]
    fn a_parameter_is_read_by_its_name() {
        let url = Url::split("redis://h", &[], "FORM").unwrap();
        let mut parameters = Parameters::of(&url, "user, db");
        parameters.add("db", "3".to_owned()).unwrap();
        assert_eq!((parameters.get("db"), parameters.get("user")), (Some("3"), None));
        assert_eq!((parameters.own("db"), parameters.own("user")), (Some("3".to_owned()), None));
        assert!(parameters.add("d", "3".to_owned()).is_err(), "not by a part of it");
    }
}
