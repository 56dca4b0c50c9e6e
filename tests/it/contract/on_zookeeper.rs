//! The contract over ZooKeeper: all tests share one server, which grants sessions as long as the
//! leases of the suite. Each test has its own path.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::Builder;

use super::{Elsewhere, LONG, Network};
use crate::rig::zookeeper::{Raw, ZooKeeper};
use crate::rig::{Proxy, wait_until};

struct Path {
    server: Arc<ZooKeeper>,
    chroot: String,
}

pub(super) fn start() -> Arc<dyn Elsewhere> {
    static TESTS: AtomicU32 = AtomicU32::new(0);
    let server = ZooKeeper::shared("tickTime=100\nmaxSessionTimeout=300000");
    let chroot = format!("/contract-{}", TESTS.fetch_add(1, Ordering::SeqCst));
    Arc::new(Path { server, chroot })
}

impl Path {
    /// The ephemeral nodes of a name, and of a multi-lock's second name.
    fn nodes_of(&self, session: &mut Raw, name: &str) -> Vec<String> {
        let _ = session.sync("/");
        let base = format!("{}/{name}", self.chroot);
        let mut nodes = Vec::new();
        for directory in
            [base.clone(), format!("{base}/locks"), format!("{base}/leases"), format!("{base}-too")]
        {
            let children = session.children(&directory).unwrap_or_default();
            nodes.extend(
                children
                    .iter()
                    .filter(|node| node.contains("_c_"))
                    .map(|node| format!("{directory}/{node}")),
            );
        }
        nodes
    }
}

impl Elsewhere for Path {
    fn what(&self) -> &'static str {
        "over ZooKeeper"
    }

    fn url(&self) -> String {
        self.server.url_in(&self.chroot)
    }

    /// Leases are limited to the length of the session.
    fn builder(&self, builder: Builder) -> Builder {
        builder.lease(LONG)
    }

    fn assert_clean(&self) {
        let below = format!("{}/", self.chroot);
        let is_own = |path: &String| path.starts_with(&below);
        // What is kept of jobs; an empty directory goes by itself.
        let is_kept =
            |path: &String| path.contains("/leasehold_last:") || path.contains("/leasehold_done:");
        for path in self.server.nodes().iter().filter(|path| is_own(path) && is_kept(path)) {
            let _ = self.server.look(|session| session.delete(path));
        }
        wait_until("no node stays", || !self.server.nodes().iter().any(is_own));
        wait_until("no watch stays", || {
            !self.server.watches().iter().any(|(_, path)| is_own(path))
        });
        self.server.look(|session| session.delete(&self.chroot)).unwrap();
    }

    fn network(&self) -> Network {
        let proxy = Proxy::before_zookeeper(&self.server);
        let url = proxy.zookeeper_url() + &self.chroot;
        Network::of(proxy, url)
    }

    fn held(&self, name: &str) -> Vec<String> {
        self.server.look(|session| self.nodes_of(session, name))
    }

    fn delete(&self, name: &str) {
        self.server.look(|session| {
            for node in self.nodes_of(session, name) {
                let _ = session.delete(&node);
            }
            let _ = session.delete(&format!("{}/{name}/permits", self.chroot));
        });
    }

    /// Whether a waiter watches the node of the holder. The server does not list the watches on
    /// directories, which waiters for permits use.
    fn is_waited_for(&self, _client: &str, name: &str) -> bool {
        let own = format!("{}/{name}", self.chroot);
        let is_watched = self.server.watches().iter().any(|(_, path)| path.starts_with(&own));
        (is_watched || name.starts_with("the-semaphore"))
            && self.held(name).len()
                > if name == "the-multi" || name == "the-multi-owned" { 2 } else { 1 }
    }
}
