//! The queue of a fair lock.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::holder::Holder;
use crate::base::lease::Moment;

/// How long a queue of expired places is kept for waiters that were only suspended.
const KEPT: Duration = Duration::from_secs(300);

/// First come, first served. A place is kept until its deadline, which each attempt of its waiter
/// extends.
#[derive(Debug, Default)]
pub(super) struct Queue(pub(super) VecDeque<FairPlace>);

#[derive(Debug)]
pub(super) struct FairPlace {
    pub(super) holder: Holder,
    pub(super) deadline: Moment,
    /// How long each attempt keeps it.
    pub(super) lasts: Duration,
}

impl Queue {
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.0.iter().all(|place| place.deadline.plus(KEPT) <= now)
    }

    #[cfg(feature = "testing")]
    pub(super) fn postpone(&mut self, by: Duration) {
        for place in &mut self.0 {
            place.deadline = place.deadline.plus(by);
        }
    }

    pub(super) fn head(&self) -> Option<&FairPlace> {
        self.0.front()
    }

    pub(super) fn place_of(&self, holder: &Holder) -> Option<usize> {
        self.0.iter().position(|place| place.holder == *holder)
    }

    /// Removes expired places at the front, except that of `asker`, which is alive. True if there
    /// were some.
    pub(super) fn sweep(&mut self, asker: Option<&Holder>, now: Moment) -> bool {
        let mut swept = false;
        while let Some(first) = self.head()
            && first.deadline <= now
            && asker != Some(&first.holder)
        {
            // If the place of the live asker has expired, or all places have, then nobody could
            // renew a place: the process or the machine was suspended. Each waiter then gets one
            // attempt before its place expires. Otherwise the waiters would be enqueued again in
            // the order in which they wake up.
            let was_suspended = match asker {
                Some(asker) => self.place_of(asker).is_some_and(|at| self.0[at].deadline <= now),
                None => self.0.iter().all(|place| place.deadline <= now),
            };
            if was_suspended {
                break;
            }
            self.0.pop_front();
            swept = true;
        }
        swept
    }

    /// Gives a waiter a place, or extends the one that it has. `is_first`: in front of all others
    /// except older waiters of the same client.
    pub(super) fn enqueue(
        &mut self,
        holder: &Holder,
        (now, lasts): (Moment, Duration),
        is_first: bool,
    ) {
        let deadline = now.plus(lasts);
        match self.place_of(holder) {
            Some(at) => self.0[at].deadline = deadline,
            None => {
                let behind = |place: &FairPlace| !is_before(&place.holder, holder);
                let at = if is_first { self.0.iter().position(behind) } else { None };
                let place = FairPlace { holder: holder.clone(), deadline, lasts };
                self.0.insert(at.unwrap_or(self.0.len()), place);
            }
        }
    }

    pub(super) fn leave(&mut self, holder: &Holder) -> Option<usize> {
        let at = self.place_of(holder)?;
        self.0.remove(at);
        Some(at)
    }
}

/// Whether both belong to one client, and the first is older: the holders of a client are numbered.
pub(super) fn is_before(waiter: &Holder, holder: &Holder) -> bool {
    let parts = |holder: &Holder| {
        let (client, number) = holder.as_str().rsplit_once(':')?;
        Some((client.to_owned(), number.parse::<u64>().ok()?))
    };
    match (parts(waiter), parts(holder)) {
        (Some((one, before)), Some((other, number))) => one == other && before < number,
        _ => false,
    }
}
