//! The hash slot of a key. Outside of a cluster it means nothing.

pub(crate) use redis::cluster_routing::Slot;
