//! Values that refuse stale holders.

use std::sync::Arc;

use super::entry::{Entry, Value};
use super::state::MemoryState;
use crate::base::error::Result;
use crate::base::lease::Moment;
use crate::store::FenceAnswer;

impl MemoryState {
    pub(super) fn claim(&mut self, key: &Arc<str>, token: u64, now: Moment) -> Result<FenceAnswer> {
        match self.typed(key, now, Entry::value)? {
            Some(value) if value.token > token => Ok(FenceAnswer::Refused { standing: Some(value.token) }),
            Some(value) => {
                value.token = token;
                Ok(FenceAnswer::Accepted(value.bytes.clone()))
            }
            None => {
                self.insert(key, Entry::Value(Value { token, bytes: None }), now);
                Ok(FenceAnswer::Accepted(None))
            }
        }
    }

    pub(super) fn write(&mut self, key: &str, token: u64, bytes: &[u8], now: Moment) -> Result<FenceAnswer> {
        match self.typed(key, now, Entry::value)? {
            Some(value) if value.token == token => {
                value.bytes = Some(bytes.to_vec());
                Ok(FenceAnswer::Accepted(None))
            }
            standing => Ok(FenceAnswer::Refused { standing: standing.map(|value| value.token) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::tests::Bench;

    #[test]
    fn the_newest_claim_writes() {
        let mut bench = Bench::new();
        let (key, now) = (Arc::from("v"), bench.now());
        let state = &mut bench.state;
        assert_eq!(state.write("v", 5, b"x", now).unwrap(), FenceAnswer::Refused { standing: None });
        assert_eq!(state.claim(&key, 5, now).unwrap(), FenceAnswer::Accepted(None));
        assert_eq!(state.write("v", 5, b"x", now).unwrap(), FenceAnswer::Accepted(None));
        assert_eq!(state.claim(&key, 6, now).unwrap(), FenceAnswer::Accepted(Some(b"x".to_vec())));
        for stale in [state.claim(&key, 5, now), state.write("v", 5, b"y", now)] {
            assert_eq!(stale.unwrap(), FenceAnswer::Refused { standing: Some(6) });
        }
    }
}
