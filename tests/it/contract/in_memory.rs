//! The contract in memory, where a test needs no server, network or process of its own.

use leasehold::{Builder, LockClient};

#[cfg(feature = "testing")]
use leasehold::testing::Faults;

pub(super) struct Memory {
    first: LockClient,
    #[cfg(feature = "testing")]
    faults: Faults,
}

impl Memory {
    pub(super) fn new() -> Self {
        let first = LockClient::in_memory();
        #[cfg(feature = "testing")]
        let faults = Faults::of(&first).unwrap();
        Self {
            first,
            #[cfg(feature = "testing")]
            faults,
        }
    }

    pub(super) fn client(&self, builder: Builder) -> LockClient {
        builder.build_in_memory_shared(&self.first).unwrap()
    }
}

#[cfg(feature = "testing")]
impl Memory {
    pub(super) fn held(&self) -> Vec<String> {
        self.faults.held()
    }

    pub(super) fn lose_all(&self) {
        for name in &self.faults.held() {
            assert!(self.faults.lose(name));
        }
    }

    pub(super) fn is_waited_for(&self, name: &str) -> bool {
        self.faults.listeners(name) > 0
    }
}

/// Without the feature no point runs in memory.
#[cfg(not(feature = "testing"))]
impl Memory {
    pub(super) fn held(&self) -> Vec<String> {
        unreachable!()
    }

    pub(super) fn lose_all(&self) {
        unreachable!()
    }

    pub(super) fn is_waited_for(&self, _name: &str) -> bool {
        unreachable!()
    }
}
