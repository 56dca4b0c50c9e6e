//! The marks of changes of counts that nobody needs any more.

use parking_lot::Mutex;

/// A mark lets a change of a count be repeated. When its answer has come the change is not
/// repeated, and the next request about a count takes the mark along to its removal. Otherwise each
/// permit that was ever taken would leave a row for a sweep.
#[derive(Debug, Default)]
pub(super) struct UsedMarks(Mutex<Vec<String>>);

/// Beyond these, and when the request that takes them along fails, marks stay until a sweep removes
/// them.
const MOST: usize = 256;

impl UsedMarks {
    /// No request with this id is under way, and none will be sent.
    pub(super) fn add(&self, id: &str) {
        let mut ids = self.0.lock();
        if ids.len() < MOST {
            ids.push(id.to_owned());
        }
    }

    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}
