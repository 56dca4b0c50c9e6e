//! The bugs that prove the storm's checker and the scheduler's scenarios still apply.

use std::path::Path;
use std::process::Command;

use super::{files, root};

#[test]
fn planted_bugs_apply() {
    let of_the_storm = files(&root().join("tests/storm/planted"), "patch");
    let of_the_scheduler = files(&root().join("tests/scheduler/planted"), "patch");
    assert!(of_the_storm.len() >= 8 && of_the_scheduler.len() >= 40, "the patches are found");
    for path in &of_the_storm {
        let text = std::fs::read_to_string(path).unwrap();
        for field in ["On: ", "Check: "] {
            assert!(
                text.lines().any(|line| line.starts_with(field)),
                "{} has no line {field}",
                path.display()
            );
        }
    }
    for path in of_the_storm.iter().chain(&of_the_scheduler) {
        applies(path);
    }
}

/// The patches have one line of context, so that they rarely need changes.
fn applies(path: &Path) {
    let git = Command::new("git").args(["apply", "--check"]).arg(path).current_dir(root()).output();
    let output = git.expect("git is needed: install it");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} does not apply: create it again: {said}", path.display());
}
