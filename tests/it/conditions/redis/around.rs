//! What the client needs beside the server: name servers, providers of credentials, code of the
//! user.

use std::error::Error as StdError;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use leasehold::observe::LockInfo;
use leasehold::testing::look_up_by;
use leasehold::{Credentials, CredentialsProvider, Error, Loss};
use parking_lot::{Condvar, Mutex};

use super::*;
use crate::conditions::rows;
use crate::rig::wait_until;

/// What a name server, a provider or a listener does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::conditions) enum Behaviour {
    Well,
    Hangs,
    Fails,
    Panics,
    /// Gives a wrong answer.
    Misleads,
}

/// A service or code that is not the library's, and what it does now.
#[derive(Clone)]
pub(in crate::conditions) struct Foreign(Arc<(Mutex<Behaviour>, Condvar)>);

impl Foreign {
    pub(in crate::conditions) fn new() -> Self {
        Self(Arc::new((Mutex::new(Behaviour::Well), Condvar::new())))
    }

    pub(in crate::conditions) fn becomes(&self, behaviour: Behaviour) {
        *self.0.0.lock() = behaviour;
        self.0.1.notify_all();
    }

    /// Blocks or panics if that is its behaviour now, and otherwise returns it.
    fn meet(&self) -> Behaviour {
        let (behaviour, changed) = &*self.0;
        let mut behaviour = behaviour.lock();
        while *behaviour == Behaviour::Hangs {
            changed.wait(&mut behaviour);
        }
        assert!(*behaviour != Behaviour::Panics, "the code of the user panics");
        *behaviour
    }

    /// A name that only this process knows.
    pub(in crate::conditions) fn name_server(&self, host: &str) {
        let answers = self.clone();
        look_up_by(host, move || match answers.meet() {
            Behaviour::Fails => Err(std::io::Error::other("the name server fails")),
            Behaviour::Misleads => Ok(vec![IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9))]),
            _ => Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
        });
    }
}

impl CredentialsProvider for Foreign {
    fn credentials(&self) -> Result<Credentials, Box<dyn StdError + Send + Sync>> {
        match self.meet() {
            Behaviour::Fails => Err("the vault is sealed".into()),
            Behaviour::Misleads => Ok(Credentials::new("app", "wrong")),
            _ => Ok(Credentials::new("app", "password")),
        }
    }
}

/// A listener of the user, on each thread that calls it.
struct BadListener(Behaviour);

impl BadListener {
    fn act(&self) {
        match self.0 {
            Behaviour::Panics => panic!("the listener of the user panics"),
            _ => std::thread::sleep(ms(100)),
        }
    }
}

impl Listener for BadListener {
    fn waiting(&self, _: &LockInfo<'_>) {
        self.act();
    }

    fn acquired(&self, _: &LockInfo<'_>, _: Option<Duration>) {
        self.act();
    }

    fn gave_up(&self, _: &LockInfo<'_>, _: Option<Duration>, _: Option<&Error>) {
        self.act();
    }

    fn released(&self, _: &LockInfo<'_>, _: Duration) {
        self.act();
    }

    fn lost(&self, _: &LockInfo<'_>, _: &Loss) {
        self.act();
    }

    fn renewal_failed(&self, _: &LockInfo<'_>, _: &Error, _: Duration) {
        self.act();
    }
}

/// The server has a name, and all connections end as soon as its name server behaves so.
fn named(host: &'static str, behaviour: Behaviour) -> OneRedis {
    let names = Foreign::new();
    names.name_server(host);
    let well = names.clone();
    let stage = OneRedis::far_away(
        move |stage, _| {
            names.becomes(behaviour);
            stage.pipe().cut();
        },
        move |_, _| well.becomes(Behaviour::Well),
    );
    stage.called(host)
}

/// The user logs in with what a provider says, and all connections end as soon as that behaves so.
fn provided(behaviour: Behaviour) -> OneRedis {
    let provider = Foreign::new();
    let (begins, ends, asked) = (provider.clone(), provider.clone(), provider);
    let stage = OneRedis::stage(
        &[],
        move |stage, _| {
            begins.becomes(behaviour);
            // A connection whose credentials came before would spare all calls the condition.
            let mut without = 0;
            wait_until("no connection is left", || {
                stage.proxy().cut_all();
                let list: String = stage.cmd(&["CLIENT", "LIST"]).expect("the server answers");
                without = if count_named(&list) == 0 { without + 1 } else { 0 };
                without == 5
            });
        },
        move |_, _| ends.becomes(Behaviour::Well),
    );
    stage.knowing_a_user().with(move |redis| redis.credentials(asked.clone()))
}

fn listened_to(behaviour: Behaviour) -> OneRedis {
    let mut stage = OneRedis::stage(&[], |_, _| (), |_, _| ());
    stage.listener = Some(Arc::new(BadListener(behaviour)));
    stage
}

rows! {
    name_server_hangs: row("The connections end while the name server hangs", || named("hangs.conditions.test", Behaviour::Hangs));

    name_server_fails: row("The connections end while the name server fails", || named("fails.conditions.test", Behaviour::Fails));

    name_moves: row("The connections end, and the name has an address where nobody listens", || {
        named("moves.conditions.test", Behaviour::Misleads)
    }).failing(unreachable, &["no server listens at"]);

    provider_hangs: row("The connections end while the provider of credentials hangs", || provided(Behaviour::Hangs));

    provider_fails: row("The connections end while the provider of credentials fails", || provided(Behaviour::Fails)).failing(denied, &["no credentials"]);

    provider_panics: row("The connections end while the provider of credentials panics", || provided(Behaviour::Panics)).failing(denied, &["the credentials provider panicked"]);

    provider_misleads: row("The connections end while the provider has a wrong password", || provided(Behaviour::Misleads)).failing(denied, &["WRONGPASS"]);

    listener_panics: row("The user's listener panics, whenever it is called", || listened_to(Behaviour::Panics));

    listener_blocks: row("The user's listener blocks for 100 ms, whenever it is called", || listened_to(Behaviour::Hangs));
}
