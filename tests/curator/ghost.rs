//! A create that was in transit when its connection ended, and a server that does not show it yet.

use std::time::Duration;

use leasehold::{ErrorKind, LockClient};

use crate::kinds::KINDS;
use crate::rig::zookeeper::{Ensemble, EnsembleOptions, PERSISTENT};
use crate::rig::{Fault, Proxy, ms, wait_until};

/// A ghost would remain for longer than the tests wait.
const LEASE: Duration = Duration::from_secs(24);

/// How much later followers receive the leader's changes. A change is committed one lag after it
/// was requested, and a follower shows it after another one.
const LAG: Duration = ms(1500);

/// The create goes to the leader and its connection ends at once; the next connection is to a
/// follower, once that is allowed, which reports being connected when it has received the create,
/// but not its commit.
struct Scene {
    client: LockClient,
    to_leader: Proxy,
    to_follower: Proxy,
    ensemble: Ensemble,
}

impl Scene {
    fn set() -> Self {
        let options =
            EnsembleOptions { patience: Duration::from_secs(100), ..EnsembleOptions::default() };
        let ensemble = Ensemble::start_with(options);
        let leader = ensemble.leader();
        let follower = ensemble.followers()[0];
        let to_leader = Proxy::before_zookeeper(ensemble.server(leader));
        let to_follower = Proxy::before_zookeeper(ensemble.server(follower));
        // It connects to the leader, whichever server it tries first.
        to_follower.refuse(true);
        let url =
            format!("zookeeper://127.0.0.1:{},127.0.0.1:{}", to_leader.port(), to_follower.port());
        let client =
            LockClient::builder().url(url).lease(LEASE).io_timeout(ms(8000)).build().unwrap();
        // The directory exists permanently, so that the create is sent alone. The ensemble would
        // soon remove one that the client has created and left empty.
        ensemble
            .server(leader)
            .look(|session| drop(session.create("/m", b"", PERSISTENT).unwrap()));
        KINDS[0].take(&client, "m").unlock().unwrap();
        for index in ensemble.followers() {
            ensemble.lag(index, LAG);
        }
        to_leader.inject("create2 /m/", Fault::CutRequestAt(usize::MAX));
        to_leader.refuse(true);
        Self { client, to_leader, to_follower, ensemble }
    }

    fn nodes(&self) -> Vec<String> {
        self.ensemble.server(self.ensemble.leader()).children("/m")
    }

    /// Whether a second node was ever created in the directory.
    fn was_there(&self) -> bool {
        let node = self.ensemble.server(self.ensemble.leader()).node("/m");
        node.is_none_or(|node| node.cversion >= 3)
    }
}

/// The call finds its own queue entry over the next connection. Another one of its own would be
/// behind that for as long as the session.
#[test]
fn a_create_of_unknown_outcome_is_found_by_the_same_call() {
    let scene = Scene::set();
    scene.to_follower.refuse(false);
    let held = scene
        .client
        .mutex("m")
        .try_lock_for(ms(10_000))
        .unwrap()
        .expect("its own queue entry is the first");
    scene.to_leader.wait_hits(1);
    assert!(scene.was_there());
    wait_until("one node for one hold", || scene.nodes().len() == 1);
    assert!(held.is_held());
    held.unlock().unwrap();
    wait_until("nothing is left", || scene.nodes().is_empty());
}

/// There is no other connection while the call waits. Its leftover is found and deleted in the
/// background.
#[test]
fn a_create_of_unknown_outcome_goes_by_itself() {
    let scene = Scene::set();
    let error = scene.client.mutex("m").try_lock_for(ms(5000)).expect_err("its connection ended");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    scene.to_leader.wait_hits(1);
    scene.to_follower.refuse(false);
    wait_until("the create is committed", || scene.was_there());
    wait_until("nothing is left", || scene.nodes().is_empty());
    KINDS[0].take(&scene.client, "m").unlock().unwrap();
}
