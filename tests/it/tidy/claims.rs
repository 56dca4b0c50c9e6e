//! Everything on the page on choosing a store is tested: its last section names tests, or a section
//! of BENCHMARKS.md, for each of its rows and bold sentences, and those exist.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::root;

const PAGE: &str = "src/guide/choosing_a_store.rs";
const LAST_SECTION: &str = "\n# Where each sentence is tested\n";

/// The page without the comment markers.
fn page() -> String {
    let text = fs::read_to_string(root().join(PAGE)).unwrap();
    text.lines()
        .map(|line| line.trim_start_matches("//!").trim_start_matches(' ').to_owned() + "\n")
        .collect()
}

/// The texts between pairs of marks.
fn between<'a>(text: &'a str, mark: &str) -> impl Iterator<Item = &'a str> {
    text.split(mark).skip(1).step_by(2)
}

/// The claims: the first cell of each row, and the beginning of each point.
fn claims(text: &str) -> Vec<String> {
    let first_of = |line: &str| match line.strip_prefix("| ") {
        Some(row) => {
            row.split(" | ").next().filter(|cell| !cell.starts_with('|')).map(str::to_owned)
        }
        None => {
            line.strip_prefix("- **").and_then(|point| point.split("**").next()).map(str::to_owned)
        }
    };
    text.lines().filter_map(first_of).collect()
}

/// The proofs of each claim.
fn proofs(section: &str) -> BTreeMap<String, Vec<String>> {
    let entries = section.split("\n- **").skip(1);
    let proof = |entry: &str| {
        let (claim, proofs) = entry.split_once("**").expect("it ends");
        (claim.to_owned(), between(proofs, "`").map(str::to_owned).collect())
    };
    entries.map(proof).collect()
}

/// The file of a test, and its name.
fn file_of(test: &str) -> Option<(PathBuf, &str)> {
    let (modules, name) = test.rsplit_once("::")?;
    let path = root().join("tests").join(modules.replace("::", "/"));
    let file =
        [path.with_extension("rs"), path.join("mod.rs")].into_iter().find(|file| file.exists())?;
    Some((file, name))
}

/// Whether this test exists and runs.
fn is_tested(test: &str) -> bool {
    let Some((file, name)) = file_of(test) else { return false };
    let text = fs::read_to_string(file).unwrap();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    // A point of the contract, which would be dead code if no store had it as a test.
    if lines.contains(&&*format!("pub(super) fn {name}(case: &mut Case) {{")) {
        return true;
    }
    let Some(at) = lines.iter().position(|line| line.starts_with(&format!("fn {name}("))) else {
        return false;
    };
    let attributes: Vec<&&str> =
        lines[..at].iter().rev().take_while(|line| line.starts_with("#[")).collect();
    attributes.iter().any(|line| **line == "#[test]")
        && !attributes.iter().any(|line| line.starts_with("#[ignore"))
}

fn is_measured(section: &str) -> bool {
    let text = fs::read_to_string(root().join("BENCHMARKS.md")).unwrap();
    text.lines().any(|line| line.strip_prefix("## ") == Some(section))
}

#[test]
fn what_is_said_of_each_store_is_tested() {
    let page = page();
    let (text, section) = page.split_once(LAST_SECTION).expect("the page says where it is tested");
    let (claims, proofs) = (claims(text), proofs(section));
    assert!(claims.len() > 15, "the claims are found: {claims:?}");
    for claim in &claims {
        assert!(proofs.contains_key(claim), "{PAGE}: {claim:?} has no test in the last section");
    }
    for (claim, proofs) in &proofs {
        assert!(!proofs.is_empty(), "{PAGE}: {claim:?} names no test");
        for proof in proofs {
            let exists = match proof.strip_prefix("BENCHMARKS.md: ") {
                Some(section) => is_measured(section),
                None => is_tested(proof),
            };
            assert!(
                exists,
                "{PAGE}: {claim:?} names {proof}, and there is no such test or section"
            );
        }
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    assert!(is_tested("it::tidy::claims::what_is_not_there_is_not_found"));
    assert!(is_tested("it::tidy::interface::the_changelog_knows_this_version"));
    assert!(
        !is_tested("it::tidy::claims::page")
            && !is_tested("it::tidy::nowhere::x")
            && !is_tested("x")
    );
    assert!(
        is_tested("it::contract::leases::renewal_keeps_it_for_many_leases"),
        "it is a test of each store"
    );
    assert!(!is_tested("it::contract::leases::holder_process"), "it is a program for other tests");
    assert!(is_measured("Method") && !is_measured("Metho"));
    assert_eq!(claims("| | a |\n|---|---|\n| x y | b |\n- **C**: d\n- e"), ["x y", "C"]);
}
