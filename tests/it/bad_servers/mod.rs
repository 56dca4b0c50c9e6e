//! Servers that refuse requests, cannot run them, or are something else: the client reports a typed
//! error at once, leaves nothing behind, and works again when the server does.

mod acl;
mod credentials;
mod fake_server;
mod foreign_data;
mod full_and_busy;
mod roles_and_replication;
mod unreachable;
mod unsupported;
mod wrong_protocol;

use std::error::Error as _;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use leasehold::{Builder, Error, ErrorKind, LockClient};

use crate::rig::{Server, ms, wait_until};

const SECRET: &str = "s3cr3t-pw";
const IO_TIMEOUT: Duration = ms(500);
/// Long enough that no test can pass because a lease ended.
const LEASE: Duration = Duration::from_secs(60);
/// A generous bound for "within the I/O timeout" on a busy machine.
const SOON: Duration = Duration::from_secs(5);

fn settings(url: &str) -> Builder {
    LockClient::builder().url(url).lease(LEASE).io_timeout(IO_TIMEOUT)
}

fn client(server: &Server) -> LockClient {
    settings(&server.url()).build().unwrap()
}

/// The call fails soon, with this kind of error for this lock. The message contains `says` and
/// never the password.
#[track_caller]
fn fails<T: Debug>(
    kind: ErrorKind,
    name: Option<&str>,
    says: &str,
    call: impl FnOnce() -> leasehold::Result<T>,
) -> Error {
    let start = Instant::now();
    let e = call().unwrap_err();
    assert!(start.elapsed() < SOON, "it took {:?}: {e:?}", start.elapsed());
    assert_eq!((e.kind(), e.name()), (kind, name), "{e:?}");
    assert!(e.to_string().contains(says), "{e} does not say {says:?}");
    let mut all = format!("{e} {e:?}");
    let mut cause = e.source();
    while let Some(c) = cause {
        all += &format!(" {c} {c:?}");
        cause = c.source();
    }
    assert!(!all.contains(SECRET), "{all}");
    e
}

/// Every acquiring method fails like this on a client that is already connected.
#[track_caller]
fn all_methods_fail(client: &LockClient, name: &str, kind: ErrorKind, says: &str) {
    let (mutex, named) = (client.mutex(name), Some(name));
    fails(kind, named, says, || mutex.try_lock());
    fails(kind, named, says, || mutex.lock());
    fails(kind, named, says, || mutex.try_lock_for(LEASE));
    fails(kind, named, says, || mutex.lock_owned());
}

#[track_caller]
fn works(client: &LockClient, name: &str) {
    let guard = match client.try_lock(name) {
        // Repeated once: a busy machine may take longer than the I/O timeout.
        Err(e) if e.to_string().contains("did not answer within") => client.try_lock(name),
        outcome => outcome,
    };
    let guard = guard.unwrap().expect("no other client has it");
    assert!(guard.is_held());
    guard.unlock().unwrap();
}

#[track_caller]
fn nothing_left(server: &Server) {
    wait_until("no lock is left", || server.lock_keys().is_empty());
}

fn query<T: redis::FromRedisValue>(
    connection: &mut redis::Connection,
    words: &[&str],
) -> redis::RedisResult<T> {
    let mut cmd = redis::cmd(words[0]);
    cmd.arg(&words[1..]);
    cmd.query(connection)
}
