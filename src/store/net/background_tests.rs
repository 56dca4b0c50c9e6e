use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::super::callers::Callers;
use super::super::pooled::{Outcome, PooledConnector};
use super::*;
use crate::base::error::{Error, ErrorKind};

/// Connections with numbers. What is done with one is in its own counters.
struct Fake {
    made: AtomicUsize,
    /// The number of the first connection that cannot be made.
    refused: usize,
    unusable: usize,
    io_timeout: Duration,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    goodbyes: AtomicUsize,
    idle: AtomicUsize,
    dropped: AtomicUsize,
}

struct Line {
    number: usize,
    seen: Arc<Seen>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.seen.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

fn refused() -> Error {
    Error::new(ErrorKind::NotReady, "full")
}

impl PooledConnector for Fake {
    type Connection = Line;
    type Sender = std::convert::Infallible;
    type Request = ();
    type Flight = ();
    type Answer = ();
    type Unknown = ();

    fn connect(&self) -> Result<Line> {
        let number = self.made.fetch_add(1, Ordering::SeqCst) + 1;
        if number >= self.refused {
            return Err(refused());
        }
        Ok(Line { number, seen: self.seen.clone() })
    }

    fn io_timeout(&self) -> Duration {
        self.io_timeout
    }

    fn address(&self) -> String {
        "nowhere".to_owned()
    }

    fn share_a_write((): &(), (): &()) -> bool {
        true
    }

    fn is_last((): &()) -> bool {
        false
    }

    fn unknown((): &()) {}
}

impl PooledConnection<Fake> for Line {
    fn is_usable(&mut self, connector: &Fake) -> bool {
        self.number != connector.unusable
    }

    fn mark_idle(&mut self) {
        self.seen.idle.fetch_add(1, Ordering::SeqCst);
    }

    fn say_goodbye(&mut self) {
        self.seen.goodbyes.fetch_add(1, Ordering::SeqCst);
    }

    fn prepare<'r>(
        &mut self,
        _: impl Iterator<Item = &'r ()>,
    ) -> std::result::Result<(), FailureOf<Fake>> {
        Ok(())
    }

    fn transmit(&mut self, (): &()) -> std::result::Result<(), FailureOf<Fake>> {
        Ok(())
    }

    fn receive(
        &mut self,
        (): &mut (),
        _: &mut [Option<Outcome<Fake>>],
        _: Option<&Callers>,
    ) -> std::result::Result<(), FailureOf<Fake>> {
        Ok(())
    }
}

fn background() -> Background<Fake> {
    refusing_from(usize::MAX)
}

fn refusing_from(refused: usize) -> Background<Fake> {
    Background::new(Fake {
        made: AtomicUsize::new(0),
        refused,
        unusable: usize::MAX,
        io_timeout: Duration::from_secs(60),
        seen: Arc::default(),
    })
}

impl Background<Fake> {
    /// The number of the connection with which an exchange has ended.
    fn ask(&self, next: Next) -> usize {
        let exchanged = self.exchange_by(|connection| Ok(connection.number), |_| next);
        exchanged.ok().unwrap()
    }

    fn seen(&self) -> [usize; 3] {
        let Seen { goodbyes, idle, dropped } = &*self.connector.seen;
        [goodbyes, idle, dropped].map(|count| count.load(Ordering::SeqCst))
    }
}

fn ended(ended: bool) -> Failure<()> {
    Failure::Unknown { error: Error::new(ErrorKind::Unreachable, "lost"), unknown: (), ended }
}

#[test]
fn one_connection_serves_all_exchanges() {
    let background = background();
    assert!(!background.is_connected());
    assert_eq!([Next::Keep, Next::Keep].map(|next| background.ask(next)), [1, 1]);
    assert!(background.is_connected());
    // It was idle each time.
    assert_eq!(background.seen(), [0, 2, 0]);
    assert!(format!("{background:?}").contains("nowhere"));
}

#[test]
fn a_connection_that_is_to_be_closed_is_not_kept() {
    let background = background();
    assert_eq!(background.ask(Next::Close), 1);
    assert!(!background.is_connected());
    assert_eq!((background.ask(Next::Keep), background.seen()[2]), (2, 1));
}

/// The answer of a server that is no longer the one to ask, say.
#[test]
fn a_connection_that_was_of_no_use_is_replaced_once() {
    let background = background();
    let ask = |useless: usize| {
        let next = |number: &usize| if *number < useless { Next::Replace } else { Next::Keep };
        background.exchange_by(|connection| Ok(connection.number), next).ok().unwrap()
    };
    assert_eq!(ask(2), 2);
    assert!(background.is_connected());
    assert_eq!(ask(9), 3, "and not again");
    assert!(!background.is_connected());
}

/// The connection may have ended while it was idle. The server is probably well.
#[test]
fn an_exchange_whose_connection_has_ended_is_repeated_once() {
    for (is_over, last) in [(true, 2), (false, 1)] {
        let background = background();
        let asked = AtomicUsize::new(0);
        let failed = background.exchange_by(
            |connection| {
                asked.store(connection.number, Ordering::SeqCst);
                Err::<(), _>(ended(is_over))
            },
            |()| Next::Keep,
        );
        assert!(matches!(failed, Err(Failure::Unknown { .. })));
        assert_eq!(asked.load(Ordering::SeqCst), last);
        assert!(!background.is_connected(), "its next answer could be to this request");
    }
    let background = background();
    let answer = background.exchange_by(
        |connection| if connection.number == 1 { Err(ended(true)) } else { Ok(()) },
        |()| Next::Keep,
    );
    assert!(answer.is_ok() && background.is_connected());
}

#[test]
fn a_connection_that_cannot_be_used_any_more_is_replaced_before_anything_is_sent() {
    let mut background = background();
    background.connector.unusable = 1;
    assert_eq!([(); 3].map(|()| background.ask(Next::Keep)), [1, 2, 2]);
}

#[test]
fn without_a_connection_nothing_was_sent() {
    let background = refusing_from(1);
    let failed = background.exchange_by(|connection| Ok(connection.number), |_| Next::Keep);
    let Err(Failure::NotSent(error)) = failed else { panic!() };
    assert_eq!(error.kind(), ErrorKind::NotReady);
    assert!(!background.is_connected());
    // The same for the repeat. The first one has ended, and so nothing of it can run.
    let background = refusing_from(2);
    let failed = background.exchange_by(|_| Err::<(), _>(ended(true)), |()| Next::Keep);
    assert!(matches!(failed, Err(Failure::NotSent(_))));
}

#[test]
fn a_closed_client_keeps_no_connection() {
    let background = background();
    background.ask(Next::Keep);
    background.close();
    assert!(!background.is_connected());
    assert_eq!((background.seen()[0], background.seen()[2]), (1, 1));
    // An exchange that is under way ends as usual.
    background.ask(Next::Keep);
    assert!(!background.is_connected());
    assert_eq!((background.seen()[0], background.seen()[2]), (2, 2));
}

#[test]
fn a_new_connection_takes_the_place_of_the_one_that_was_kept() {
    let background = background();
    background.ask(Next::Keep);
    let second = background.connect_anew().unwrap();
    assert_eq!((second.number, background.seen()[2]), (2, 1));
    assert!(!background.is_connected());
    background.put_back(second, Next::Keep);
    assert_eq!(background.ask(Next::Keep), 2);
    let third = background.connect_anew().unwrap();
    background.put_back(third, Next::Close);
    assert!(!background.is_connected());
}

/// A hold must not be lost while its client has a working connection.
#[test]
fn where_no_connection_can_be_made_one_of_the_locks_serves() {
    let mut background = background();
    let refuse = || Err(Failure::NotSent(refused()));
    assert_eq!(background.or_over_locks(refuse, || Some(7)).unwrap(), 7);
    let none = background.or_over_locks(refuse, || None::<u32>).unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotReady);
    let unasked = || panic!("it may have run already");
    let lost = background.or_over_locks::<u32>(|| Err(ended(false)), unasked).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Unreachable);
    assert_eq!(background.or_over_locks(|| Ok(8), || panic!("it has an answer")).unwrap(), 8);
    // The server hangs, and the other connection would hang, too.
    background.connector.io_timeout = Duration::ZERO;
    let hangs = background.or_over_locks::<u32>(refuse, || panic!("it waited for it already"));
    assert_eq!(hangs.unwrap_err().kind(), ErrorKind::NotReady);
}
