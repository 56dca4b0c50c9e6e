//! Three servers with one fault after another: there are never two believers in a lock at the same
//! time, and tokens increase.

use std::path::PathBuf;
use std::time::Duration;

use crate::beliefs::{Belief, Believer, faults};
use crate::rig::zookeeper::Ensemble;
use crate::rig::{Proxy, ms, wait_for};

const LEASE: Duration = ms(2000);

/// The time limit after faults that end sessions, and for elections on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A process of ours, with its own proxies in front of all servers.
struct Player {
    believer: Believer,
    proxies: Vec<Proxy>,
}

struct Run<'a> {
    ensemble: &'a Ensemble,
    players: Vec<Player>,
    file: PathBuf,
}

impl<'a> Run<'a> {
    fn start(ensemble: &'a Ensemble, players: usize) -> Self {
        let file = ensemble.server(0).dir().join("beliefs");
        std::fs::write(&file, "").unwrap();
        let start = |_| {
            let proxies: Vec<_> = ensemble.servers().iter().map(Proxy::before_zookeeper).collect();
            let hosts: Vec<_> =
                proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect();
            let believer =
                Believer::start(&format!("zookeeper://{}", hosts.join(",")), LEASE, &file);
            Player { believer, proxies }
        };
        let players = (0..players).map(start).collect();
        Self { ensemble, players, file }
    }

    fn holds(&self) -> usize {
        Belief::read(&self.file).len()
    }

    /// Waits until the players continue after a fault.
    #[track_caller]
    fn goes_on(&self, after: &str) {
        let before = self.holds();
        wait_for(SOON, &format!("holds after: {after}"), || self.holds() > before + 20);
        println!(
            "{after}: {} holds before, no faults: {}",
            before,
            faults(Belief::read(&self.file)).is_empty()
        );
    }

    fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        self.players.iter().flat_map(|player| &player.proxies)
    }

    fn cut_connections(&self) {
        for _ in 0..3 {
            for proxy in self.proxies() {
                proxy.cut_all();
            }
            std::thread::sleep(ms(300));
        }
        self.goes_on("all connections cut, three times");
        for proxy in self.proxies() {
            proxy.cut_one_in(60);
        }
        std::thread::sleep(ms(3000));
        self.goes_on("one connection cut in sixty packets");
        for proxy in self.proxies() {
            proxy.cut_one_in(0);
        }
    }

    fn kill_the_leader(&self) {
        let leader = self.ensemble.leader();
        self.ensemble.server(leader).kill();
        self.goes_on("the leader killed");
        self.ensemble.start_all_again();
    }

    fn stop_the_leader(&self) {
        let leader = self.ensemble.leader();
        self.ensemble.server(leader).suspend();
        self.goes_on("the leader stopped");
        self.ensemble.server(leader).resume();
        self.ensemble.wait_for_all();
    }

    fn stop_the_quorum(&self) {
        let stopped = self.ensemble.followers();
        for index in &stopped {
            self.ensemble.server(*index).suspend();
        }
        std::thread::sleep(LEASE + ms(1000));
        for index in &stopped {
            self.ensemble.server(*index).resume();
        }
        self.goes_on("two of three servers stopped");
        self.ensemble.wait_for_all();
    }

    /// The server to which a holder is connected: others get the lock while the server still
    /// answers that holder.
    fn cut_a_server_off(&mut self, index: usize) {
        let follower = self.ensemble.followers()[0];
        let player = &mut self.players[index];
        let others = |server: &usize| *server != follower;
        for server in (0..player.proxies.len()).filter(others) {
            player.proxies[server].refuse(true);
            player.proxies[server].cut_all();
        }
        player.believer.keep();
        self.ensemble.cut_off(follower, true);
        self.goes_on("the server of the holder cut off from the leader");
        for proxy in &self.players[index].proxies {
            proxy.refuse(false);
        }
        std::thread::sleep(LEASE);
        self.ensemble.cut_off(follower, false);
        self.ensemble.wait_for_all();
        self.goes_on("the server came back");
    }

    fn stop_a_player(&self, index: usize) {
        self.players[index].believer.signal("STOP");
        std::thread::sleep(LEASE + ms(1500));
        self.players[index].believer.signal("CONT");
        self.goes_on("a client stopped");
    }

    fn cut_a_player_off(&self, index: usize) {
        let proxies = &self.players[index].proxies;
        for proxy in proxies {
            proxy.silence(true);
        }
        std::thread::sleep(LEASE + ms(1500));
        for proxy in proxies {
            proxy.silence(false);
        }
        self.goes_on("a client cut off");
    }
}

#[test]
fn no_two_believe_in_a_lock_at_a_time() {
    let ensemble = Ensemble::start();
    let mut run = Run::start(&ensemble, 4);
    run.goes_on("the start");
    let rounds =
        if std::env::var("LEASEHOLD_LONG").is_ok_and(|value| value == "1") { 4 } else { 1 };
    for round in 0..rounds {
        run.cut_connections();
        run.stop_a_player(round % 4);
        run.cut_a_player_off((round + 1) % 4);
        run.cut_a_server_off((round + 2) % 4);
        run.kill_the_leader();
        run.stop_the_quorum();
        run.stop_the_leader();
    }
    let Run { players, file, .. } = run;
    let proxies: Vec<_> = players
        .into_iter()
        .map(|player| {
            player.believer.stop();
            player.proxies
        })
        .collect();
    let beliefs = Belief::read(&file);
    println!("{} holds", beliefs.len());
    let found = faults(beliefs);
    assert!(found.is_empty(), "{found:#?}");
    drop(proxies);
    ensemble.assert_clean();
}
