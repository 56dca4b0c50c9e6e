//! TLS against real servers, and against misbehaving peers.

mod certificates;
mod faults;
pub(crate) mod wire;

use std::error::Error as _;
use std::path::Path;
use std::time::{Duration, Instant};

use leasehold::{Builder, Error, ErrorKind, LockClient, Tls};

use crate::rig::{Certificates, Server, ms};

/// Long enough that no test can pass because a lease ended.
const LEASE: Duration = Duration::from_secs(60);
/// A handshake takes much of the processor, which others use as well.
const IO_TIMEOUT: Duration = ms(3000);
/// A generous bound for "within the I/O timeout" on a busy machine.
const SOON: Duration = Duration::from_secs(12);

fn trusting(certificates: &Certificates) -> Tls {
    Tls::new().ca_file(certificates.ca_file())
}

fn settings(url: &str, tls: Tls) -> Builder {
    LockClient::builder().url(url).tls(tls).lease(LEASE).io_timeout(IO_TIMEOUT)
}

fn client(server: &Server, tls: Tls) -> LockClient {
    settings(&server.url(), tls).build().unwrap()
}

/// Creating a client fails soon, with this kind of error. The message contains each of `says`.
#[track_caller]
fn refused(kind: ErrorKind, says: &[&str], builder: Builder) -> Error {
    let start = Instant::now();
    let error = builder.build().unwrap_err();
    assert!(start.elapsed() < SOON, "it took {:?}: {error:?}", start.elapsed());
    assert_eq!(error.kind(), kind, "{error:?}");
    for says in says {
        assert!(error.to_string().contains(says), "{error} does not say {says:?}");
    }
    let mut all = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(e) = cause {
        all += &format!(" {e} {e:?}");
        cause = e.source();
    }
    assert!(!all.contains("PRIVATE KEY"), "{all}");
    error
}

#[track_caller]
fn works(client: &LockClient) {
    let guard = client.try_lock("job").unwrap().expect("no other client has it");
    assert!(guard.is_held());
    guard.unlock().unwrap();
}

fn text(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}
