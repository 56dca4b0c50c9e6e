//! The list of those that are told of a tenure.

use std::sync::{Arc, Weak};

use crate::base::event::Event;
use crate::lease::callbacks::{CallbackPlace, OnTrouble};

#[derive(Default)]
pub(super) struct Listeners {
    /// Of all guards; those of guards that are gone lead nowhere.
    pub(super) callbacks: Vec<Weak<CallbackPlace>>,
    /// The thread that keeps deadlines watches the tenure.
    pub(super) is_watched: bool,
    /// Who is called when renewal begins to fail; those of guards that are gone lead nowhere.
    pub(super) on_trouble: Vec<Weak<OnTrouble>>,
    /// Of threads that wait for the end of any of several.
    pub(super) events: Vec<Arc<Event>>,
}
