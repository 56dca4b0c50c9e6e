//! The bugs that prove the storm's checker still apply.

use std::process::Command;

use super::{files, root};

#[test]
fn planted_bugs_apply() {
    let patches = files(&root().join("tests/storm/planted"), "patch");
    assert!(patches.len() >= 8, "the patches are found");
    for path in patches {
        let text = std::fs::read_to_string(&path).unwrap();
        for field in ["On: ", "Check: "] {
            assert!(
                text.lines().any(|line| line.starts_with(field)),
                "{} has no line {field}",
                path.display()
            );
        }
        // The patches have one line of context, so that they rarely need changes.
        let git =
            Command::new("git").args(["apply", "--check"]).arg(&path).current_dir(root()).output();
        let output = git.expect("git is needed: install it");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{} does not apply: create it again: {said}",
            path.display()
        );
    }
}
