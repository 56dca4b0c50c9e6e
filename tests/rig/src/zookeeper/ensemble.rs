//! Three ZooKeepers that elect a leader.

use std::fs;
use std::time::Duration;

use super::{Mode, Pipe, TICK, ZooKeeper, start_together};
use crate::{free_port, wait_for};

const SIZE: usize = 3;

/// An election takes two or three seconds, or many when the machine is busy.
const ELECTION: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
pub struct EnsembleOptions {
    pub tick: Duration,
    /// How long a follower that receives nothing from its leader waits before it looks for another
    /// one. If a busy machine stalls for longer, there is an election that no test asked for.
    pub patience: Duration,
    /// Further lines of the configuration of each server.
    pub settings: &'static str,
}

impl Default for EnsembleOptions {
    fn default() -> Self {
        Self { tick: TICK, patience: Duration::from_secs(5), settings: "" }
    }
}

/// Three servers. They reach each other through pipes of their own, so that any of them can be cut
/// off from the others, or follow with a delay.
pub struct Ensemble {
    servers: Vec<ZooKeeper>,
    /// Indexed by the server that connects and the one that it connects to; `None` from a server to
    /// itself.
    pipes: Vec<Vec<Option<Pipes>>>,
}

/// From one server to another.
struct Pipes {
    /// To the port on which it leads.
    lead: Pipe,
    /// To its port for elections.
    elect: Pipe,
}

impl Ensemble {
    pub fn start() -> Self {
        Self::start_with(EnsembleOptions::default())
    }

    pub fn start_with(options: EnsembleOptions) -> Self {
        let (servers, pipes) = start_together(|| prepare(options)).into_iter().unzip();
        Self { servers, pipes }
    }

    pub fn server(&self, index: usize) -> &ZooKeeper {
        &self.servers[index]
    }

    pub fn servers(&self) -> &[ZooKeeper] {
        &self.servers
    }

    /// The URL with the hosts in this order.
    pub fn url_of(&self, order: &[usize]) -> String {
        let hosts: Vec<String> = order.iter().map(|index| self.servers[*index].address()).collect();
        format!("zookeeper://{}", hosts.join(","))
    }

    pub fn url(&self) -> String {
        self.url_of(&[0, 1, 2])
    }

    /// Waits for one that leads at least one other.
    #[track_caller]
    pub fn leader(&self) -> usize {
        let mut found = None;
        wait_for(ELECTION, "a leader", || {
            let modes: Vec<_> = self.servers.iter().map(ZooKeeper::mode).collect();
            found = modes.iter().position(|mode| *mode == Some(Mode::Leader));
            found.is_some() && modes.contains(&Some(Mode::Follower))
        });
        found.unwrap()
    }

    /// The servers that are not the leader.
    #[track_caller]
    pub fn followers(&self) -> [usize; SIZE - 1] {
        let leader = self.leader();
        std::array::from_fn(|n| (leader + 1 + n) % SIZE)
    }

    /// Waits until all three serve clients, one of them as the leader: one that was deposed serves
    /// as a leader, too, until it notices.
    #[track_caller]
    pub fn wait_for_all(&self) {
        wait_for(ELECTION, "all servers serve", || {
            let modes: Vec<_> = self.servers.iter().map(ZooKeeper::mode).collect();
            let leaders = modes.iter().filter(|mode| **mode == Some(Mode::Leader)).count();
            modes.iter().all(Option::is_some) && leaders == 1
        });
    }

    pub fn kill_all(&self) {
        for server in &self.servers {
            server.kill();
        }
    }

    /// Starts those that were killed, and waits until all three serve clients.
    #[track_caller]
    pub fn start_all_again(&self) {
        for server in self.servers.iter().filter(|server| !server.runs()) {
            server.spawn();
        }
        self.wait_for_all();
    }

    /// Sets whether everything between this server and the others is swallowed. Leader and
    /// followers notice when their patience has run out, and serve their clients until then.
    /// Connections of clients stay up.
    pub fn cut_off(&self, index: usize, cut_off: bool) {
        for pipes in self.pipes_of(index) {
            pipes.lead.silence(cut_off);
            pipes.elect.silence(cut_off);
        }
    }

    /// The same for a leader, but the others notice at once and elect another one. The leader
    /// notices when its patience has run out, and serves its clients until then.
    pub fn depose(&self, leader: usize) {
        self.cut_off(leader, true);
        self.pipes
            .iter()
            .filter_map(|pipes| pipes[leader].as_ref())
            .for_each(|pipes| pipes.lead.leave_target_half_open());
    }

    /// The pipes from and to this server.
    fn pipes_of(&self, index: usize) -> impl Iterator<Item = &Pipes> {
        self.pipes.iter().enumerate().flat_map(move |(from, pipes)| {
            let meant = move |(to, _): &(usize, &Option<Pipes>)| from == index || *to == index;
            pipes.iter().enumerate().filter(meant).filter_map(|(_, pipes)| pipes.as_ref())
        })
    }

    /// Sets how much later this server, as a follower, receives what the leader has committed.
    pub fn lag(&self, index: usize, delay: Duration) {
        for pipes in self.pipes[index].iter().flatten() {
            pipes.lead.delay(delay);
        }
    }

    /// Checks, after all clients have ended, that no session, connection, watch or node is left.
    #[track_caller]
    pub fn assert_clean(&self) {
        self.assert_clean_but(&[]);
    }

    /// The same, but these nodes and their parents may stay.
    #[track_caller]
    pub fn assert_clean_but(&self, stay: &[&str]) {
        for server in &self.servers {
            server.assert_clean_but(stay);
        }
    }
}

type Prepared = (ZooKeeper, Vec<Option<Pipes>>);

fn prepare(options: EnsembleOptions) -> Vec<Prepared> {
    // The ports for clients, for followers and for elections.
    let ports: [[u16; 3]; SIZE] = std::array::from_fn(|_| std::array::from_fn(|_| free_port()));
    let pipe = |[_, lead, elect]: [u16; 3]| Pipes { lead: Pipe::to(lead), elect: Pipe::to(elect) };
    let pipes_from =
        |own: usize| (0..SIZE).map(|index| (index != own).then(|| pipe(ports[index]))).collect();
    let pipes: Vec<Vec<Option<Pipes>>> = (0..SIZE).map(pipes_from).collect();
    for (from, to) in (0..SIZE).flat_map(|from| (0..SIZE).map(move |to| (from, to))) {
        if let (Some(there), Some(back)) = (&pipes[from][to], &pipes[to][from]) {
            there.elect.answers_come_through(ports[from][2], &back.elect);
        }
    }
    (pipes.into_iter().enumerate())
        .map(|(own, pipes)| {
            let tick = options.tick.as_millis();
            let mut lines = format!(
                "tickTime={}\nsyncLimit={}\nmaxSessionTimeout=300000\n{}\n",
                tick,
                options.patience.as_millis() / tick,
                options.settings
            );
            for (index, [client, lead, elect]) in ports.iter().enumerate() {
                let ports =
                    pipes[index].as_ref().map(|pipes| [pipes.lead.port(), pipes.elect.port()]);
                let [lead, elect] = ports.unwrap_or([*lead, *elect]);
                lines +=
                    &format!("server.{}=127.0.0.1:{lead}:{elect};127.0.0.1:{client}\n", index + 1);
            }
            let server = ZooKeeper::prepare(ports[own][0], &lines);
            fs::write(server.dir().join("data/myid"), format!("{}\n", own + 1)).unwrap();
            (server, pipes)
        })
        .collect()
}
