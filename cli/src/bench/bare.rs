//! What leasehold is compared with: two bare scripts over one connection.

use std::time::Duration;

use redis::{
    Connection, ConnectionLike, IntoConnectionInfo, RedisError, RedisResult, Script, Value,
};

use crate::failure::{Failure, status};
use crate::store::StoreArgs;

const ACQUIRE: &str = include_str!("bare_acquire.lua");
const RELEASE: &str = include_str!("bare_release.lua");
const LEASE_MILLIS: u32 = 30_000;
const IO_TIMEOUT: Duration = Duration::from_secs(2);

/// One connection, and both requests as they are sent each time.
pub(super) struct Bare {
    connection: Connection,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

impl Bare {
    /// The error says why there is nothing to compare with.
    pub(super) fn connect(store: &StoreArgs, urls: &[String], name: &str) -> Result<Self, String> {
        let [url] = urls else {
            return Err("bare scripts need a single server, and the store has several".into());
        };
        let scheme = url
            .split_once("://")
            .map(|(scheme, _)| scheme.to_ascii_lowercase())
            .unwrap_or_default();
        if store.is_redlock() || !["redis", "redis+unix"].contains(&&*scheme) {
            return Err("bare scripts need a single server at redis:// or redis+unix://".into());
        }
        let mut info = url.as_str().into_connection_info().map_err(failed)?;
        let mut settings = info.redis_settings().clone().set_skip_set_lib_name();
        if let Some(file) = store.password_file() {
            let password = std::fs::read_to_string(file)
                .map_err(|e| format!("cannot read the password file: {e}"))?;
            settings = settings.set_password(password.trim_end_matches(['\r', '\n']));
        }
        info = info.set_redis_settings(settings);
        let client = redis::Client::open(info).map_err(failed)?;
        let mut connection = client.get_connection_with_timeout(IO_TIMEOUT).map_err(failed)?;
        let limits = |connection: &Connection| -> RedisResult<()> {
            connection.set_read_timeout(Some(IO_TIMEOUT))?;
            connection.set_write_timeout(Some(IO_TIMEOUT))
        };
        limits(&connection).map_err(failed)?;
        let key = format!("{}{name}", store.key_prefix());
        let mut load = |source| Script::new(source).load(&mut connection).map_err(failed);
        let owner = format!("{:032x}", rand::random::<u128>());
        let acquire = load(ACQUIRE)?;
        let release = load(RELEASE)?;
        let request =
            |hash: &str| redis::cmd("EVALSHA").arg(hash).arg(1).arg(&key).arg(&owner).clone();
        let acquire = request(&acquire).arg(LEASE_MILLIS).get_packed_command();
        Ok(Self { connection, acquire, release: request(&release).get_packed_command() })
    }

    /// Takes the lock and frees it.
    pub(super) fn cycle(&mut self) -> Result<(), Failure> {
        for request in [&self.acquire, &self.release] {
            let reply = self.connection.req_packed_command(request).map_err(broken)?;
            if reply != Value::Int(1) {
                return Err(Failure::new(
                    status::PROTOCOL,
                    format!("a bare script answered {reply:?} instead of 1"),
                ));
            }
        }
        Ok(())
    }
}

#[cold]
fn failed(e: RedisError) -> String {
    format!("cannot send the bare scripts: {e}")
}

#[cold]
fn broken(e: RedisError) -> Failure {
    Failure::new(status::UNAVAILABLE, failed(e))
}
