//! What people and their programs learn of a client: counters, listeners, spans, owners, findings.
//! Nothing here changes what a lock does.

pub(crate) mod diagnosis;
pub(crate) mod listener;
pub(crate) mod observer;
pub(crate) mod outcomes;
pub(crate) mod owner;
pub(crate) mod record;
pub(crate) mod spans;
pub(crate) mod traffic;
