//! The list of those that are told of a tenure.

use std::sync::{Arc, Weak};

use crate::base::event::Event;
use crate::lease::callbacks::{CallbackPlace, OnTrouble};

#[derive(Default)]
pub(super) struct Listeners {
    /// The callbacks of all guards; those of dropped guards can no longer be upgraded.
    pub(super) callbacks: Vec<Weak<CallbackPlace>>,
    /// The thread that keeps deadlines watches the tenure.
    pub(super) is_watched: bool,
    /// Who is called when renewal begins to fail; those of guards that are gone lead nowhere.
    pub(super) on_trouble: Vec<Weak<OnTrouble>>,
    /// Events of threads that wait until any of several holds has ended.
    pub(super) events: Vec<Arc<Event>>,
}
