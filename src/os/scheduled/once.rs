//! A cell that is written once. The one of the standard library would block the system's thread
//! while another coroutine makes the value and waits.

use std::sync::OnceLock as Cell;

use crate::os::mutex::Mutex;

#[derive(Debug)]
pub(crate) struct OnceLock<T> {
    value: Cell<T>,
    making: Mutex<()>,
}

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> Self {
        Self { value: Cell::new(), making: Mutex::new(()) }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        super::thread::step();
        self.value.get()
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        super::thread::step();
        self.value.set(value)
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let _making = self.making.lock();
        if self.value.get().is_none() {
            let _ = self.value.set(make());
        }
        self.value.get().expect("it was set")
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}
