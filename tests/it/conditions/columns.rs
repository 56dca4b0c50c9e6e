//! Whether every public verb is a column.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::calls;

/// Methods that have no column, and why.
const EXCEPTIONS: [(&str, &[&str]); 7] = [
    (
        "makes or configures a handle and sends nothing; what is wrong with its name is told by its calls",
        &[
            "mutex",
            "fair",
            "rw_lock",
            "multi",
            "latch",
            "semaphore",
            "counting_semaphore",
            "rate_limiter",
            "once",
            "keep",
            "attempts",
            "pause",
            "new",
            "offset",
            "early",
            "grace",
            "fenced_value",
            "with_lease",
            "max_hold",
            "min_hold",
            "with_data",
            "election",
            "again",
            "keep_token",
            "with_cancel",
            "non_reentrant",
        ],
    ),
    (
        "a field",
        &[
            "name",
            "id",
            "lease",
            "key",
            "value",
            "token",
            "permits",
            "redisson_ids",
            "names",
            "token_rounds",
            "occurrence",
            "attempt",
        ],
    ),
    (
        "takes the plain lock again and again, or looks at it, until its client stops",
        &["run", "watch"],
    ),
    (
        "of a term or a leader: what it sends has a column among those of the guard",
        &["data", "term", "number", "is_leader", "cancel_token", "resign", "is_requested"],
    ),
    ("makes a text for a database that is not the store", &["fence_sql", "done_sql"]),
    (
        "ends the client of all cells: the rows close it after the condition, and `closing` during one",
        &["close", "stop_waiting"],
    ),
    (
        "ends a guard without a request; the permits are released through `Semaphore::release`",
        &["forget"],
    ),
];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .expect("a folder of the library")
        .map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The names of public methods, also of those that `waiting_method!` makes.
fn methods(text: &str) -> BTreeSet<String> {
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let mut found = BTreeSet::new();
    let mut in_macro = false;
    for line in text.lines().map(str::trim) {
        in_macro |= line.starts_with("waiting_method!");
        let named = line
            .strip_prefix("pub fn ")
            .or_else(|| in_macro.then_some(line).filter(|line| line.contains("->")));
        in_macro &= line != "}";
        let Some(names) = named.and_then(|rest| rest.split(['(', '<']).next()) else { continue };
        found.extend(
            names.split(',').map(str::trim).filter(|name| is_name(name)).map(str::to_owned),
        );
    }
    found
}

#[test]
fn every_public_verb_is_a_column() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = files(&root.join("src/sync"));
    sources.extend(["src/client.rs", "src/fencing/value.rs"].map(|file| root.join(file)));
    let public: BTreeSet<String> = sources
        .iter()
        .flat_map(|file| methods(&fs::read_to_string(file).expect("a file of the library")))
        .collect();
    assert!(
        public.contains("try_acquire_many_until") && public.contains("downgrade"),
        "they are found: {public:?}"
    );
    let columns = calls::all();
    let has_column = |name: &String| {
        columns.iter().any(|call| {
            call.name.split(',').next().is_some_and(|call| call.ends_with(&format!("::{name}")))
        })
    };
    let excepted = |name: &String| EXCEPTIONS.iter().any(|(_, names)| names.contains(&&**name));
    let missing: Vec<_> =
        public.iter().filter(|name| !has_column(name) && !excepted(name)).collect();
    assert!(missing.is_empty(), "no column of tests/it/conditions/calls.rs calls {missing:?}");
    let needless: Vec<_> = EXCEPTIONS
        .iter()
        .flat_map(|(_, names)| *names)
        .filter(|name| !public.contains(**name))
        .collect();
    assert!(needless.is_empty(), "exceptions that do not exist: {needless:?}");
}
