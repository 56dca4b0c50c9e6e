//! Several locks as one.

use crate::book::As;
use crate::stage::{Stage, join_all};

/// Names in any order, in competition with a plain lock on one of them: no deadlock, all or none.
pub(crate) fn several() {
    let stage = Stage::new();
    let all = [(true, ["a", "b"]), (false, ["b", "a"])].map(|(is_one, names)| {
        stage.spawn(move |stage| {
            let guard = stage.client(is_one).multi(names).lock().expect("they become free");
            stage.book.enter("b", As::Writer, None);
            stage.book.section("a", As::Writer, None, &guard);
            stage.book.leave("b", As::Writer);
            guard.unlock().expect("they are held");
        })
    });
    let single = [("a", true), ("b", true)].map(|(name, is_one)| {
        stage.spawn(move |stage| {
            let guard = stage.client(is_one).lock(name).expect("it becomes free");
            stage.book.section(name, As::Writer, None, &guard);
            guard.unlock().expect("it is held");
        })
    });
    join_all(all);
    join_all(single);
    stage.end();
}

/// In competition with threads of its client that hand one of the names to each other.
pub(crate) fn beside_a_hand_over() {
    let stage = Stage::new();
    let single = [(); 2].map(|()| {
        stage.spawn(|stage| {
            for _ in 0..2 {
                let guard = stage.one.lock("a").expect("it becomes free");
                stage.book.section("a", As::Writer, None, &guard);
                guard.unlock().expect("it is held");
            }
        })
    });
    let all = stage.spawn(|stage| {
        let guard = stage.one.multi(["a", "b"]).lock().expect("they become free");
        stage.book.section("a", As::Writer, None, &guard);
        guard.unlock().expect("they are held");
    });
    join_all(single);
    join_all([all]);
    stage.end();
}
