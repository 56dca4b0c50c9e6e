//! Data beside the holds of mutexes and fair locks.

use super::entry::{Entry, Written};
use super::state::MemoryState;
use crate::base::data::HoldData;
use crate::base::holder::Holder;
use crate::base::lease::Moment;
use crate::base::lock_name::LockName;
use crate::store::{Acquire, Acquired, HoldCounts, LastHold, Release, Released, Renewal, Renewed};

impl MemoryState {
    /// Called after every request that grants, with its answer.
    pub(super) fn data_granted(&mut self, acquire: &Acquire<'_>, acquired: &Acquired, now: Moment) {
        let Acquire { name, holder, held, .. } = *acquire;
        let (Some(data), Acquired::Granted(granted)) = (holder.data(), acquired) else { return };
        let Some(until) = self.lock_until(name, holder, now) else { return };
        match self.data.get_mut(&name.key) {
            // A repeat, or one more level: the data may have been replaced since the grant.
            Some(written) if written.holder == holder.as_str() => written.until = until,
            _ if held > 0 => {}
            _ => {
                self.data.retain(|_, written| !written.is_forgotten(now));
                let holder = holder.as_str().to_owned();
                let data = data.clone();
                let token = granted.token;
                let written = Written { holder, number: 0, data, token, asked: 0, until };
                self.data.insert(name.key.clone(), written);
            }
        }
    }

    /// Called after every release, with its answer.
    pub(super) fn data_released(
        &mut self,
        release: &Release<'_>,
        released: &Released,
        now: Moment,
    ) {
        let Release { name, holder, left, granted, .. } = *release;
        let has_ended = left == HoldCounts::NONE && *released != Released::NotHeld;
        if holder.data().is_none() || !has_ended {
            return;
        }
        match self.data.get_mut(&name.key) {
            Some(written) if written.holder != holder.as_str() => {}
            Some(written) if granted => written.until = now,
            // An attempt that is undone was nobody's hold.
            _ => drop(self.data.remove(&name.key)),
        }
    }

    /// Called after every renewal, with its answer.
    pub(super) fn data_renewed(&mut self, renewal: &Renewal, renewed: &mut Renewed, now: Moment) {
        let Renewal { name, holder, .. } = renewal;
        let Renewed::Held { asked, .. } = renewed else { return };
        if holder.data().is_none() {
            return;
        }
        let until = self.lock_until(name, holder, now);
        if let (Some(until), Some(written)) = (until, self.data.get_mut(&name.key))
            && written.holder == holder.as_str()
        {
            written.until = until;
            *asked = written.asked;
        }
    }

    /// False: nobody with data has the lock.
    pub(super) fn ask_for(&mut self, name: &LockName, now: Moment) -> bool {
        let holder = match self.entry(&name.key, now) {
            Some(Entry::Lock(current)) => current.holder.as_str().to_owned(),
            _ => return false,
        };
        match self.data.get_mut(&name.key).filter(|written| written.holder == holder) {
            Some(written) => written.asked += 1,
            None => return false,
        }
        true
    }

    /// What this holder of the lock has written.
    pub(super) fn written_by(&self, key: &str, holder: &str) -> Option<&Written> {
        self.data.get(key).filter(|written| written.holder == holder)
    }

    /// The data of this holder of the lock.
    pub(super) fn data_of(&self, key: &str, holder: &str) -> Option<HoldData> {
        self.written_by(key, holder).map(|written| written.data.clone())
    }

    pub(super) fn set_data(
        &mut self,
        name: &LockName,
        holder: &Holder,
        number: u64,
        data: &HoldData,
        now: Moment,
    ) -> bool {
        let Some(until) = self.lock_until(name, holder, now) else { return false };
        let is_late =
            |written: &Written| written.holder == holder.as_str() && written.number >= number;
        if !self.data.get(&name.key).is_some_and(is_late) {
            let holder = holder.as_str().to_owned();
            let before = self.data.get(&name.key).filter(|written| written.holder == holder);
            let (token, asked) = before.map_or((0, 0), |written| (written.token, written.asked));
            let written = Written { holder, number, data: data.clone(), token, asked, until };
            self.data.insert(name.key.clone(), written);
        }
        true
    }

    pub(super) fn last_hold(&mut self, name: &LockName, now: Moment) -> Option<LastHold> {
        let has_lock = match self.entry(&name.key, now) {
            Some(Entry::Lock(current)) => Some(current.holder.as_str().to_owned()),
            _ => None,
        };
        let written = self.data.get(&name.key).filter(|written| !written.is_forgotten(now))?;
        let has_it = has_lock.as_deref() == Some(&*written.holder);
        Some(LastHold {
            holder: written.holder.clone(),
            data: written.data.clone(),
            ended: (!has_it).then(|| now.since(written.until)),
        })
    }

    /// When the lease of this holder of the lock ends, if it has the lock.
    fn lock_until(&mut self, name: &LockName, holder: &Holder, now: Moment) -> Option<Moment> {
        match self.entry(&name.key, now) {
            Some(Entry::Lock(current)) if current.holder == *holder => Some(current.until),
            _ => None,
        }
    }
}
