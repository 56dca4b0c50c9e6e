//! Users whom an ACL restricts: missing rights are named, with the words to add.

use leasehold::observe::{Check, Severity};
use leasehold::{Builder, LockClient, Redlock};

use super::{diagnosed, found, is_healthy, says};
use crate::rig::{Server, acl_rule};
use crate::support::Masters;

const GOOD: [&str; 2] = ["--appendonly", "yes"];

/// The user `u` with the documented rule for names that begin with `app:`, changed by the
/// arguments.
fn user(server: &Server, change: impl Fn(&str) -> bool, more: &[&str]) -> Builder {
    let documented = acl_rule(&["app:*"]);
    let words: Vec<&str> =
        documented.iter().map(String::as_str).filter(|word| change(word)).collect();
    let rules =
        [&["ACL", "SETUSER", "u", "reset", "on", ">secret", "resetchannels"], &words[..], more]
            .concat();
    server.cmd::<()>(&rules);
    LockClient::builder().url(format!("{}?user=u&pass=secret", server.url())).key_prefix("app:")
}

fn without(word: &str) -> impl Fn(&str) -> bool {
    move |other| other != word
}

#[test]
fn the_documented_rule_lacks_nothing() {
    let server = Server::start_with(&GOOD);
    let diagnosis = diagnosed(user(&server, |_| true, &[]));
    is_healthy(&diagnosis);
    // What cannot be observed is not reported as ok.
    let (severity, said) = if server.major() >= 7 {
        (Severity::Ok, "every command")
    } else {
        (Severity::Note, "that can be tested are permitted")
    };
    says(&diagnosis, Check::Right, severity, said);
    says(&diagnosis, Check::Kill, Severity::Ok, "CLIENT KILL");
    if server.major() >= 7 {
        let log: Vec<redis::Value> = server.cmd(&["ACL", "LOG"]);
        assert!(log.is_empty(), "a forbidden command was tried: {log:?}");
    }
    server.assert_clean();
}

/// Missing rights that only help are notes; all others are problems.
#[rustfmt::skip]
const HELPFUL: [&str; 7] =
    ["+linsert", "+unsubscribe", "+ping", "+echo", "+client|setname", "+client|info", "+info"];

#[test]
fn each_command_that_is_missing_is_named() {
    let server = Server::start_with(&GOOD);
    if server.major() < 7 {
        return;
    }
    for word in acl_rule(&["app:*"]).into_iter().filter(|word| word.starts_with('+')) {
        let diagnosis = diagnosed(user(&server, without(&word), &[]));
        match &*word {
            "+eval" => says(&diagnosis, Check::Scripts, Severity::Problem, "+eval"),
            "+client|kill" => says(&diagnosis, Check::Kill, Severity::Note, "+client|kill"),
            "+info" => says(&diagnosis, Check::Version, Severity::Note, "+info"),
            // An ACL cannot permit the pattern for which these are needed.
            "+psubscribe" | "+punsubscribe" => is_healthy(&diagnosis),
            _ => {
                let severity =
                    if HELPFUL.contains(&&*word) { Severity::Note } else { Severity::Problem };
                says(&diagnosis, Check::Right, severity, &format!("add {word} to"));
                let missing =
                    diagnosis.findings().iter().filter(|finding| finding.check() == Check::Right);
                assert_eq!(missing.count(), 1, "without {word}:\n{diagnosis}");
            }
        }
    }
    server.assert_clean();
}

#[test]
fn a_command_that_the_server_does_not_have_is_no_missing_right() {
    let server = Server::start_with(&[&GOOD[..], &["--rename-command", "PUBLISH", ""]].concat());
    let diagnosis = diagnosed(LockClient::builder().url(server.url()));
    says(&diagnosis, Check::Right, Severity::Problem, "the server does not have PUBLISH");
    assert!(!diagnosis.to_string().contains("ACL"), "{diagnosis}");
}

#[test]
fn each_pattern_of_keys_and_channels_that_is_missing_is_named() {
    let server = Server::start_with(&GOOD);
    if server.major() < 7 {
        return;
    }
    for word in acl_rule(&["app:*"]).into_iter().filter(|word| word.starts_with(['~', '&'])) {
        let diagnosis = diagnosed(user(&server, without(&word), &[]));
        match &*word {
            // The rule may name single locks.
            "~app:*" => says(&diagnosis, Check::Right, Severity::Warning, "add ~app:* to"),
            "~{app:*}:*" => says(&diagnosis, Check::Right, Severity::Problem, "add ~{app:* to"),
            // Only for names with braces.
            "~app:*:*" => is_healthy(&diagnosis),
            "~leasehold_client:*" => says(&diagnosis, Check::Right, Severity::Note, &word),
            // The commands cannot be checked then.
            _ => says(&diagnosis, Check::Right, Severity::Problem, &format!("add {word} to")),
        }
        let notes =
            diagnosis.findings().iter().filter(|finding| finding.check() == Check::Right).count();
        assert_eq!(notes, 1, "without {word}:\n{diagnosis}");
    }
    // All channels are missing; the right to the command is checked separately.
    let diagnosis = diagnosed(user(&server, |word| !word.starts_with('&'), &[]));
    assert!(!found(&diagnosis, Check::Right).to_string().contains("+publish"), "{diagnosis}");
    let channels = diagnosis
        .findings()
        .iter()
        .filter(|f| f.advice().is_some_and(|advice| advice.to_string().contains("add &")));
    assert_eq!(channels.count(), 5, "{diagnosis}");
    server.assert_clean();
}

/// Redis 6.2 cannot report the rights of a user.
#[test]
fn an_old_server_is_asked_by_trying() {
    let server = Server::start_with(&GOOD);
    if server.major() >= 7 {
        return;
    }
    for word in ["+hget", "+del", "+publish"] {
        let diagnosis = diagnosed(user(&server, without(word), &[]));
        says(&diagnosis, Check::Right, Severity::Problem, word);
        // These errors concern rights, and each is reported once, in one line.
        let missing = diagnosis.findings().iter().filter(|finding| finding.check() == Check::Right);
        assert_eq!(missing.clone().count(), 1, "{diagnosis}");
        assert!(missing.clone().all(|finding| !finding.found().contains('\n')), "{diagnosis}");
    }
    let diagnosis = diagnosed(user(&server, without("~redisson_lock_token:*"), &[]));
    says(&diagnosis, Check::Right, Severity::Warning, "~redisson_lock_token:*");
    assert!(server.cmd::<Vec<String>>(&["KEYS", "*"]).is_empty(), "nothing is left");
}

#[test]
fn what_redlock_needs_besides_is_named() {
    let masters = Masters::fresh(3);
    let server = &masters.0[0];
    if server.major() < 7 {
        return;
    }
    let more = ["~leasehold:node", "+hmget", "+hkeys"];
    let urls = |rules: &dyn Fn(&Server)| {
        masters.0.iter().for_each(rules);
        masters
            .0
            .iter()
            .map(|server| format!("{}?user=u&pass=secret", server.url()))
            .collect::<Vec<_>>()
    };
    let complete = urls(&|server| drop(user(server, |_| true, &more)));
    let of = |urls: &Vec<String>| {
        diagnosed(LockClient::builder().redlock(Redlock::new(urls)).key_prefix("app:"))
    };
    is_healthy(&of(&complete));
    for missing in more {
        let left: Vec<&str> = more.into_iter().filter(|word| *word != missing).collect();
        let diagnosis = of(&urls(&|server| drop(user(server, |_| true, &left))));
        says(&diagnosis, Check::Right, Severity::Problem, &format!("add {missing} to"));
    }
}
