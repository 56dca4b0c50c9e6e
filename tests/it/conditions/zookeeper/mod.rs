//! Conditions of ZooKeeper: how they are staged.

mod ensemble;
mod network;
mod rights;
mod server;

use std::ops::Deref;
use std::time::Duration;

use leasehold::ErrorKind::{Denied, Unreachable};
use leasehold::{Builder, LockClient};

use super::row::{Answers, Class, DONE, Row, Stage, if_it_asks, row, unreachable};
use super::runner::IO;
use crate::rig::zookeeper::{Lent, Pipe, Raw, ZooKeeper};
use crate::rig::{ms, wait_until};

/// As in the other tests, so that one server serves many of them, one after the other.
const SETTINGS: &str = "tickTime=100\nmaxSessionTimeout=300000";
/// Longer than all that is extended.
const LEASE: Duration = Duration::from_secs(120);
/// One for all calls, and two for a diagnosis.
const MOST: usize = 3;

type Change = Box<dyn Fn(&mut OnZooKeeper, &[String])>;

enum Server {
    Lent(Lent),
    Own(ZooKeeper),
}

impl Deref for Server {
    type Target = ZooKeeper;

    fn deref(&self) -> &ZooKeeper {
        match self {
            Self::Lent(server) => server,
            Self::Own(server) => server,
        }
    }
}

/// A server with a pipe before it, and what happens to them.
struct OnZooKeeper {
    pipe: Pipe,
    server: Server,
    /// Nodes that the stage has made.
    made: Vec<String>,
    /// Connections of others.
    strangers: Vec<Raw>,
    /// Not while the server answers nobody.
    counts: bool,
    spares_others: bool,
    chooses: fn(&str) -> bool,
    io: Duration,
    /// How it begins and ends.
    happens: Option<(Change, Change)>,
    names: Vec<String>,
}

impl OnZooKeeper {
    fn at(
        server: Server,
        begins: impl Fn(&mut Self, &[String]) + 'static,
        ends: impl Fn(&mut Self, &[String]) + 'static,
    ) -> Self {
        let (begins, ends): (Change, Change) = (Box::new(begins), Box::new(ends));
        Self {
            pipe: Pipe::to(server.port()),
            server,
            made: Vec::new(),
            strangers: Vec::new(),
            counts: true,
            spares_others: false,
            chooses: |_| true,
            io: ms(4000),
            happens: Some((begins, ends)),
            names: Vec::new(),
        }
    }

    fn stage(
        begins: impl Fn(&mut Self, &[String]) + 'static,
        ends: impl Fn(&mut Self, &[String]) + 'static,
    ) -> Self {
        Self::at(Server::Lent(ZooKeeper::lend(SETTINGS)), begins, ends)
    }

    /// With a server whose configuration it changes.
    fn with_a_server_of_its_own(
        settings: &str,
        begins: impl Fn(&mut Self, &[String]) + 'static,
        ends: impl Fn(&mut Self, &[String]) + 'static,
    ) -> Self {
        Self::at(
            Server::Own(ZooKeeper::start_with(&format!("{SETTINGS}\n{settings}"))),
            begins,
            ends,
        )
    }

    /// Where calls wait for the I/O timeout.
    fn impatient(mut self) -> Self {
        self.io = IO;
        self
    }

    /// Takes all connections that the server still gives this host.
    fn fill(&mut self) {
        let port = self.server.port();
        self.strangers.extend(std::iter::from_fn(|| Raw::connect(port, LEASE)));
    }

    fn strangers_end(&mut self) {
        for stranger in self.strangers.drain(..) {
            stranger.close();
        }
    }

    /// Waits until nothing is asked: a call that is made at the moment may fail by what ends its
    /// connection.
    fn wait_for_rest(&self) {
        let (mut last, mut quiet) = (0, 0);
        wait_until("the server is asked nothing for a while", || {
            std::thread::sleep(ms(50));
            // The question itself may count.
            let before = std::mem::replace(&mut last, self.server.figure("zk_packets_received"));
            quiet = if last <= before + 1 { quiet + 1 } else { 0 };
            quiet == 3
        });
    }
}

impl Stage for OnZooKeeper {
    fn builder(&self) -> Builder {
        let url = format!("zookeeper://127.0.0.1:{}", self.pipe.port());
        LockClient::builder().url(url).lease(LEASE)
    }

    fn io_timeout(&self) -> Duration {
        self.io
    }

    /// It identifies itself, for servers that demand it.
    fn other(&self) -> LockClient {
        let url = format!("zookeeper://other:secret@{}", self.server.address());
        LockClient::builder().url(url).lease(LEASE).build().expect("it is reachable")
    }

    fn begin(&mut self, names: &[String]) {
        self.names = names.to_vec();
        if !self.spares_others {
            self.wait_for_rest();
        }
        let happens = self.happens.take().expect("it is put back");
        happens.0(self, names);
        self.happens = Some(happens);
    }

    fn end(&mut self) {
        let (names, happens) =
            (std::mem::take(&mut self.names), self.happens.take().expect("it has begun"));
        happens.1(self, &names);
    }

    fn spares_others(&self) -> bool {
        self.spares_others
    }

    fn offers(&self, call: &str) -> bool {
        is_supported(call) && (self.chooses)(call)
    }

    fn connections(&mut self) -> Option<(usize, usize)> {
        if !self.counts {
            return None;
        }
        let all = || {
            Some(
                self.server.try_ask("cons")?.lines().filter(|line| line.contains("sid=0x")).count(),
            )
        };
        // One is that of the other client.
        let mut looks = std::iter::from_fn(all).map(|all| all.saturating_sub(1)).take(20);
        let fits = |now: &usize| {
            // The server takes a moment to notice the end of one.
            std::thread::sleep(ms(if *now <= MOST { 0 } else { 20 }));
            *now <= MOST
        };
        let first = looks.next()?;
        Some((if fits(&first) { first } else { looks.find(fits).unwrap_or(first) }, MOST))
    }

    fn assert_clean(&mut self) {
        self.server.assert_clean();
    }
}

/// As the guide says.
fn is_supported(call: &str) -> bool {
    let refused = [
        "FencedValue",
        "ValueClaim",
        "CountingSemaphore",
        "CountingPermit",
        "Semaphore::extend",
        "RateLimiter",
    ];
    // A re-entry asks nothing.
    let ends = ["::last_holder", ", again"];
    !refused.iter().any(|kind| call.starts_with(kind))
        && !ends.iter().any(|end| call.ends_with(end))
}

/// A call that is already waiting does not wait for it to pass, because somebody must act; but it may
/// have nothing to ask until then.
fn denied(class: Class) -> Answers {
    if class.waits() { &[None, Some(Denied)] } else { if_it_asks(class, &[Some(Denied)]) }
}

/// What an error says where nothing answers.
const HANGS: &[&str] = &["did not answer within"];
const ENDS: &[&str] = &["ended the connection"];

/// In the order of the guide.
pub(super) fn rows() -> Vec<Row> {
    [network::rows(), server::rows(), ensemble::rows(), rights::rows()]
        .into_iter()
        .flatten()
        .collect()
}
