//! Redisson: starts the Java program, and shows what waits on the servers.

use crate::java::{JavaThread, Jvm};
use crate::rig::{JavaProgram, Server, Version};

static REDISSON: JavaProgram = JavaProgram::new(
    "interop",
    &[Version { property: "redisson.version", variable: "LEASEHOLD_REDISSON", default: "4.7.0" }],
    "the tests `interop`",
);

impl Jvm {
    /// `settings` are arguments of the program, such as `watchdog=3000`.
    pub(crate) fn start(server: &Server, settings: &[&str]) -> Self {
        Self::start_on(std::slice::from_ref(server), settings)
    }

    /// With a client for each of the servers.
    pub(crate) fn start_on(servers: &[Server], settings: &[&str]) -> Self {
        Self::connect(&servers.iter().map(Server::url).collect::<Vec<_>>(), settings)
    }

    /// The setting `sentinel=mymaster` means that the servers are sentinels, `cluster=AUTO` that
    /// they are nodes of a cluster (see `Servers.java`).
    pub(crate) fn connect(urls: &[String], settings: &[&str]) -> Self {
        let addresses: Vec<&str> = urls.iter().map(|url| url.trim_end_matches('/')).collect();
        let quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off".to_owned()];
        Self::spawn(REDISSON.command("Main", &quiet).arg(addresses.join(",")).args(settings))
    }
}

impl JavaThread<'_> {
    /// Sends a command that must wait, and returns when the server shows that it does.
    #[track_caller]
    pub(crate) fn begin_waiting(&self, server: &Server, command: &str, name: &str, shown: Waits) {
        self.begin_waiting_until(command, || shown(server, name));
    }
}

/// Whether there is a waiter for the name.
pub(crate) type Waits = fn(&Server, &str) -> bool;

/// The number of subscribers of a channel.
pub(crate) fn listeners(server: &Server, channel: &str) -> u32 {
    let (_, count): (String, u32) = server.cmd(&["PUBSUB", "NUMSUB", channel]);
    count
}
