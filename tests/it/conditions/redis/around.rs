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

/// What a name server, a provider or a listener does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    Hangs,
    Fails,
    Panics,
    /// Answers something else.
    Errs,
}

#[derive(Clone)]
struct Moody(Arc<(Mutex<Mood>, Condvar)>);

impl Moody {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(Mood::Well), Condvar::new())))
    }

    fn becomes(&self, mood: Mood) {
        *self.0.0.lock() = mood;
        self.0.1.notify_all();
    }

    /// Hangs as long as the mood is that, and panics if it is that.
    fn meet(&self) -> Mood {
        let (mood, changed) = &*self.0;
        let mut mood = mood.lock();
        while *mood == Mood::Hangs {
            changed.wait(&mut mood);
        }
        assert!(*mood != Mood::Panics, "the code of the user panics");
        *mood
    }

    /// A name that only this process knows.
    fn name_server(&self, host: &str) {
        let answers = self.clone();
        look_up_by(host, move || match answers.meet() {
            Mood::Fails => Err(std::io::Error::other("the name server fails")),
            Mood::Errs => Ok(vec![IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9))]),
            _ => Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
        });
    }
}

impl CredentialsProvider for Moody {
    fn credentials(&self) -> Result<Credentials, Box<dyn StdError + Send + Sync>> {
        match self.meet() {
            Mood::Fails => Err("the vault is sealed".into()),
            Mood::Errs => Ok(Credentials::new("app", "wrong")),
            _ => Ok(Credentials::new("app", "password")),
        }
    }
}

/// A listener of the user, on each thread that calls it.
struct Rude(Mood);

impl Rude {
    fn act(&self) {
        match self.0 {
            Mood::Panics => panic!("the listener of the user panics"),
            _ => std::thread::sleep(ms(100)),
        }
    }
}

impl Listener for Rude {
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

/// The server has a name, and all connections end as soon as its name server has this mood.
fn named(host: &'static str, mood: Mood) -> OneRedis {
    let names = Moody::new();
    names.name_server(host);
    let well = names.clone();
    let stage = OneRedis::far_away(
        move |stage, _| {
            names.becomes(mood);
            stage.pipe().cut();
        },
        move |_, _| well.becomes(Mood::Well),
    );
    stage.called(host)
}

/// The user logs in with what a provider says, and all connections end as soon as it has this mood.
fn provided(mood: Mood) -> OneRedis {
    let provider = Moody::new();
    let (begins, ends, asked) = (provider.clone(), provider.clone(), provider);
    let stage = OneRedis::stage(
        &[],
        move |stage, _| {
            begins.becomes(mood);
            stage.proxy().cut_all();
        },
        move |_, _| ends.becomes(Mood::Well),
    );
    let mut stage = stage.for_a_user();
    stage.user = "";
    stage.with(move |redis| redis.credentials(asked.clone()))
}

fn listened_to(mood: Mood) -> OneRedis {
    let mut stage = OneRedis::stage(&[], |_, _| (), |_, _| ());
    stage.listener = Some(Arc::new(Rude(mood)));
    stage
}

/// A call that is already waiting does not wait for it to pass: somebody must act.
const DENIED: &[(Class, Answers)] = &all_that_ask_or_wait(&[Some(Denied)]);

rows! {
    name_server_hangs: row("The connections end while the name server hangs", || named("hangs.conditions.test", Mood::Hangs));

    name_server_fails: row("The connections end while the name server fails", || named("fails.conditions.test", Mood::Fails));

    name_moves: row("The connections end, and the name has an address where nobody listens", || {
        named("moves.conditions.test", Mood::Errs)
    }).answering(UNREACHABLE);

    provider_hangs: row("The connections end while the provider of credentials hangs", || provided(Mood::Hangs));

    provider_fails: row("The connections end while the provider of credentials fails", || provided(Mood::Fails))
        .answering(DENIED)
        .saying(&["no credentials"]);

    provider_panics: row("The connections end while the provider of credentials panics", || provided(Mood::Panics))
        .answering(DENIED)
        .saying(&["the credentials provider panicked"]);

    provider_errs: row("The connections end while the provider has a wrong password", || provided(Mood::Errs))
        .answering(DENIED)
        .saying(&["WRONGPASS"]);

    listener_panics: row("The user's listener panics, whenever it is called", || listened_to(Mood::Panics));

    listener_blocks: row("The user's listener blocks for 100 ms, whenever it is called", || listened_to(Mood::Hangs));
}
