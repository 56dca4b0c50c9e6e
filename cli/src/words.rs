//! What the library says, for a user of the command: instead of methods and chapters of a guide,
//! its advice names options and subcommands. Nothing else of its texts is changed, because they
//! quote names of locks.

use std::error::Error as _;

use leasehold::{Advice, Error, Loss, RenewalFailure};

/// The words of the command for an advice; `None` if a user of the command has nothing to do.
pub(crate) fn advice(advice: &Advice) -> Option<String> {
    let words = match advice {
        Advice::GrantRights => "`leasehold doctor --acl` prints the ACL rule",
        Advice::InstallSchema => {
            "have an administrator run what `leasehold schema --postgres` prints, with the rights at its end"
        }
        Advice::GrantRoleRights => {
            "the output of `leasehold schema --postgres` ends with the rights that a role needs"
        }
        Advice::CreateTables => {
            "have an administrator run what `leasehold schema --mysql` prints, with the rights at its end"
        }
        Advice::GrantDatabaseRights => {
            "the output of `leasehold schema --mysql` ends with the rights that a user needs"
        }
        Advice::ConnectToCluster => "use redis+cluster://host",
        Advice::ConnectToServer => "use redis://host",
        Advice::ConnectToSentinels => {
            "connect to the primary that it watches, or use redis+sentinel://host,../master"
        }
        Advice::CheckCredentials => {
            "check both, in the URL or in --password-file, and whether the user is on"
        }
        Advice::SetPassword => "set it in LEASEHOLD_URL, or by --password-file",
        Advice::ChooseName => "use another name or a --key-prefix",
        Advice::AdmitFreshNodes => {
            "wait for the longest lease, or, only if no lock was ever taken there, use --admit-fresh-nodes"
        }
        // A run goes on waiting by itself; and no subcommand takes from a rate limiter.
        Advice::RaiseOutageTimeout | Advice::SetRate => return None,
        Advice::FixLease => "give the command a longer time",
        Advice::SetPermits => "`leasehold permits` sets their number",
        Advice::EnableFeature(feature) => {
            return Some(format!("cargo install leasehold-cli --features {feature} brings it"));
        }
        // Words, and the advice of a library that is newer than this command.
        other => return Some(other.to_string()),
    };
    Some(words.to_owned())
}

/// The error and all its causes in one line, each once.
pub(crate) fn chain(error: &Error) -> String {
    let mut line = one(error);
    let mut cause = error.source();
    while let Some(e) = cause {
        let text = e.downcast_ref().map_or_else(|| e.to_string(), one);
        // Some errors already quote their cause.
        let quoted =
            e.downcast_ref().map_or_else(|| e.to_string(), |e: &Error| e.message().to_owned());
        if !line.contains(&quoted) {
            line.push_str(": ");
            line.push_str(&text);
        }
        cause = e.source();
    }
    line
}

/// The error without its causes.
fn one(error: &Error) -> String {
    let name = error.name().map(|name| format!("{name:?}: ")).unwrap_or_default();
    let advice =
        error.advice().and_then(advice).map(|advice| format!("; {advice}")).unwrap_or_default();
    format!("{name}{}{advice}", error.message())
}

pub(crate) fn loss(loss: &Loss) -> String {
    let cause = loss.cause().map(|cause| format!(": {}", chain(cause))).unwrap_or_default();
    format!("{}{cause} (held for {:.1?})", loss.message(), loss.held_for())
}

pub(crate) fn trouble(trouble: &RenewalFailure) -> String {
    let left = trouble.remaining();
    format!("the lease cannot be renewed, and ends in {left:.1?}: {}", chain(trouble.error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_advice_names_the_library() {
        for named in Advice::NAMED {
            let library = named.to_string();
            let command = advice(&named);
            assert_ne!(Some(&library), command.as_ref(), "{named:?} has no words of the command");
            assert!(!command.unwrap_or_default().contains("::"), "{named:?}");
        }
        assert_eq!(advice(&"turn it on".into()), Some("turn it on".to_owned()));
    }

    #[test]
    fn who_needs_permits_is_told_of_the_subcommand() {
        let error = leasehold::LockClient::in_memory().semaphore("api").try_acquire().unwrap_err();
        assert_eq!(
            chain(&error),
            "\"api\": the semaphore has no permits; `leasehold permits` sets their number"
        );
    }

    /// Replacing words in a whole message once turned the lock `max_hold` into `--max-hold`.
    #[test]
    fn a_name_that_looks_like_a_setting_stays_as_it_is() {
        let (name, client) =
            ("Builder::lease max_hold key_prefix", leasehold::LockClient::in_memory());
        let guard = client.lock(name).unwrap();
        client.mutex(name).force_unlock().unwrap();
        let lost = guard.unlock().unwrap_err();
        assert!(chain(&lost).starts_with(&format!("{name:?}: ")), "{}", chain(&lost));
    }
}
