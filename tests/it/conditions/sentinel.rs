//! Conditions of a master with replicas and sentinels.

use std::time::Duration;

use leasehold::{Builder, LockClient, Sentinel};

use super::redis::{
    CONNECTIONS, ENDED, HANGS, MOST, NAME, count_named, delete_kept, wait_for_rest,
};
use super::row::{Stage, row, unreachable};
use super::rows;
use super::runner::IO;
use crate::rig::{MASTER_NAME, SentinelOptions, Sentinels, Server, ms, wait_until};

/// What an error says where the server was killed, perhaps during a handshake.
pub(super) const DIES: &[&str] =
    &["no server listens at", "ended the connection during the handshake", ENDED];

type Change = fn(&mut Watched);

/// A master that sentinels watch, and what happens to them.
struct Watched {
    rig: Sentinels,
    /// The index of the master.
    master: usize,
    /// Long where no call has to wait for it: a busy machine serves all calls at once slowly.
    io: Duration,
    spares_others: bool,
    happens: [Change; 2],
}

impl Watched {
    fn stage(happens: [Change; 2]) -> Self {
        // The sentinels act only when they are told to: a failover that begins by itself would come
        // before some of the calls, and after the others.
        let sentinel_lines: &[&str] = &["sentinel down-after-milliseconds mymaster 60000"];
        let rig =
            Sentinels::start_with(SentinelOptions { sentinel_lines, ..SentinelOptions::default() });
        Self { rig, master: 0, io: ms(4000), spares_others: false, happens }
    }

    /// Where calls wait for the I/O timeout.
    fn impatient(self) -> Self {
        Self { io: IO, ..self }
    }

    /// The condition concerns sentinels only.
    fn of_sentinels(happens: [Change; 2]) -> Self {
        Self { spares_others: true, ..Self::stage(happens) }
    }

    fn client_builder(&self) -> Builder {
        LockClient::builder().sentinel(Sentinel::new(self.rig.urls(), MASTER_NAME))
    }

    fn server(&self) -> &Server {
        self.rig.server(self.master)
    }

    /// Waits until both replicas have everything that the master has.
    fn wait_for_replicas(&self) {
        let mut admin = self.server().connect();
        redis::cmd("DEL").arg("nothing").exec(&mut admin).expect("it answers");
        redis::cmd("SET").arg(&["marker", "1", "PX", "1"]).exec(&mut admin).expect("it answers");
        let have: u32 =
            redis::cmd("WAIT").arg(&["2", "9000"]).query(&mut admin).expect("it answers");
        assert_eq!(have, 2, "both replicas have it");
    }

    /// Ends the connections of clients, so that new ones are made.
    fn cut(&self) {
        self.server().cmd::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }

    /// The same where no new ones can be begun: one that was being made just then has its address
    /// already, and would serve all calls.
    fn cut_for_good(&self) {
        let mut quiet = 0;
        wait_until("no connection is left or being made", || {
            self.cut();
            std::thread::sleep(ms(50));
            let left: String = self.server().cmd(&["CLIENT", "LIST", "TYPE", "normal"]);
            // The question has a connection, too.
            quiet = if left.lines().count() == 1 { quiet + 1 } else { 0 };
            quiet == 5
        });
    }

    fn fail_over(&mut self) {
        self.master = self.rig.failover();
    }

    /// Waits until the client has left the old master for the new one.
    fn wait_until_it_follows(&self, old: usize) {
        let count = |index: usize| self.rig.server(index).try_list().map(|list| count_named(&list));
        wait_until("the client follows", || {
            count(old) == Some(0) && count(self.master).is_some_and(|count| count > 0)
        });
    }

    fn kill_sentinels(&mut self, count: usize) {
        for index in 0..count {
            self.rig.kill_sentinel(index);
        }
    }

    fn start_sentinels(&mut self, count: usize) {
        for index in 0..count {
            self.rig.start_sentinel_again(index);
        }
    }
}

impl Stage for Watched {
    fn builder(&self) -> Builder {
        self.client_builder().connections(CONNECTIONS).client_name(NAME)
    }

    fn io_timeout(&self) -> Duration {
        self.io
    }

    fn other(&self) -> LockClient {
        self.client_builder().build().expect("it is reachable")
    }

    fn begin(&mut self, _: &[String]) {
        self.wait_for_replicas();
        if !self.spares_others {
            wait_for_rest(self.server());
        }
        self.happens[0](self);
    }

    fn end(&mut self) {
        self.happens[1](self);
    }

    fn spares_others(&self) -> bool {
        self.spares_others
    }

    fn connections(&mut self) -> Option<(usize, usize)> {
        let list = self.server().runs().then(|| self.server().try_list()).flatten()?;
        Some((count_named(&list), MOST))
    }

    fn assert_clean(&mut self) {
        delete_kept(self.server(), None);
        self.rig.assert_clean();
    }
}

rows! {
    master_suspended: row("The master hangs, and the sentinels have not found out", || {
        Watched::stage([|stage| stage.server().suspend(), |stage| stage.server().resume()]).impatient()
    }).failing(unreachable, HANGS);

    master_killed: row("The master is killed, and then a replica is promoted", || {
        Watched::stage([|stage| stage.rig.server_mut(0).kill(), Watched::fail_over])
    }).failing(unreachable, DIES);

    master_replaced: row("Another server was made the master (`SENTINEL FAILOVER`)", || {
        Watched::stage([|stage| {
            stage.fail_over();
            stage.wait_until_it_follows(0);
        }, |_| ()])
    });

    one_sentinel_down: row("The connections end while one of three sentinels is down", || {
        Watched::of_sentinels([|stage| {
            stage.kill_sentinels(1);
            stage.cut();
        }, |stage| stage.start_sentinels(1)])
    });

    one_sentinel_left: row("The connections end while two of three sentinels are down", || {
        Watched::of_sentinels([|stage| {
            stage.kill_sentinels(2);
            stage.cut();
        }, |stage| stage.start_sentinels(2)])
    });

    no_sentinel_left: row("All sentinels are down, and the connections are open", || {
        Watched::of_sentinels([|stage| stage.kill_sentinels(3), |stage| stage.start_sentinels(3)])
    });

    connections_end_without_sentinels: row("The connections end while all sentinels are down", || {
        Watched::stage([|stage| {
            stage.kill_sentinels(3);
            stage.cut_for_good();
        }, |stage| stage.start_sentinels(3)])
    }).failing(unreachable, &["sentinel"]);
}
