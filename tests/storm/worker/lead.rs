//! A candidate of an election, until it has led a term to its end; and others, who ask for the
//! leadership, or look who leads.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::Duration;

use leasehold::{CancelToken, Election, ErrorKind, Leader, Term};
use rand::RngExt;
use rand::rngs::StdRng;

use super::turn::Turn;
use crate::event::{Kind, Nanos, Verb, What, now};
use crate::rig::ms;

/// How long a leader that has lost its lease waits until it is told. It takes a millisecond.
const TOLD_WITHIN: Duration = Duration::from_secs(3);

pub(super) fn call(turn: Turn<'_>, rng: &mut StdRng) {
    match rng.random_range(0..100) {
        0..8 => request(&turn),
        8..14 => look(&turn),
        14..18 => watch(&turn, rng),
        _ => stand(turn, rng),
    }
}

fn asks(turn: &Turn<'_>, verb: Verb) -> Election {
    turn.asks(Kind::Leader, None, None);
    turn.note(now(), What::Calls(verb));
    turn.place.client.election(turn.name())
}

fn request(turn: &Turn<'_>) {
    match asks(turn, Verb::Requests).request() {
        Err(e) => turn.fails(&e),
        Ok(is_asked) => turn.answers(&is_asked.to_string()),
    }
}

fn in_words(leader: Option<&Leader>) -> String {
    match leader.map(Leader::term) {
        Some(Some(term)) => format!("term {}", term.get()),
        Some(None) => "somebody".to_owned(),
        None => "nobody".to_owned(),
    }
}

fn look(turn: &Turn<'_>) {
    match asks(turn, Verb::Looks).leader() {
        Err(e) => turn.fails(&e),
        Ok(leader) => turn.answers(&in_words(leader.as_ref())),
    }
}

/// Watches for a while.
fn watch(turn: &Turn<'_>, rng: &mut StdRng) {
    let token = CancelToken::new();
    let election = asks(turn, Verb::Watches).with_cancel(&token);
    let span = ms(rng.random_range(200..2500));
    std::thread::scope(|s| {
        s.spawn(|| {
            turn.place.sleep(span);
            token.cancel();
        });
        for seen in election.watch() {
            match seen {
                Ok(leader) => {
                    turn.note(now(), What::Says { words: in_words(leader.as_ref()) });
                }
                Err(e) if e.kind() == ErrorKind::Cancelled => turn.note(now(), What::Vain),
                // It would go on after this one.
                Err(e) => return turn.fails(&e),
            }
        }
    });
}

/// How a term goes on.
struct Plan {
    section: Duration,
    /// It resigns after its first look.
    resigns: bool,
    /// It resigns when it learns that somebody asks for the leadership.
    gives_way: bool,
}

impl Plan {
    /// Some terms are so long that a request reaches them.
    fn random(turn: &Turn<'_>, rng: &mut StdRng) -> Self {
        let is_long = rng.random_bool(0.03);
        let section = turn.place.lease.mul_f64(rng.random_range(1.1..1.6));
        Self {
            section: if is_long { section } else { turn.section },
            resigns: !is_long && !turn.place.is_over() && rng.random_bool(0.2),
            gives_way: rng.random_bool(0.8),
        }
    }
}

/// Each term is an attempt of its own: the election stands again after one that was lost, or that
/// has resigned.
fn stand(mut turn: Turn<'_>, rng: &mut StdRng) {
    let election = asks(&turn, Verb::Takes).with_data("at home");
    // When the work of the last term ended, if it still led then.
    let mut worked: Option<Nanos> = None;
    let led = election.run(|term| {
        if let Some(from) = worked.take() {
            // Lost between that and its release, or else the election would be over.
            turn.note(from, What::Told { reason: "Released".to_owned() });
            turn.note(from, What::Gave { answer: "Lost".to_owned(), until: now() });
            turn.begin_again();
            asks(&turn, Verb::Takes);
        }
        turn.note(now(), What::Got { tokens: vec![term.number().get()] });
        let plan = Plan::random(&turn, rng);
        turn.section = plan.section;
        let answer = match lead(&turn, term, &plan) {
            Ended::Leading => {
                worked = Some(now());
                return Ok::<_, Infallible>(());
            }
            // Only the lock's next holder can see when its release has arrived.
            Ended::Resigned => "ok",
            Ended::Lost => "Lost",
        };
        if answer == "Lost" && term.cancel_token().wait_timeout(TOLD_WITHIN) {
            turn.note(now(), What::Told { reason: "Cancelled".to_owned() });
        }
        turn.note(now(), What::Gave { answer: answer.to_owned(), until: now() });
        turn.begin_again();
        asks(&turn, if answer == "ok" { Verb::StandsBack } else { Verb::Takes });
        Ok(())
    });
    let gave = |from| turn.note(from, What::Gave { answer: "ok".to_owned(), until: now() });
    match (led, worked) {
        (Ok(()), Some(from)) => gave(from),
        (Ok(()), None) => panic!("an election ended after a term that was lost or had resigned"),
        (Err(e), _) => turn.fails(&e),
    }
}

/// What ended the work of a leader.
enum Ended {
    /// Its plan: it still leads.
    Leading,
    Resigned,
    Lost,
}

/// Leads for as long as its plan says.
fn lead(turn: &Turn<'_>, term: &Term, plan: &Plan) -> Ended {
    let (is_wanted, has_resigned) = (Cell::new(false), Cell::new(false));
    let resign = || {
        term.resign();
        turn.note(now(), What::Resigned);
        has_resigned.set(true);
    };
    let leads = || {
        if term.is_leader() && term.is_requested() && !is_wanted.replace(true) {
            turn.note(now(), What::Wanted);
            if plan.gives_way {
                resign();
            }
        }
        term.is_leader()
    };
    let tell = || {
        drop(term.set_data(format!("term {}", term.number().get())));
        if plan.resigns && term.is_leader() {
            resign();
        }
    };
    match turn.keep(leads, tell) {
        true => Ended::Leading,
        false if has_resigned.get() => Ended::Resigned,
        false => Ended::Lost,
    }
}
