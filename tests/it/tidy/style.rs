//! The style of the sources: file layout, names of threads, script headers, words and widths of
//! comments.

use std::collections::BTreeSet;
use std::fs;

use super::{Source, files, root};

/// A thread without a name cannot be identified in a dump, and `spawn` panics where a builder
/// returns an error.
#[test]
fn threads_have_names() {
    // The scheduler's threads are not threads of the system.
    let of_the_system = |file: &&Source| !file.path.starts_with("os/scheduled");
    Source::all().iter().filter(of_the_system).for_each(|file| file.lacks("thread::spawn("));
}

/// A script's header declares exactly the KEYS and ARGV that its body uses.
#[test]
fn script_headers_tell_all_arguments() {
    let scripts = files(&root().join("src/store/redis/lua"), "lua");
    assert!(scripts.len() >= 8);
    for path in scripts {
        let text = fs::read_to_string(&path).unwrap();
        let header = text.lines().take_while(|line| line.starts_with("--")).count();
        let (header, body): (Vec<_>, Vec<_>) =
            (1..).zip(text.lines()).partition(|(number, _)| *number <= header);
        for table in ["KEYS[", "ARGV["] {
            let used = |lines: &[(usize, &str)]| -> BTreeSet<String> {
                let after = lines.iter().flat_map(|(_, line)| line.split(table).skip(1));
                after.map(|rest| rest.split(']').next().unwrap().to_owned()).collect()
            };
            let (declared, used) = (used(&header), used(&body));
            assert_eq!(declared, used, "{}: {table}...] in header and body", path.display());
            // Without gaps, unless it takes any number of them.
            let numbers: Vec<usize> =
                declared.iter().filter_map(|index| index.parse().ok()).collect();
            let variadic = declared.contains("i") && numbers.is_empty();
            assert!(
                variadic
                    || (numbers.len() == declared.len()
                        && (1..=declared.len()).all(|n| numbers.contains(&n))),
                "{declared:?}"
            );
        }
    }
}

/// The command, and programs in other words, print these texts. What names an item of this crate is
/// an `Advice`, for which they have words of their own: replacing words in a whole text once changed
/// the name of a lock in it.
#[test]
fn only_an_advice_names_the_interface() {
    let types = [
        "Builder",
        "Cluster",
        "LockClient",
        "Postgres",
        "Redis",
        "Redlock",
        "Sentinel",
        "ZooKeeper",
    ];
    let names: Vec<String> =
        types.iter().chain(&["guide", "leasehold"]).map(|name| format!("{name}::")).collect();
    let is_printed = |file: &&Source| {
        !["guide/", "cli/"].iter().any(|folder| file.path.starts_with(folder))
            && file.path != "base/advice.rs"
    };
    for file in Source::all().iter().filter(is_printed) {
        let lines =
            file.code.iter().map(|(_, line)| line.trim()).filter(|line| !line.starts_with("#["));
        let code = lines.fold(String::new(), |code, line| match code.strip_suffix('\\') {
            Some(text) => format!("{text}{line}"),
            None => format!("{code}\n{line}"),
        });
        for line in code.lines() {
            let mut texts = line.split('"').skip(1).step_by(2);
            let named = texts.find(|text| names.iter().any(|name| text.contains(&**name)));
            assert!(named.is_none(), "src/{} names the interface: {named:?}", file.path);
        }
    }
}

const MAX_COMMENT_WIDTH: usize = 100;

#[test]
fn comments_wrap() {
    for file in Source::all() {
        // The rows of tables cannot wrap.
        let is_row =
            |line: &str| line.trim_start().trim_start_matches(['/', '!']).starts_with(" |");
        for (number, line) in file.comments.iter().filter(|(_, line)| !is_row(line)) {
            let width = line.chars().count();
            assert!(
                width <= MAX_COMMENT_WIDTH,
                "src/{}:{number} is {width} columns wide",
                file.path
            );
        }
    }
}

/// One style for modules with children, of sources and tests: `name/mod.rs`, and no `name.rs`
/// beside `name/`.
#[test]
fn a_module_with_children_is_one_folder() {
    for folder in ["src", "cli", "tests", "benches", "examples"] {
        for file in files(&root().join(folder), "rs") {
            assert!(
                !file.with_extension("").is_dir(),
                "{} is next to its folder: make it mod.rs",
                file.display()
            );
        }
    }
}

/// Redis is one of several stores. What the floors above the stores have in common only with
/// Redisson is documented where users choose it.
#[test]
fn nothing_above_the_stores_names_redis() {
    let below = ["base/", "store/"];
    let front_door = ["client.rs", "lib.rs", "testing.rs"];
    let may_name_redis = |file: &Source| {
        below
            .iter()
            .chain(&["builder/", "guide/", "cli/"])
            .any(|folder| file.path.starts_with(folder))
            || front_door.contains(&&*file.path)
    };
    // The docs of public items say what a primitive is in Redisson's protocol.
    let has_public_docs = |file: &Source| {
        ["sync/", "observe/", "signal/"].iter().any(|folder| file.path.starts_with(folder))
    };
    let is_doc = |file: &Source, line: &str| {
        has_public_docs(file) && (line.trim_start().starts_with("///") || line.contains("/links/"))
    };
    for file in Source::all().into_iter().filter(|file| !may_name_redis(file)) {
        let all = file.code.iter().chain(&file.comments);
        let lines = all.filter(|(_, line)| !is_doc(&file, line));
        for (number, line) in lines {
            // The ids by which Redisson knows a permit, which a user asks for.
            let named = line.to_lowercase().replace("redisson_ids", "").contains("redis");
            assert!(!named, "src/{}:{number} names Redis: {line}", file.path);
        }
    }
}
