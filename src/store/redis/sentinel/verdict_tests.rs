use super::super::question::Neighbour;
use super::*;

/// A sentinel of three that names the server on this port; 0: none.
fn says(id: &str, port: u16, config_epoch: u64) -> Result<Testimony> {
    let other =
        |n: u16| Neighbour { id: format!("other{n}"), host: "h".into(), port: n, is_down: false };
    let master = (port > 0).then(|| NamedMaster { host: "h".into(), port, config_epoch });
    Ok(Testimony {
        id: id.into(),
        master,
        others: vec![other(1), other(2)],
        watches: vec!["its".into()],
    })
}

fn dead() -> Result<Testimony> {
    Err(Error::new(ErrorKind::Unreachable, "dead"))
}

fn judged(outcomes: Vec<Result<Testimony>>, seen: u64) -> std::result::Result<u16, ErrorKind> {
    let outcomes: Vec<_> = outcomes.into_iter().enumerate().collect();
    let addresses = vec!["a".to_owned(); outcomes.len()];
    let judged = judge(&outcomes, "mine", outcomes.len(), seen, &addresses);
    assert!(!is_settled(&outcomes, outcomes.len()) || judged.is_ok());
    judged.map(|named| named.port).map_err(|e| e.kind())
}

#[test]
fn most_of_those_who_answer_are_believed() {
    assert_eq!(judged(vec![says("a", 7, 1), says("b", 7, 1), says("c", 8, 2)], 1), Ok(7));
    assert_eq!(judged(vec![says("a", 7, 1), says("b", 8, 2), dead()], 1), Err(ErrorKind::NotReady));
    assert_eq!(judged(vec![says("a", 7, 1), dead(), dead()], 1), Ok(7));
    assert_eq!(judged(vec![dead(), dead()], 1), Err(ErrorKind::Unreachable));
    assert_eq!(
        judged(vec![says("a", 0, 0), says("b", 0, 0), dead()], 1),
        Err(ErrorKind::InvalidInput)
    );
    assert_eq!(judged(vec![says("a", 0, 0), says("b", 7, 0)], 0), Err(ErrorKind::NotReady));
}

#[test]
fn two_addresses_of_one_sentinel_are_one_vote() {
    let outcomes = vec![says("a", 7, 1), says("a", 7, 1), says("b", 8, 1), says("c", 8, 1)];
    assert_eq!(judged(outcomes, 0), Ok(8));
}

#[test]
fn a_minority_does_not_lead_back() {
    assert_eq!(judged(vec![says("a", 7, 1), dead(), dead()], 2), Err(ErrorKind::NotReady));
    assert_eq!(
        judged(vec![says("a", 7, 1), says("b", 7, 1), dead()], 2),
        Ok(7),
        "all were set up anew"
    );
    assert_eq!(judged(vec![says("a", 8, 2), dead(), dead()], 2), Ok(8));
    // It was set up anew, with the first master, and has not heard of the others yet.
    let alone = || says("a", 7, 0).map(|one| Testimony { others: Vec::new(), ..one });
    assert_eq!(judged(vec![alone(), dead(), dead()], 2), Err(ErrorKind::NotReady));
    assert!(!is_settled(&[(0, alone())], 3), "the others are waited for");
    assert_eq!(judged(vec![alone(), says("b", 8, 2), says("c", 8, 2)], 2), Ok(8));
    assert_eq!(judged(vec![alone()], 2), Ok(7), "there is no other");
}

#[test]
fn it_is_settled_once_more_than_half_of_all_agree() {
    let settled = |outcomes: Vec<Result<Testimony>>| {
        is_settled(&outcomes.into_iter().enumerate().collect::<Vec<_>>(), 3)
    };
    assert!(!settled(vec![]));
    assert!(!settled(vec![says("a", 7, 1)]));
    assert!(!settled(vec![says("a", 7, 1), says("b", 8, 1)]));
    assert!(settled(vec![says("a", 7, 1), says("b", 7, 1)]));
}

/// Three of six that live, and call each other up and the rest down.
fn living(id: &str, port: u16, config_epoch: u64) -> Result<Testimony> {
    let other = |id: &str| Neighbour {
        id: id.into(),
        host: "h".into(),
        port: 1,
        is_down: id.starts_with('x'),
    };
    let others = ["a", "b", "c", "x1", "x2", "x3"]
        .into_iter()
        .filter(|other| *other != id)
        .map(other)
        .collect();
    says(id, port, config_epoch).map(|testimony| Testimony { others, ..testimony })
}

#[test]
fn those_that_are_gone_are_not_waited_for() {
    let outcomes =
        |outcomes: Vec<Result<Testimony>>| outcomes.into_iter().enumerate().collect::<Vec<_>>();
    let off = [false, false, false, true, true, true];
    let all = outcomes(vec![living("a", 7, 2), living("b", 7, 2), living("c", 7, 2)]);
    assert!(!is_settled(&all, 3) && nobody_is_missing(&all, &off, 2));
    assert!(!nobody_is_missing(&all[..2], &off, 2), "the third is called up");
    assert!(
        !nobody_is_missing(&all, &[false, false, false, true, true, false], 2),
        "one answers this client"
    );
    assert!(!nobody_is_missing(&all, &off, 3), "they are behind");
    let split = outcomes(vec![living("a", 7, 2), living("b", 8, 2), dead()]);
    assert!(!nobody_is_missing(&split, &off, 2));
    assert!(!nobody_is_missing(&[], &[true], 0));
    // Two that live, know only each other, and do not agree.
    let one = |id: &str, other: &str, port| {
        let other = Neighbour { id: other.into(), host: "h".into(), port: 1, is_down: false };
        says(id, port, 2).map(|testimony| Testimony { others: vec![other], ..testimony })
    };
    assert!(!nobody_is_missing(
        &outcomes(vec![one("a", "b", 7), one("b", "a", 8)]),
        &[false, false],
        2
    ));
    assert!(nobody_is_missing(
        &outcomes(vec![one("a", "b", 7), one("b", "a", 7)]),
        &[false, false],
        2
    ));
}
