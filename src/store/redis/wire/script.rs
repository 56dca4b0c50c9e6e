//! A Lua script as the server knows it: its source and its hash.

use std::sync::{LazyLock, OnceLock};

use super::shape::Shape;

/// A Lua file, assembled with the libraries it shares with others.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) source: &'static str,
    /// The shape of its replies, as far as it does not depend on the arguments.
    pub(crate) shape: Shape,
    sha: LazyLock<String>,
    /// For a cluster with sharded channels.
    sharded: OnceLock<Sharded>,
}

/// A script that publishes to sharded channels or counts their subscribers, and its hash.
#[derive(Debug)]
struct Sharded {
    source: String,
    sha: String,
}

/// The command by which releases are published. Publishers and subscribers must agree: a sharded
/// message reaches no classic subscriber, and a classic message reaches no sharded one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Publishing {
    Classic,
    Sharded,
}

impl Script {
    /// `sha` computes the SHA-1 of `source`, on first use.
    pub(crate) const fn new(source: &'static str, shape: Shape, sha: fn() -> String) -> Self {
        Self { source, shape, sha: LazyLock::new(sha), sharded: OnceLock::new() }
    }

    pub(crate) fn source(&self, publishing: Publishing) -> &str {
        match publishing {
            Publishing::Classic => self.source,
            Publishing::Sharded => &self.sharded().source,
        }
    }

    pub(crate) fn sha(&self, publishing: Publishing) -> &str {
        match publishing {
            Publishing::Classic => &self.sha,
            Publishing::Sharded => &self.sharded().sha,
        }
    }

    fn sharded(&self) -> &Sharded {
        self.sharded.get_or_init(|| {
            let source =
                self.source.replace("'publish'", "'spublish'").replace("'numsub'", "'shardnumsub'");
            Sharded { sha: sha_of(&source), source }
        })
    }
}

pub(crate) fn sha_of(source: &str) -> String {
    redis::Script::new(source).get_hash().to_owned()
}
