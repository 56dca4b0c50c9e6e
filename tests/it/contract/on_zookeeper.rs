//! The contract over ZooKeeper: all rows of a test share one server, which grants sessions as long
//! as the leases of the suite.

use std::sync::Arc;

use leasehold::Builder;

use super::{Elsewhere, LONG, Network};
use crate::rig::zookeeper::{Raw, ZooKeeper};
use crate::rig::{Proxy, ms};

struct Server(ZooKeeper);

pub(super) fn start() -> Option<Arc<dyn Elsewhere>> {
    ZooKeeper::start_with("tickTime=100\nmaxSessionTimeout=300000")
        .map(|server| Arc::new(Server(server)) as Arc<dyn Elsewhere>)
}

/// The ephemeral nodes of a name, and of its second one.
fn nodes_of(session: &mut Raw, name: &str) -> Vec<String> {
    let _ = session.sync("/");
    let mut nodes = Vec::new();
    for directory in [format!("/{name}"), format!("/{name}/locks"), format!("/{name}/leases"), format!("/{name}-too")] {
        let children = session.children(&directory).unwrap_or_default();
        nodes.extend(children.iter().filter(|node| node.contains("_c_")).map(|node| format!("{directory}/{node}")));
    }
    nodes
}

impl Elsewhere for Server {
    fn what(&self) -> &'static str {
        "over ZooKeeper"
    }

    fn url(&self) -> String {
        self.0.url()
    }

    /// No lease is longer than the session.
    fn builder(&self, builder: Builder) -> Builder {
        builder.lease(LONG)
    }

    fn assert_clean(&self) {
        self.0.assert_clean();
    }

    fn network(&self) -> Network {
        let proxy = Proxy::before_zookeeper(&self.0);
        let url = proxy.zookeeper_url();
        Network::of(proxy, url)
    }

    fn held(&self, name: &str) -> Vec<String> {
        // A client that did not get a lock does not wait until its node is gone.
        std::thread::sleep(ms(30));
        self.0.look(|session| nodes_of(session, name))
    }

    fn delete(&self, name: &str) {
        self.0.look(|session| {
            for node in nodes_of(session, name) {
                let _ = session.delete(&node);
            }
            let _ = session.delete(&format!("/{name}/permits"));
        });
    }

    /// Whether somebody stands behind the holder, and is told when it goes. The server does not show
    /// who watches a directory, as one who waits for permits does.
    fn is_waited_for(&self, _client: &str, name: &str) -> bool {
        let own = format!("/{name}");
        let is_watched = self.0.watches().iter().any(|(_, path)| path.starts_with(&own));
        (is_watched || name.starts_with("the-semaphore"))
            && self.held(name).len() > if name == "the-multi" || name == "the-multi-owned" { 2 } else { 1 }
    }
}
