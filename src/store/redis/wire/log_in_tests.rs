use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;

fn provided(provider: impl CredentialsProvider + 'static) -> LogIn {
    LogIn {
        user: Some("url".into()),
        password: Password::Provided(Provider::new(&(Arc::new(provider) as _))),
    }
}

fn begin(log_in: &LogIn) -> Result<Attempt<'_>> {
    log_in.begin(Instant::now() + Duration::from_secs(60))
}

/// What was sent, and how the log-in ended; the server answers the attempts in this order.
fn run(log_in: &LogIn, replies: &[&str]) -> (Vec<String>, Result<()>) {
    let mut sent = Vec::new();
    let mut replies = replies.iter();
    let outcome = begin(log_in).and_then(|attempt| {
        attempt.log_in(|request| {
            let mut bytes = Vec::new();
            request.write_plain(&mut bytes);
            sent.push(
                String::from_utf8(bytes)
                    .unwrap()
                    .split("\r\n")
                    .skip(4)
                    .step_by(2)
                    .collect::<Vec<_>>()
                    .join(" "),
            );
            Ok(match replies.next().unwrap() {
                &"OK" => Reply::Bytes(b"OK".to_vec()),
                error => Reply::Error(ServerError::from(*error)),
            })
        })
    });
    (sent, outcome)
}

#[test]
fn refused_credentials_are_asked_for_once_more_and_never_sent_twice() {
    let asked = AtomicU32::new(0);
    let log_in = provided(move || {
        Ok(Credentials::password(format!("p{}", asked.fetch_add(1, Ordering::Relaxed))))
    });
    let (sent, outcome) = run(&log_in, &["WRONGPASS no", "OK"]);
    assert_eq!(sent, ["url p0", "url p1"]);
    outcome.unwrap();
    let (sent, outcome) = run(&log_in, &["WRONGPASS no", "WRONGPASS no"]);
    assert_eq!((sent.len(), outcome.unwrap_err().kind()), (2, ErrorKind::Denied));
    let (sent, outcome) = run(&log_in, &["LOADING wait"]);
    assert_eq!((sent.len(), outcome.unwrap_err().kind()), (1, ErrorKind::NotReady));

    let same = provided(|| Ok(("me", "p").into()));
    let (sent, outcome) = run(&same, &["WRONGPASS no"]);
    assert_eq!(sent, ["me p"]);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Denied);
}

#[test]
fn no_error_has_the_password() {
    let log_in = provided(|| Ok(Credentials::password("s3cr3t")));
    let long = "ERR unknown command 'AUTH', with args beginning with: 'default' 's3cr3";
    for reply in [long, "ERR what is s3cr3t", "WRONGPASS s3cr3t", "ERR `s3cr3t`"] {
        let error = run(&log_in, &[reply]).1.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cr3"), "{error:?}");
    }
    let echo =
        begin(&log_in).unwrap().log_in(|_| Ok(Reply::Bytes(b"s3cr3t".to_vec()))).unwrap_err();
    assert!(!format!("{echo:?}").contains("s3cr3t"), "{echo:?}");
    let panics = provided(|| panic!("s3cr3t"));
    let error = begin(&panics).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(!format!("{error:?}").contains("s3cr3t"));
    assert!(!format!("{:?}", Credentials::new("me", "s3cr3t")).contains("s3cr3t"));
}
