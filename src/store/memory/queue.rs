//! The queue of a fair lock.

use std::collections::VecDeque;
use std::time::Duration;

use crate::base::holder::Holder;
use crate::base::lease::Moment;

/// How long a queue of dead waiters is kept for those who only stood still.
const KEPT: Duration = Duration::from_secs(300);

/// First come first; a place is kept until its deadline, and each try of its waiter moves that.
#[derive(Debug, Default)]
pub(super) struct Queue(pub(super) VecDeque<Place>);

#[derive(Debug)]
pub(super) struct Place {
    pub(super) holder: Holder,
    pub(super) deadline: Moment,
}

impl Queue {
    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.0.iter().all(|place| place.deadline.plus(KEPT) <= now)
    }

    #[cfg(feature = "testing")]
    pub(super) fn postpone(&mut self, by: Duration) {
        self.0.iter_mut().for_each(|place| place.deadline = place.deadline.plus(by));
    }

    pub(super) fn head(&self) -> Option<&Place> {
        self.0.front()
    }

    pub(super) fn place_of(&self, holder: &Holder) -> Option<usize> {
        self.0.iter().position(|place| place.holder == *holder)
    }

    /// Removes the dead in front. Whoever asks is alive. True: there were some.
    pub(super) fn sweep(&mut self, asker: Option<&Holder>, now: Moment) -> bool {
        let mut swept = false;
        while let Some(first) = self.head()
            && first.deadline <= now
            && asker != Some(&first.holder)
        {
            // Where time has passed for one who lives, or for everybody, nobody could keep a place:
            // all of them have one try before they count as dead, or they would line up anew in the
            // order in which they wake up.
            let stood_still = match asker {
                Some(asker) => self.place_of(asker).is_some_and(|at| self.0[at].deadline <= now),
                None => self.0.iter().all(|place| place.deadline <= now),
            };
            if stood_still {
                break;
            }
            self.0.pop_front();
            swept = true;
        }
        swept
    }

    /// Gives a waiter a place, or keeps the one it has. `is_first`: it goes in front of all but
    /// those of its client that came before it.
    pub(super) fn line_up(&mut self, holder: &Holder, deadline: Moment, is_first: bool) {
        match self.place_of(holder) {
            Some(at) => self.0[at].deadline = deadline,
            None => {
                let behind = |place: &Place| !is_before(&place.holder, holder);
                let at = if is_first { self.0.iter().position(behind) } else { None };
                self.0.insert(at.unwrap_or(self.0.len()), Place { holder: holder.clone(), deadline });
            }
        }
    }

    pub(super) fn leave(&mut self, holder: &Holder) -> Option<usize> {
        let at = self.place_of(holder)?;
        self.0.remove(at);
        Some(at)
    }
}

/// Whether both wait for one client, and the first for longer: the holders of a client are
/// numbered.
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
