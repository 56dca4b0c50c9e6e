//! What is known of a request whose caller did not wait for the reply.

use std::sync::{Arc, OnceLock};

use crate::store::redis::wire::Reply;

/// Whether a request whose reply was left unread has run. It belongs to whoever must be sure of
/// that, and who sends the request again unless a reply says that it ran.
///
/// The state of the connection does not answer this. After a kill, perhaps by another thread, the
/// request cannot run any more, and perhaps never did; and a reply can be a refusal.
#[derive(Debug, Clone)]
pub(crate) struct Evidence(Arc<OnceLock<bool>>);

/// The duty to tell, which stays with the connection. If it is dropped before the reply was read
/// (the connection has ended or is closed, or its holder's next request has taken it over), no
/// reply says that the request ran.
pub(super) struct Witness(Evidence);

impl Evidence {
    pub(super) fn new() -> (Witness, Self) {
        let evidence = Self(Arc::default());
        (Witness(evidence.clone()), evidence)
    }

    /// `None`: the reply can still come.
    pub(crate) fn has_run(&self) -> Option<bool> {
        self.0.get().copied()
    }
}

impl Witness {
    /// All replies have come.
    pub(super) fn tell(self, replies: &[Reply]) {
        let _ = self.0.0.set(has_run(replies));
    }
}

impl Drop for Witness {
    /// Has no effect once it was told.
    fn drop(&mut self) {
        let _ = self.0.0.set(false);
    }
}

/// Whether these replies say that the request ran, as far as the first one shows: a request that
/// was refused has an error.
pub(crate) fn has_run(replies: &[Reply]) -> bool {
    replies.first().is_some_and(|reply| !matches!(reply, Reply::Error(_)))
}
