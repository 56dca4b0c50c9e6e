//! What may have run without a reply: opaque to everybody but the store that wrote it.

use std::any::Any;
use std::sync::Arc;

/// The requests of one call that may have run, or may still run, because no reply came. Only the
/// store that wrote this value can read it. Empty: the outcome of every request is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnknownOutcomes(Option<Arc<dyn Any + Send + Sync>>);

impl UnknownOutcomes {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    pub(crate) fn set<T: Any + Send + Sync>(&mut self, unknown: T) {
        self.0 = Some(Arc::new(unknown));
    }

    pub(crate) fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }
}
