//! A master with two replicas, monitored by three sentinels with a quorum of two.

use std::collections::HashMap;

use super::{Certificates, Listen, PROMPT_SYNC, Server, start_together, wait_until};

pub const MASTER_NAME: &str = "mymaster";
/// Sentinels with this line replace a master that does not answer for half a second. Otherwise they
/// wait for three, because a busy machine may take that long.
pub const FAIL_OVER_SOON: &str = "sentinel down-after-milliseconds mymaster 500";
/// What a sentinel knows about a server or another sentinel.
type Facts = HashMap<String, String>;

#[derive(Clone, Copy, Default)]
pub struct SentinelOptions<'a> {
    /// Arguments of the master and the replicas: `&["--requirepass", "p", "--masterauth", "p"]`.
    pub server_args: &'a [&'a str],
    /// Lines at the end of each sentinel's configuration, such as `sentinel auth-pass mymaster p`,
    /// or `requirepass q` for the sentinels themselves. They override the rig's, such as
    /// [`FAIL_OVER_SOON`].
    pub sentinel_lines: &'a [&'a str],
    /// Servers and sentinels use only TLS.
    pub tls: Option<&'a Certificates>,
    /// Puts a proxy before each of the servers, at the address that the sentinels know and report.
    /// Not with TLS.
    pub proxies: bool,
}

/// A sentinel that changes the role of a server closes all connections to it, also those of
/// [`Server::cmd`]. Each server has a configuration file, so that it knows its role after a
/// restart.
pub struct Sentinels {
    servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Sentinels {
    pub fn start() -> Self {
        Self::start_with(SentinelOptions::default())
    }

    pub fn start_with(options: SentinelOptions<'_>) -> Self {
        let servers = start_together(|| (0..3).map(|_| data_server(&options)).collect());
        let master = servers[0].announced_port().to_string();
        for replica in &servers[1..] {
            replica.cmd::<()>(&["REPLICAOF", "127.0.0.1", &master]);
            replica.cmd::<()>(&["CONFIG", "REWRITE"]);
        }
        let follow = || servers[1..].iter().all(Server::follows_a_master) && servers[0].feeds(2);
        wait_until("the replicas follow the master", follow);
        let sentinels = start_together(|| sentinels_of(&servers, &options));
        let rig = Self { servers, sentinels };
        wait_until("each sentinel knows all servers", || rig.sentinels.iter().all(knows_all));
        rig
    }

    /// The URLs of the sentinels.
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Server::url).collect()
    }

    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    pub fn server_mut(&mut self, index: usize) -> &mut Server {
        &mut self.servers[index]
    }

    pub fn sentinel(&self, index: usize) -> &Server {
        &self.sentinels[index]
    }

    /// The server that most of the three sentinels name as the master.
    #[track_caller]
    pub fn master(&self) -> usize {
        let mut master = None;
        wait_until("most sentinels name one master", || {
            let named = self.named();
            master = (0..self.servers.len())
                .find(|index| named.iter().filter(|name| *name == index).count() > 1);
            master.is_some()
        });
        master.unwrap()
    }

    pub fn master_server(&self) -> &Server {
        self.server(self.master())
    }

    /// The server that each running sentinel names as the master.
    fn named(&self) -> Vec<usize> {
        let name = |sentinel: &Server| {
            let (_, port): (String, u16) =
                sentinel.cmd(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME]);
            self.servers
                .iter()
                .position(|server| server.announced_port() == port)
                .expect("a server of this rig")
        };
        self.running_sentinels().map(name).collect()
    }

    fn running_sentinels(&self) -> impl Iterator<Item = &Server> {
        self.sentinels.iter().filter(|sentinel| sentinel.runs())
    }

    /// Promotes a replica and returns its index. The old master accepts writes for about 10 s more,
    /// until the sentinels make it a replica.
    #[track_caller]
    pub fn failover(&self) -> usize {
        let old = self.master_server().announced_port();
        // It is refused until the sentinel has recent information from a replica.
        wait_until("a failover begins", || {
            let sentinel = self.running_sentinels().next().expect("a sentinel is running");
            let words = ["FAILOVER", MASTER_NAME];
            redis::cmd("SENTINEL").arg(&words).exec(&mut sentinel.connect()).is_ok()
        });
        self.wait_for_other_master(old)
    }

    /// Waits until all running sentinels name a master that announces another port than this, and
    /// it reports that role itself. Returns its index.
    #[track_caller]
    pub fn wait_for_other_master(&self, than: u16) -> usize {
        let mut master = 0;
        wait_until("another server is the master", || {
            let named = self.named();
            master = named[0];
            let server = self.server(master);
            named.iter().all(|name| *name == master)
                && server.announced_port() != than
                && server.runs()
                && server.info("replication", "role") == "master"
        });
        master
    }

    /// A sentinel that was suspended for more than two seconds makes no decisions for half a minute
    /// after it resumes (TILT); it answers, and learns from the others.
    pub fn suspend_sentinel(&self, index: usize) {
        self.sentinels[index].suspend();
    }

    pub fn resume_sentinel(&self, index: usize) {
        self.sentinels[index].resume();
    }

    pub fn kill_sentinel(&mut self, index: usize) {
        self.sentinels[index].kill();
    }

    /// One that was killed.
    pub fn start_sentinel_again(&mut self, index: usize) {
        self.sentinels[index].start_again();
    }

    /// [`Server::assert_clean`] for the master.
    #[track_caller]
    pub fn assert_clean(&self) {
        self.master_server().assert_clean();
    }
}

fn data_server(options: &SentinelOptions<'_>) -> Server {
    let tls = options.tls.map_or(&[][..], |_| &["--tls-replication", "yes"]);
    let args = [&PROMPT_SYNC[..], tls, options.server_args].concat();
    let mut server = Server::prepare(Listen::with(options.tls), &args).configured_by_file(&[]);
    if options.proxies {
        let announce = |port| {
            vec![
                "replica-announce-ip 127.0.0.1".to_owned(),
                format!("replica-announce-port {port}"),
            ]
        };
        server.hide_behind_a_proxy(announce);
    }
    server
}

/// A sentinel that always names the server on this port, whatever happens to it, and the URL for
/// it. The master's name is unique: sentinels that monitor one server under one name discover each
/// other, and so would their clients.
pub fn sentinel_of(port: u16) -> (Server, String) {
    let name = format!("master-{port}");
    let prepare = || {
        let mut sentinel = Server::prepare(Listen::Tcp, &[]).configured_by_file(&["--sentinel"]);
        sentinel.configure(&[
            format!("sentinel monitor {name} 127.0.0.1 {port} 1"),
            format!("sentinel down-after-milliseconds {name} 3600000"),
        ]);
        vec![sentinel]
    };
    let sentinel = start_together(prepare).remove(0);
    let url = format!("redis+sentinel://127.0.0.1:{}/{name}", sentinel.port());
    (sentinel, url)
}

/// Sentinels that know everything from the start: discovery would take two seconds.
fn sentinels_of(servers: &[Server], options: &SentinelOptions<'_>) -> Vec<Server> {
    let tls = options.tls.map_or(&[][..], |_| &["--tls-replication", "yes"]);
    let prepare =
        || Server::prepare(Listen::with(options.tls), tls).configured_by_file(&["--sentinel"]);
    let mut sentinels: Vec<Server> = std::iter::repeat_with(prepare).take(3).collect();
    // Unique on this machine, so that a sentinel of another rig is never mistaken for one of these.
    let ids: Vec<(u16, String)> = sentinels
        .iter()
        .map(|s| (s.port(), format!("{:032x}{:08x}", std::process::id(), s.port())))
        .collect();
    let (master, replicas) = servers.split_first().unwrap();
    for (sentinel, (port, id)) in sentinels.iter_mut().zip(&ids) {
        let mut lines = vec![
            format!("sentinel myid {id}"),
            format!("sentinel monitor {MASTER_NAME} 127.0.0.1 {} 2", master.announced_port()),
            format!("sentinel down-after-milliseconds {MASTER_NAME} 3000"),
            format!("sentinel failover-timeout {MASTER_NAME} 3000"),
            format!("sentinel parallel-syncs {MASTER_NAME} 2"),
        ];
        let known = |server: &Server| {
            format!("sentinel known-replica {MASTER_NAME} 127.0.0.1 {}", server.announced_port())
        };
        lines.extend(replicas.iter().map(known));
        let others = ids.iter().filter(|(other, _)| other != port);
        lines.extend(others.map(|(port, id)| {
            format!("sentinel known-sentinel {MASTER_NAME} 127.0.0.1 {port} {id}")
        }));
        lines.extend(options.sentinel_lines.iter().map(|line| (*line).to_owned()));
        sentinel.configure(&lines);
    }
    sentinels
}

/// Whether a sentinel knows all others and considers them healthy.
fn knows_all(sentinel: &Server) -> bool {
    let of_master: Facts = sentinel.cmd(&["SENTINEL", "MASTER", MASTER_NAME]);
    let replicas: Vec<Facts> = sentinel.cmd(&["SENTINEL", "REPLICAS", MASTER_NAME]);
    let others: Vec<Facts> = sentinel.cmd(&["SENTINEL", "SENTINELS", MASTER_NAME]);
    let follows = |facts: &Facts| facts["flags"] == "slave" && facts["master-link-status"] == "ok";
    of_master["flags"] == "master"
        && replicas.len() == 2
        && replicas.iter().all(follows)
        && others.len() == 2
        && others.iter().all(|facts| facts["flags"] == "sentinel")
}
