use std::time::Duration;

use super::*;
use crate::store::zookeeper::wire::{Acl, Mode};

fn make(directory: &str, bytes: usize) -> Request {
    let path = format!("{directory}/n-");
    let data = vec![0; bytes];
    Request::create(&path, &data, Acl::Open, Mode::EphemeralSequential).drawing_in(directory)
}

fn queue(changes: impl IntoIterator<Item = Request>) -> Changes {
    let change = |change| {
        let requests = vec![Request::multi([&change])];
        Change { requests, slot: Arc::new(Slot::new(1)), is_alone: false }
    };
    Changes { queue: changes.into_iter().map(change).collect(), ..Changes::default() }
}

/// How many are taken each time, until none is left.
fn taken(mut changes: Changes, now: Moment) -> Vec<usize> {
    let next = || Some(changes.take_together(now).len());
    std::iter::from_fn(next).take_while(|taken| *taken > 0).collect()
}

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(1);
const NOW: Moment = Moment::from_nanos(1_000_000_000);

#[test]
fn all_that_queue_go_together() {
    let changes = ["/a", "/b", "/c"].map(|directory| make(directory, 0));
    assert_eq!(taken(queue([]), NOW), [0; 0]);
    assert_eq!(taken(queue(changes.iter().chain([&Request::delete("/a/n")]).cloned()), NOW), [4]);
}

#[test]
fn two_tokens_of_one_queue_are_drawn_one_after_the_other() {
    let directories = ["/a", "/b", "/a", "/c", "/a", "/b"];
    let mut changes = queue(directories.map(|directory| make(directory, 0)));
    let mut drawn = || {
        let taken = changes.take_together(NOW);
        let queues = taken.iter().flat_map(|change| change.requests[0].draws_in());
        queues.cloned().collect::<Vec<_>>()
    };
    assert_eq!([drawn(), drawn(), drawn()], [&["/a", "/b", "/c"][..], &["/a", "/b"], &["/a"]]);
}

#[test]
fn a_transaction_has_a_greatest_length() {
    let changes = ["/a", "/b", "/c"].map(|directory| make(directory, LONGEST / 2));
    assert_eq!(taken(queue(changes), NOW), [1, 1, 1]);
    let changes = ["/a", "/b", "/c"].map(|directory| make(directory, LONGEST / 2 - 100));
    assert_eq!(taken(queue(changes), NOW), [2, 1]);
    assert_eq!(taken(queue([make("/a", 3 * LONGEST)]), NOW), [1], "it goes all the same");
}

#[test]
fn for_a_moment_each_goes_alone() {
    let mut changes = queue(["/a", "/b", "/c"].map(|directory| make(directory, 0)));
    changes.join_nothing_until(NOW.plus(LONG));
    changes.join_nothing_until(NOW.plus(SHORT));
    assert_eq!(changes.take_together(NOW.plus(SHORT)).len(), 1);
    assert_eq!(changes.take_together(NOW.plus(LONG)).len(), 2);
}

#[test]
fn what_was_refused_with_others_goes_alone() {
    let mut changes = queue(["/a", "/b", "/c", "/d"].map(|directory| make(directory, 0)));
    changes.queue[1].is_alone = true;
    assert_eq!(taken(changes, NOW), [3, 1]);
}
