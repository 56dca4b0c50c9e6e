//! Redis Cluster: which primary serves which slot, and how a request finds it.
//!
//! Nothing here repeats a request that may have run. A redirect or a refused connection guarantees
//! that nothing ran (see [`follow`] for the exception).

mod away;
mod diagnosis;
mod follow;
mod map;
mod nodes;
#[cfg(test)]
mod nodes_tests;
mod records;
mod refresh;
mod renew;
mod subscription;
mod topology;

pub(super) use self::follow::still_redirected;
pub(super) use self::map::Route;
pub(super) use self::nodes::Cluster;
