use super::*;

fn kind(text: &str) -> ErrorKind {
    let code = text.split(' ').next().unwrap().to_owned();
    ServerError { code, text: text.to_owned() }.into_error().kind()
}

#[test]
fn error_answers_of_both_generations_are_understood() {
    assert_eq!(kind("WRONGTYPE Operation against a key"), ErrorKind::WrongType);
    assert_eq!(
        kind("ERR Error running script (call to f_1): @user_script:9: WRONGTYPE Op"),
        ErrorKind::WrongType
    );
    assert_eq!(
        kind("ERR value is not an integer or out of range script: abc, on @user_script:3."),
        ErrorKind::WrongType
    );
    assert_eq!(kind("NOPERM this user has no permissions"), ErrorKind::Denied);
    assert_eq!(
        kind("ERR Error running script: The user executing the script can't run this command"),
        ErrorKind::Denied
    );
    assert_eq!(
        kind("WRONGPASS invalid username-password pair or user is disabled."),
        ErrorKind::Denied
    );
    assert_eq!(kind("NOAUTH Authentication required."), ErrorKind::Denied);
    assert_eq!(kind("ERR max number of clients reached"), ErrorKind::NotReady);
    assert_eq!(kind("OOM command not allowed when used memory > 'maxmemory'."), ErrorKind::Full);
    for demoted in [
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
        "ERR WAIT cannot be used with replica instances. Please also note that",
    ] {
        assert_eq!(kind(demoted), ErrorKind::NotReplicated);
    }
    assert_eq!(kind("READONLY You can't write against a read only replica."), ErrorKind::ReadOnly);
    assert_eq!(kind("LOADING Redis is loading the dataset in memory"), ErrorKind::NotReady);
    assert_eq!(kind("BUSY Redis is busy running a script."), ErrorKind::NotReady);
    assert_eq!(kind("MOVED 3999 127.0.0.1:6381"), ErrorKind::Unsupported);
    assert_eq!(kind("ERR nobody knows"), ErrorKind::Server);
}

/// The request may have run.
#[test]
fn a_proxy_without_its_server_is_an_outage_and_no_answer() {
    for text in ["no upstream host", "upstream failure"] {
        assert_eq!(kind(text), ErrorKind::NotReady);
        assert!(!ServerError::from(text).is_known());
    }
}

#[test]
fn what_is_missing_is_named_without_the_arguments() {
    for text in [
        "ERR unknown command 'SCRIPT', with args beginning with: 'LOAD' 's3cr3t' ",
        "ERR unknown command `SCRIPT`, with args beginning with: `LOAD`, `s3cr3t`, ",
        "ERR Unknown Redis command called from script script: s3cr3t, on @user_script:33.",
        "ERR Unknown command called from script",
        "unsupported command 'SCRIPT'",
    ] {
        let error = ServerError::from(text);
        assert!(error.is_unknown_command() && !error.is_known(), "{text}");
        let error = error.into_error();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{text}");
        assert!(!error.message().contains("LOAD"), "{error}");
    }
}

#[test]
fn an_error_without_a_text_is_no_reason_to_panic() {
    for text in ["TOOFEWREPLICAS", "TOOFEWREPLICAS ", ""] {
        assert_eq!(ServerError::from(text).into_error().kind(), ErrorKind::Server, "{text:?}");
    }
}
