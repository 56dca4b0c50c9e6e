//! Help, the man page, completions.

use std::process::Command;

use crate::program::path;

fn output(arguments: &[&str]) -> String {
    let output = Command::new(path()).args(arguments).env_remove("LEASEHOLD_URL").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_pages_tell_all_options_and_statuses() {
    let (short, long, man) =
        (output(&["run", "-h"]), output(&["run", "--help"]), output(&["man"]).replace('\\', ""));
    for option in [
        "--wait",
        "--no-wait",
        "--fair",
        "--read",
        "--write",
        "--permits",
        "--permits-as-set",
        "--once",
        "--every",
        "--offset",
        "--early",
        "--grace",
        "--attempts",
        "--keep",
        "--lease",
        "--max-hold",
        "--min-hold",
        "--min-hold-on-success",
        "--kill-after",
        "--owner",
        "--quiet",
        "--verbose",
        "--conflict-status",
        "--retry-store",
        "--url",
        "--password-file",
        "--redlock",
    ] {
        assert!(
            short.contains(option) && long.contains(option) && man.contains(option),
            "{option}"
        );
    }
    for word in [
        "LEASEHOLD_TOKEN",
        "LEASEHOLD_NAME",
        "LEASEHOLD_OCCURRENCE",
        "LEASEHOLD_URL",
        "75",
        "70",
        "SIGKILL",
    ] {
        assert!(long.contains(word) && man.contains(word), "{word}");
    }
    assert!(man.starts_with(".ie") || man.starts_with(".TH"), "{}", &man[..80]);
    assert!(man.contains("LEASEHOLD RUN"));
}

#[test]
fn subcommands_have_pages_of_their_own() {
    let man = output(&["man"]).replace('\\', "");
    for (subcommand, words) in [
        ("doctor", ["--lease", "--json", "there are warnings", "there is a problem"]),
        ("permits", ["at any time", "<N>", "permits:NAME", "76"]),
        ("once", ["forget", "force-out", "only once", "75"]),
    ] {
        let long = output(&[subcommand, "--help"]);
        assert!(man.contains(&format!("LEASEHOLD {}", subcommand.to_uppercase())));
        for word in words {
            assert!(long.contains(word) && man.contains(word), "{subcommand}: {word}");
        }
    }
}

#[test]
fn completions_know_the_subcommands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = output(&["completions", shell]);
        assert!(script.contains("run") && script.contains("min-hold"), "{shell}");
    }
}

/// What bash offers for the last of these words.
fn offered(words: &[&str]) -> Vec<String> {
    let script = output(&["completions", "bash"]);
    let line = r#"COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _leasehold_or_command leasehold "${COMP_WORDS[COMP_CWORD]}"; printf '%s\n' "${COMPREPLY[@]}""#;
    let bash = Command::new("bash")
        .args(["--norc", "--noprofile", "-c", &format!("{script}\n{line}"), "bash"])
        .args(words)
        .output()
        .unwrap();
    assert!(bash.stderr.is_empty(), "{}", String::from_utf8_lossy(&bash.stderr));
    String::from_utf8(bash.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_the_command_of_a_run() {
    let has = |words: &[&str], word: &str| offered(words).iter().any(|offer| offer == word);
    assert!(has(&["leasehold", "ru"], "run"));
    assert!(has(&["leasehold", "run", "job", "--no"], "--no-wait"));
    assert!(has(&["leasehold", "run", "job", "--", "tru"], "true"));
    assert!(has(&["leasehold", "run", "job", "--", "/etc/pass"], "/etc/passwd"));
    assert!(has(&["leasehold", "run", "job", "--", "cat", "/etc/pass"], "/etc/passwd"));
    assert!(!has(&["leasehold", "run", "job", "--", "--no"], "--no-wait"), "it is the command's");
}

#[test]
fn the_version_is_that_of_the_crate() {
    assert_eq!(output(&["--version"]).trim(), concat!("leasehold ", env!("CARGO_PKG_VERSION")));
}
