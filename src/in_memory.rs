//! Clients whose locks live in this process.

use std::sync::Arc;

use crate::base::error::{Result, invalid};
use crate::builder::Builder;
use crate::client::LockClient;
#[cfg(feature = "testing")]
use crate::store::memory::ClientInTest;
use crate::store::memory::{Memory, MemoryStore};
#[cfg(feature = "testing")]
use crate::wait::client_state::ClientState;

impl LockClient {
    /// A client whose locks live in this process: no server, and nothing to install. For the tests
    /// of your own code, and for programs that need the locks of this crate without sharing them
    /// with other processes.
    ///
    /// All primitives are available, with the same guards, errors and fencing tokens. Leases end,
    /// and are renewed by the same thread, as with a server. All locks end with the last of their
    /// clients, and nothing is written anywhere. The settings are the default ones;
    /// [`Builder::build_in_memory`] takes others.
    ///
    /// A clone is the same client. For a test of two services, make the second client with
    /// [`in_memory_shared`](Self::in_memory_shared). With the cargo feature `testing`, a test can
    /// move the clock, lose a lock, and let requests fail: see the module `testing`.
    ///
    /// # Examples
    /// ```
    /// use leasehold::LockClient;
    ///
    /// let client = LockClient::in_memory();
    /// let guard = client.lock("job")?;
    /// assert!(guard.is_held() && guard.fencing_token().is_ok());
    /// guard.unlock()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn in_memory() -> Self {
        Self::builder().build_in_memory().expect("the default settings fit together")
    }

    /// Another client, with an id of its own, that shares the locks of `client`, as two processes
    /// share those of one server.
    ///
    /// The settings are the default ones; [`Builder::build_in_memory_shared`] takes others.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput): `client` is not in memory.
    ///
    /// # Examples
    /// ```
    /// use leasehold::LockClient;
    ///
    /// let one = LockClient::in_memory();
    /// let other = LockClient::in_memory_shared(&one)?;
    /// let guard = one.lock("job")?;
    /// assert!(other.try_lock("job")?.is_none());
    /// drop(guard);
    /// assert!(other.try_lock("job")?.is_some());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn in_memory_shared(client: &Self) -> Result<Self> {
        Self::builder().build_in_memory_shared(client)
    }
}

impl Builder {
    /// [`LockClient::in_memory`] with these settings.
    ///
    /// Settings that only concern connections, or Java, have no effect.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for settings that contradict each other,
    /// and for those of servers, such as [`url`](Self::url).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let lease = Duration::from_secs(5);
    /// let builder = leasehold::LockClient::builder().lease(lease).key_prefix("billing:");
    /// let client = builder.clone().build_in_memory()?;
    /// let other = builder.build_in_memory_shared(&client)?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn build_in_memory(self) -> Result<LockClient> {
        build(self, &Arc::new(Memory::new()))
    }

    /// [`LockClient::in_memory_shared`] with these settings.
    ///
    /// # Errors
    /// Like [`build_in_memory`](Self::build_in_memory);
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if `client` is not in memory.
    pub fn build_in_memory_shared(self, client: &LockClient) -> Result<LockClient> {
        build(self, memory_of(client)?)
    }
}

pub(crate) fn memory_of(client: &LockClient) -> Result<&Arc<Memory>> {
    MemoryStore::memory_of(&*client.state().store).ok_or_else(|| {
        let why = "this client is not in memory: make it with in_memory, or build_in_memory";
        invalid(why)
    })
}

#[cfg(feature = "testing")]
impl ClientInTest for ClientState {
    fn recheck(&self) {
        self.recheck();
    }

    fn is_settled(&self) -> bool {
        self.is_settled()
    }
}

fn build(builder: Builder, memory: &Arc<Memory>) -> Result<LockClient> {
    let client = builder.build_on(memory)?;
    #[cfg(feature = "testing")]
    {
        let state = Arc::downgrade(client.state());
        memory.add_client(state);
    }
    Ok(client)
}
