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
#[path = "parameters_tests.rs"]
mod tests;
