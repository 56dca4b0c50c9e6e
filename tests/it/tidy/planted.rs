//! The bugs that prove the storm's checker can still be planted.

use std::process::Command;

use super::{files, root};

#[test]
fn planted_bugs_apply() {
    let patches = files(&root().join("tests/storm/planted"), "patch");
    assert!(patches.len() >= 8, "the patches are found");
    for path in patches {
        let text = std::fs::read_to_string(&path).unwrap();
        for field in ["On: ", "Check: "] {
            assert!(text.lines().any(|line| line.starts_with(field)), "{} has a line {field}", path.display());
        }
        // With one line of context, so that they last.
        let git = Command::new("git").args(["apply", "--check"]).arg(&path).current_dir(root()).output();
        let output = git.expect("git is needed: install it");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} does not apply: make it anew: {said}", path.display());
    }
}
