//! The connections of each process, through its own proxies in front of the servers.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

use crate::fault::Fault;
use crate::rig::{Fault as OfProxy, Proxy, ms};

pub(crate) struct Lines {
    /// Indexed by process.
    slots: Vec<Vec<Arc<Proxy>>>,
    /// Parts of requests; a fault affects a request that contains one of them.
    words: &'static [&'static str],
    /// The same for messages that answer no request, where a proxy can identify them.
    messages: &'static [&'static str],
    /// Frames that answer no request.
    frames: &'static [&'static [u8]],
    /// Whether an answer may come twice. Only where the client can see that the second one is none
    /// of the next request's.
    repeats: bool,
    /// The server that always answers late, and how late it does for each process in turn.
    late: Option<(usize, [Duration; 3])>,
}

/// The faults that affect the connections of every deployment.
pub(crate) const OF_CONNECTIONS: [Fault; 10] = [
    Fault::Cut,
    Fault::HalfOpen,
    Fault::HalfOpenSubscribers,
    Fault::Refuse,
    Fault::Delay,
    Fault::LoseReply,
    Fault::TruncateRequest,
    Fault::TruncateReply,
    Fault::DuplicateFrame,
    Fault::ForeignFrame,
];

impl Lines {
    pub(crate) fn new(words: &'static [&'static str], frames: &'static [&'static [u8]]) -> Self {
        Self { slots: Vec::new(), words, messages: &[], frames, repeats: false, late: None }
    }

    pub(crate) fn with_repeats(self) -> Self {
        Self { repeats: true, ..self }
    }

    pub(crate) fn with_a_late_one(self, place: usize, by: [Duration; 3]) -> Self {
        Self { late: Some((place, by)), ..self }
    }

    pub(crate) fn with_messages(self, messages: &'static [&'static str]) -> Self {
        Self { messages, ..self }
    }

    /// Adds the proxies of the next process.
    pub(crate) fn add(&mut self, proxies: Vec<Arc<Proxy>>) {
        self.slots.push(proxies);
        self.be_late(self.slots.len() - 1);
    }

    /// The same, of one process only. Those of every second process hide the end of a connection
    /// until its next request, as a router may do.
    pub(crate) fn add_own(&mut self, proxies: impl IntoIterator<Item = Proxy>) {
        let hide = self.slots.len() % 2 == 1;
        let own = |proxy: Proxy| {
            proxy.hide_ends(hide);
            Arc::new(proxy)
        };
        self.add(proxies.into_iter().map(own).collect());
    }

    fn be_late(&self, slot: usize) {
        let Some((place, by)) = self.late else { return };
        self.slots[slot][place].inject_times(
            "EVALSHA",
            u32::MAX,
            OfProxy::StallReply(by[slot % by.len()]),
        );
    }

    pub(crate) fn of(&self, slot: usize) -> &[Arc<Proxy>] {
        &self.slots[slot]
    }

    /// Whether this is a fault of connections, which has then begun.
    pub(crate) fn begin(&self, fault: Fault, slot: usize, rng: &mut StdRng) -> bool {
        let proxies = &self.slots[slot];
        let each = |act: &dyn Fn(&Proxy)| proxies.iter().for_each(|proxy| act(proxy));
        let of_reply = match fault {
            Fault::Cut => {
                each(&Proxy::cut_all);
                return true;
            }
            Fault::HalfOpen => {
                each(&|proxy| proxy.silence(true));
                return true;
            }
            Fault::HalfOpenSubscribers => {
                each(&Proxy::leave_subscribers_half_open);
                return true;
            }
            Fault::Refuse => {
                each(&|proxy| proxy.refuse(true));
                each(&Proxy::cut_all);
                return true;
            }
            Fault::Delay => OfProxy::StallReply(ms(rng.random_range(20..400))),
            Fault::LoseReply if rng.random() => OfProxy::BlackHoleReply,
            Fault::LoseReply => OfProxy::CutAfterApplied,
            Fault::TruncateRequest => OfProxy::CutRequestAt(rng.random_range(0..120)),
            Fault::TruncateReply => OfProxy::CutReplyAt(rng.random_range(0..30)),
            Fault::DuplicateFrame if self.repeats && rng.random() => {
                OfProxy::ReplyAgain(if rng.random() { usize::MAX } else { rng.random_range(1..30) })
            }
            Fault::DuplicateFrame => {
                let frame = self.frames[rng.random_range(0..self.frames.len())];
                if rng.random() { OfProxy::Stray(frame) } else { OfProxy::StrayAfter(frame, ms(1)) }
            }
            Fault::ForeignFrame => OfProxy::Garbage,
            _ => return false,
        };
        let of_request = matches!(of_reply, OfProxy::CutRequestAt(_) | OfProxy::Garbage);
        let words = [self.words, if of_request { &[] } else { self.messages }].concat();
        for proxy in proxies {
            let word = words[rng.random_range(0..words.len())];
            let times = if fault == Fault::Delay { 20 } else { rng.random_range(1..3) };
            proxy.inject_times(word, times, of_reply);
        }
        true
    }

    pub(crate) fn end(&self, slot: usize) {
        for proxy in &self.slots[slot] {
            proxy.silence(false);
            proxy.refuse(false);
            proxy.disarm();
        }
        self.be_late(slot);
    }
}
