//! A candidate of an election, until it has led a term to its end.

use std::convert::Infallible;
use std::time::Duration;

use super::turn::Turn;
use crate::event::{Kind, Nanos, What, now};

/// How long a leader that has lost its lease waits until it is told. It takes a millisecond.
const TOLD_WITHIN: Duration = Duration::from_secs(3);

/// Each term is an attempt of its own: the election stands again after one that was lost.
pub(super) fn stand(mut turn: Turn<'_>) {
    let election = turn.place.client.election(turn.name()).with_data("at home");
    turn.asks(Kind::Leader, None, None);
    // When the work of the last term ended, if it still led then.
    let mut worked: Option<Nanos> = None;
    let led = election.run(|term| {
        if let Some(from) = worked.take() {
            // Lost between that and its release, or else the election would be over.
            turn.note(from, What::Told { reason: "Released".to_owned() });
            turn.note(from, What::Gave { answer: "Lost".to_owned(), until: now() });
            turn.begin_again();
            turn.asks(Kind::Leader, None, None);
        }
        turn.note(now(), What::Got { tokens: vec![term.number().get()] });
        let tell = || drop(term.set_data(format!("term {}", term.number().get())));
        if turn.keep(|| term.is_leader(), tell) {
            worked = Some(now());
        } else {
            if term.cancel_token().wait_timeout(TOLD_WITHIN) {
                turn.note(now(), What::Told { reason: "Cancelled".to_owned() });
            }
            turn.note(now(), What::Gave { answer: "Lost".to_owned(), until: now() });
            turn.begin_again();
            turn.asks(Kind::Leader, None, None);
        }
        Ok::<_, Infallible>(())
    });
    let gave = |from| turn.note(from, What::Gave { answer: "ok".to_owned(), until: now() });
    match (led, worked) {
        (Ok(()), Some(from)) => gave(from),
        (Ok(()), None) => panic!("an election ended after a term that was lost"),
        (Err(e), _) => turn.fails(&e),
    }
}
