//! Events and the summary as JSON. Times are in milliseconds; what is not known, or does not belong
//! to an event, is `null`.

use leasehold::observe::HolderOwner;
use serde::Serialize;

use super::standing::Holder;
use super::summary::{Share, Summary};
use super::timeline::{Event, What};
use crate::output::millis;

#[derive(Serialize)]
pub(super) struct EventView {
    at_ms: u64,
    event: &'static str,
    holder: Option<WhoView>,
    /// Who had it before.
    from: Option<WhoView>,
    token: Option<u64>,
    held_for_ms: Option<u64>,
    /// How many hold it now.
    holders: usize,
    waiting: Option<u64>,
    number: Option<i64>,
    unknown_ms: Option<u64>,
    error: Option<String>,
}

#[derive(Serialize)]
struct WhoView {
    id: String,
    owner: Option<HolderOwner>,
}

impl From<&Holder> for WhoView {
    fn from(holder: &Holder) -> Self {
        Self { id: holder.id.clone(), owner: holder.owner.clone() }
    }
}

impl From<&Event> for EventView {
    fn from(event: &Event) -> Self {
        let mut view = Self {
            at_ms: millis(event.at),
            event: "",
            holder: None,
            from: None,
            token: None,
            held_for_ms: None,
            holders: event.holders,
            waiting: None,
            number: None,
            unknown_ms: None,
            error: None,
        };
        view.fill(&event.what);
        view
    }
}

impl EventView {
    fn fill(&mut self, what: &What) {
        let who = |holder: &Holder| Some(WhoView::from(holder));
        self.event = match what {
            What::Held { by } => {
                self.holder = who(by);
                self.held_for_ms = by.held_for.map(millis);
                "held"
            }
            What::Taken { by, token } => {
                self.holder = who(by);
                self.token = *token;
                "taken"
            }
            What::TakenAgain { by, token } => {
                self.holder = who(by);
                self.token = *token;
                "taken_again"
            }
            What::HandedOver { from, to, after, token } => {
                self.holder = who(to);
                self.from = who(from);
                self.held_for_ms = Some(millis(*after));
                self.token = *token;
                "handed_over"
            }
            What::Left { who: holder, after } => {
                self.from = who(holder);
                self.held_for_ms = Some(millis(*after));
                "left"
            }
            What::Free { holder, after } => {
                (self.from, self.held_for_ms) =
                    (holder.as_ref().map(WhoView::from), after.map(millis));
                "free"
            }
            What::Named { holder } => {
                self.holder = who(holder);
                "named"
            }
            What::Waiting(waiting) => {
                self.waiting = Some(*waiting);
                "waiting"
            }
            What::Number(number) => {
                self.number = Some(*number);
                "number"
            }
            What::CutOff { why } => {
                self.error = Some(why.clone());
                "cut_off"
            }
            What::Back { after } => {
                self.unknown_ms = Some(millis(*after));
                "back"
            }
        };
    }
}

#[derive(Serialize)]
pub(super) struct SummaryView {
    event: &'static str,
    watched_ms: u64,
    free_ms: u64,
    unknown_ms: u64,
    holders: Vec<ShareView>,
}

#[derive(Serialize)]
struct ShareView {
    client: String,
    owner: Option<HolderOwner>,
    held_ms: u64,
    times: u64,
    share: f64,
}

impl From<&Summary> for SummaryView {
    fn from(summary: &Summary) -> Self {
        let view = |share: &Share| ShareView {
            client: share.client.clone(),
            owner: share.owner.clone(),
            held_ms: millis(share.held),
            times: share.times,
            share: (share.part * 1e4).round() / 1e4,
        };
        Self {
            event: "summary",
            watched_ms: millis(summary.watched),
            free_ms: millis(summary.free),
            unknown_ms: millis(summary.unknown),
            holders: summary.clients.iter().map(view).collect(),
        }
    }
}
