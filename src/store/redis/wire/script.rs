//! A Lua script as the server knows it: its source and its hash.

use std::sync::LazyLock;

use super::shape::Shape;

/// A Lua file, assembled with the libraries it shares with others.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: &'static str,
    /// What its replies look like, as far as its arguments do not say.
    pub(crate) shape: Shape,
    sha: LazyLock<String>,
}

impl Script {
    /// `sha` computes the SHA-1 of `source`, on first use.
    pub(crate) const fn new(source: &'static str, shape: Shape, sha: fn() -> String) -> Self {
        Self { source, shape, sha: LazyLock::new(sha) }
    }

    pub(crate) fn sha(&self) -> &str {
        &self.sha
    }
}

pub(crate) fn sha_of(source: &str) -> String {
    redis::Script::new(source).get_hash().to_owned()
}
