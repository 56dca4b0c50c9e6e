//! Three servers that elect a leader.

use super::*;
use crate::conditions::rows;
use crate::rig::zookeeper::Ensemble;

type Change = fn(&mut Elected);

/// The client is connected to the first follower.
struct Elected {
    ensemble: Ensemble,
    leader: usize,
    followers: [usize; 2],
    /// How it begins.
    begins: Change,
    io: Duration,
}

impl Elected {
    fn stage(begins: Change) -> Self {
        let ensemble = Ensemble::start();
        let (leader, followers) = (ensemble.leader(), ensemble.followers());
        Self { ensemble, leader, followers, begins, io: ms(4000) }
    }

    fn impatient(self) -> Self {
        Self { io: IO, ..self }
    }

    fn client_of(&self, order: [usize; 3]) -> Builder {
        LockClient::builder().url(self.ensemble.url_of(&order)).lease(LEASE)
    }
}

impl Stage for Elected {
    fn builder(&self) -> Builder {
        let [first, second] = self.followers;
        self.client_of([first, second, self.leader])
    }

    fn io_timeout(&self) -> Duration {
        self.io
    }

    fn other(&self) -> LockClient {
        let [first, second] = self.followers;
        self.client_of([second, self.leader, first]).build().expect("it is reachable")
    }

    fn begin(&mut self, _: &[String]) {
        (self.begins)(self);
    }

    fn end(&mut self) {
        self.ensemble.start_all_again();
    }

    fn offers(&self, call: &str) -> bool {
        is_supported(call)
    }

    fn assert_clean(&mut self) {
        self.ensemble.assert_clean();
    }
}

/// What was sent to a server that has just ended is repeated over the next one, if it may be.
fn over_the_next_server(class: Class) -> Answers {
    if class == Class::Force { &[None, Some(Unreachable)] } else { DONE }
}

rows! {
    follower_killed: row("The server of the client's connection is killed, and two others serve", || {
        Elected::stage(|stage| stage.ensemble.server(stage.followers[0]).kill())
    }).failing(over_the_next_server, ENDS);

    leader_killed: row("The leader was killed, and another was elected", || {
        Elected::stage(|stage| {
            stage.ensemble.server(stage.leader).kill();
            stage.leader = stage.ensemble.leader();
        })
    }).failing(over_the_next_server, ENDS);

    quorum_lost: row("Two of three servers are killed", || {
        Elected::stage(|stage| {
            stage.ensemble.server(stage.leader).kill();
            stage.ensemble.server(stage.followers[1]).kill();
        }).impatient()
    }).failing(unreachable, ENDS);
}
