//! A rate limiter: what was taken within the last interval.

use std::collections::VecDeque;

use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::os::HashMap;
use crate::store::{Acquired, Granted, Rate};

#[derive(Debug)]
pub(super) struct Limiter {
    rate: Rate,
    /// In the order in which they were taken. One that was undone is missing from `taken`.
    order: VecDeque<Holder>,
    /// The permits of each acquisition, and when they come back.
    taken: HashMap<Holder, (u64, Moment)>,
    free: u64,
}

impl Limiter {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, order: VecDeque::new(), taken: HashMap::default(), free: rate.permits }
    }

    /// False if the holder has taken nothing.
    pub(super) fn give_back(&mut self, holder: &Holder) -> bool {
        let permits = self.taken.remove(holder).map(|(permits, _)| permits);
        self.free += permits.unwrap_or(0);
        permits.is_some()
    }

    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    pub(super) fn free_at(&mut self, now: Moment) -> u64 {
        self.sweep(now);
        self.free
    }

    fn sweep(&mut self, now: Moment) {
        while let Some(first) = self.order.front().cloned()
            && self.taken.get(&first).is_none_or(|(_, until)| *until <= now)
        {
            self.give_back(&first);
            self.order.pop_front();
        }
    }

    /// When enough of what was taken is back.
    fn until(&self, wanted: u64) -> Option<Moment> {
        let mut missing = wanted.saturating_sub(self.free);
        let mut taken = self.order.iter().filter_map(|holder| self.taken.get(holder));
        taken.find_map(|(permits, until)| {
            missing = missing.saturating_sub(*permits);
            (missing == 0).then_some(*until)
        })
    }

    pub(super) fn acquire(&mut self, holder: &Holder, wanted: u64, now: Moment) -> Acquired {
        self.sweep(now);
        let until = now.plus(self.rate.per);
        if self.taken.contains_key(holder) {
            // The interval begins anew, as in Redis.
            self.taken.insert(holder.clone(), (wanted, until));
            self.order.retain(|other| other != holder);
        } else if wanted > self.rate.permits {
            return Acquired::TooFew { permits: self.rate.permits };
        } else if wanted > self.free {
            return Acquired::Busy { ttl: self.until(wanted).map(|until| until.since(now)) };
        } else {
            self.free -= wanted;
            self.taken.insert(holder.clone(), (wanted, until));
        }
        self.order.push_back(holder.clone());
        Acquired::Granted(Granted { token: 0, sent_at: now, session: None, next: None })
    }
}
