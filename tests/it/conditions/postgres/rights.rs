//! What the role may do.

use super::*;
use crate::conditions::rows;
use crate::conditions::runner;

/// The role loses these rights, and gets them back.
fn without(rights: &str, on: &str) -> OnPostgres {
    let revoke = format!("REVOKE {rights} ON {on} FROM app");
    let stage = OnPostgres::stage(
        "",
        move |stage, _| {
            stage.sql(&revoke);
            // Those that wait ask again.
            stage.end_connections();
        },
        |stage, _| stage.sql(&role_grants()),
    );
    // A release that is refused is not repeated.
    OnPostgres { expires: true, ..stage.for_a_role() }
}

const SAYS: &[&str] = &["permission denied"];

/// What needs the right is refused.
fn denied_if_needed(class: Class) -> Answers {
    if denied(class) == DONE { DONE } else { &[None, Some(Denied)] }
}

/// All rights of the guide, each with what it is for.
fn rights() -> Vec<(String, String)> {
    let grants = role_grants();
    let each = grants
        .split(';')
        .filter_map(|grant| grant.trim().strip_prefix("GRANT ")?.strip_suffix(" TO app"));
    each.flat_map(|grant| {
        let (rights, on) = grant.split_once(" ON ").expect("a grant");
        let (kind, names) = match on.split_once("SCHEMA ") {
            Some((before, _)) if !before.is_empty() => ("", vec![on]),
            Some((_, names)) => ("SCHEMA ", names.split(',').collect()),
            None => ("", on.split(',').collect()),
        };
        let on: Vec<String> =
            names.into_iter().map(|name| format!("{kind}{}", name.trim())).collect();
        rights.split(',').flat_map(move |right| {
            let right = right.trim().to_owned();
            on.clone().into_iter().map(move |on| (right.clone(), on))
        })
    })
    .collect()
}

/// What a short run takes away; with `LEASEHOLD_ALL=1` each of them.
const SOME: [(&str, &str); 4] = [
    ("SELECT", "leasehold.lock"),
    ("INSERT", "leasehold.share"),
    ("DELETE", "leasehold.once"),
    ("USAGE", "SCHEMA leasehold_v1"),
];

/// One at a time, or only those that `LEASEHOLD_RIGHT` is a part of.
#[test]
fn without_each_right() {
    let (only, all) =
        (std::env::var("LEASEHOLD_RIGHT").ok(), std::env::var_os("LEASEHOLD_ALL").is_some());
    let rights = rights();
    assert!(
        SOME.iter().all(|(right, on)| rights.iter().any(|one| one.0 == *right && one.1 == *on)),
        "{rights:?}"
    );
    for (right, on) in rights {
        let is_chosen = match &only {
            Some(part) => format!("{right} ON {on}").contains(part.as_str()),
            None => all || SOME.contains(&(&*right, &*on)),
        };
        if is_chosen {
            let name = format!("without_{right}_on_{on}").replace(' ', "_");
            let row = row("The role lacks one of the rights", move || without(&right, &on));
            runner::run(&row.failing(denied_if_needed, SAYS).named(name.leak()));
        }
    }
}

rows! {
    no_rights: row("The role may use the tables no more", || without("ALL", "ALL TABLES IN SCHEMA leasehold"))
        .failing(denied, SAYS);

    no_log_in: row("The role may log in no more, and its connections have ended", || {
        let stage = OnPostgres::stage("", |stage, _| {
            stage.sql("ALTER ROLE app NOLOGIN");
            stage.end_connections();
        }, |stage, _| stage.sql("ALTER ROLE app LOGIN"));
        OnPostgres { expires: true, ..stage.for_a_role() }
    }).failing(denied, &["not permitted to log in"]);
}
