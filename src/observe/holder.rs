//! Who holds a lock, for people.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::stats::shortened;
use crate::base::data::HoldData;
use crate::base::error::Result;
use crate::base::holder::{CLIENT_LENGTH, Holder, client_and_number, is_foreign, is_kept};
use crate::base::lock_name::LockName;
use crate::base::log;
use crate::lease::records::StoreHold;
use crate::os::HashMap;
use crate::report::owner::{Announcement, HolderOwner};
use crate::store::{Announced, FoundHolder, LockStatus, OwnerStore};
use crate::wait::client_state::ClientState;

/// Maximum number of other clients that are queried for their owner: each costs a request.
const MOST_LOOKUPS: usize = 16;

/// A holder of a lock, as the server reports it.
///
/// `Display` writes it for a log: `held by billing-7 (pid 4711 on host-a) for 12 s, its lease ends
/// in 21 s`. What is not known is left out; a holder whose owner is not known is named by its id.
///
/// [As JSON](crate::observe#as-json) it is an object with `id`, `hold_count`, `remaining_ms`,
/// `held_for_ms`, `lease_ms`, `announced_ago_ms`, `owner`, `foreign`, `kept`, `this_client` and
/// `data`: a string, in which `\u{fffd}` replaces what is not UTF-8.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// let client = leasehold::LockClient::in_memory();
/// let _guard = client.mutex("report").lock_owned()?;
/// let mutex = client.mutex("report");
/// match mutex.try_lock_for(Duration::from_millis(10))? {
///     Some(guard) => guard.ensure_held()?,
///     None => match mutex.holder()? {
///         Some(holder) => eprintln!("no report: {holder}"),
///         None => eprintln!("no report: the lock has just come free"),
///     },
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    pub(super) id: String,
    pub(super) hold_count: u32,
    pub(super) remaining: Option<Duration>,
    pub(super) is_this_client: bool,
    pub(super) known: Known,
    pub(super) data: Option<HoldData>,
}

/// What a holder announces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Known {
    pub(super) owner: Option<HolderOwner>,
    pub(super) held_for: Option<Duration>,
    pub(super) lease: Option<Duration>,
    pub(super) announced_ago: Option<Duration>,
}

impl Known {
    fn announced(one: &Announcement, left: Duration, held_for: Option<Duration>) -> Self {
        Self {
            owner: Some(one.owner.clone()),
            held_for,
            lease: Some(one.ttl),
            announced_ago: Some(one.ttl.saturating_sub(left)),
        }
    }

    fn of_this_client(client: &ClientState, held_for: Option<Duration>) -> Self {
        Self {
            owner: client.config.owner.clone(),
            held_for,
            lease: Some(client.config.lease),
            announced_ago: Some(Duration::ZERO),
        }
    }
}

impl LockHolder {
    /// Queries the owners of the holders: one request for each other client.
    pub(crate) fn all_of(
        client: &Arc<ClientState>,
        name: &LockName,
        status: LockStatus,
    ) -> Vec<Self> {
        let LockStatus { ttl, holders, owners, mut data } = status;
        let holder =
            |(id, count): (String, u64)| FoundHolder { id, count, left: ttl, data: data.take() };
        let holders = holders.into_iter().map(holder).collect();
        Lookups::new(client, MOST_LOOKUPS).holders(&name.key, holders, &owners)
    }

    /// The holder id: `<client id>:<number>`, whichever side of a read-write lock it holds. Opaque;
    /// Java's end in a thread id. Threads of one client that had a plain lock one after another, or
    /// read at the same time, may have had it under the same id. If the lock stays taken after its
    /// holder has released it ([`min_hold`](crate::ReentrantMutex::min_hold)), the id ends in
    /// `:kept`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The hold count, as last reported to the server.
    #[must_use]
    pub fn hold_count(&self) -> u32 {
        self.hold_count
    }

    /// The time until the lock becomes free if it is not renewed; `None` if that is not known
    /// because it ends with the session of its holder, and for a lock without a TTL, which no
    /// client should make.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.remaining
    }

    /// Whether the holder is the client that made the query.
    #[must_use]
    pub fn is_this_client(&self) -> bool {
        self.is_this_client
    }

    /// Whether nobody has the lock any more: its holder has released it, and it stays taken until
    /// its [`min_hold`](crate::ReentrantMutex::min_hold) is over.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        is_kept(&self.id)
    }

    /// Whether the holder is a client of another library, such as Redisson or Curator, as far as
    /// ids show that. One in 400 000 permits of Redisson looks like one of this library.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        Holder::parse_permits(&self.id).is_none() && is_foreign(&self.id)
    }

    /// The owner that the holder announces ([`Builder::owner`](crate::Builder::owner)). `None` for
    /// clients of Java and those that announce none, if the server could not be queried for it, and
    /// beyond 16 other clients (256 for [`locks`](crate::LockClient::locks) and
    /// [`inspect`](crate::LockClient::inspect)). A client without a label announces it when a hold
    /// has lasted for a second (with leases below 10 s, a tenth of the lease); one with a label
    /// just after its first grant.
    #[must_use]
    pub fn owner(&self) -> Option<&HolderOwner> {
        self.known.owner.as_ref()
    }

    /// How long it has held the lock, if that is known. For another client it becomes known some
    /// seconds after the grant, like its [owner](Self::owner), if the client has room for it among
    /// what it [announces](crate::LockClient::announced_locks); with ZooKeeper never. Threads of
    /// one client that had a plain lock under the same [id](Self::id) count as one. Clocks of two
    /// machines are never compared.
    #[must_use]
    pub fn held_for(&self) -> Option<Duration> {
        self.known.held_for
    }

    /// The [lease](crate::Builder::lease) that its client is set to, if that is known: whenever its
    /// [owner](Self::owner) is, except with ZooKeeper. A handle may have a lease of its own.
    #[must_use]
    pub fn lease(&self) -> Option<Duration> {
        self.known.lease
    }

    /// How long ago its client last announced who it is, known whenever its [lease](Self::lease)
    /// is. A client that holds anything does so every third of that lease, so one that did it more
    /// recently is alive, also if the hold has a fixed lease, which nobody renews.
    #[must_use]
    pub fn announced_ago(&self) -> Option<Duration> {
        self.known.announced_ago
    }

    /// What the holder has written beside its hold
    /// ([`with_data`](crate::ReentrantMutex::with_data)); `None` for a hold without data.
    #[must_use]
    pub fn data(&self) -> Option<&[u8]> {
        self.data.as_ref().map(HoldData::bytes)
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner() {
            Some(owner) => write!(f, "held by {owner}")?,
            None => write!(f, "held by {}", shortened(&self.id, 80))?,
        }
        if let Some(held_for) = self.held_for() {
            write!(f, " for {}", rough(held_for))?;
        }
        if let Some(remaining) = self.remaining {
            write!(f, ", its lease ends in {}", rough(remaining))?;
        }
        match &self.data {
            Some(data) => write!(f, ", with the data {data}"),
            None => Ok(()),
        }
    }
}

/// Rounded for people.
pub(super) fn rough(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds => format!("{seconds} s"),
    }
}

/// Queries each client once.
pub(super) struct Lookups<'s> {
    client: &'s Arc<ClientState>,
    known: Vec<(String, Option<(Announcement, Duration)>)>,
    most: usize,
    /// The server is unavailable, or the maximum is reached: nothing more is queried.
    is_over: bool,
    /// The announcements of all clients were read.
    has_all: bool,
}

/// What all clients announce: the key of each, and when it expires.
pub(super) fn all_announced(
    owners: &dyn OwnerStore,
) -> Result<Vec<(String, Announcement, Duration)>> {
    let parse =
        |(key, one): (String, Announced)| Some((key, Announcement::parse(&one.text)?, one.left));
    Ok(owners.announced_by_all()?.into_iter().filter_map(parse).collect())
}

/// The id of a holder, without the side of a read-write lock that a store appends to it.
fn without_side(mut id: String) -> String {
    if let Some(length) = id.strip_suffix(":write").map(str::len) {
        id.truncate(length);
    }
    id
}

impl<'s> Lookups<'s> {
    pub(super) fn new(client: &'s Arc<ClientState>, most: usize) -> Self {
        Self { client, known: Vec::new(), most, is_over: false, has_all: false }
    }

    /// The holders under a key. `owners`: those that the store keeps with the holders.
    pub(super) fn holders(
        &mut self,
        key: &str,
        holders: Vec<FoundHolder>,
        owners: &[(String, HolderOwner)],
    ) -> Vec<LockHolder> {
        let own = self.client.holds.under(key);
        let now = self.client.clock.now();
        let holder = |FoundHolder { id, count, left: remaining, data }: FoundHolder| {
            let hold_count = u32::try_from(count).unwrap_or(u32::MAX);
            let id = without_side(id);
            let of_permits = |hold: &StoreHold| hold.asked.holder.as_str() == id;
            let is_it = |hold: &&Arc<StoreHold>| {
                of_permits(hold)
                    || client_and_number(&id).is_some()
                        && client_and_number(hold.asked.holder.as_str()) == client_and_number(&id)
            };
            let ours = own.iter().find(is_it);
            let is_this_client = ours.is_some() || self.client.who.id.owns(&id);
            let known = if is_this_client {
                let held_for = ours.map(|hold| now.since(hold.asked.at));
                Known::of_this_client(self.client, held_for)
            } else {
                self.known_of(&id, owners)
            };
            LockHolder { id, hold_count, remaining, is_this_client, known, data }
        };
        let mut all: Vec<LockHolder> = Vec::with_capacity(holders.len());
        let mut places = HashMap::<String, usize>::default();
        for holder in holders.into_iter().map(holder) {
            // A holder that writes and reads has a field for each side.
            match places.get(&holder.id) {
                Some(&place) => {
                    let one: &mut LockHolder = &mut all[place];
                    one.hold_count = one.hold_count.saturating_add(holder.hold_count);
                    one.remaining = one.remaining.zip(holder.remaining).map(|(a, b)| a.max(b));
                }
                None => {
                    places.insert(holder.id.clone(), all.len());
                    all.push(holder);
                }
            }
        }
        all
    }

    /// What another client announces, with its holds or in a record of its own.
    pub(super) fn known_of(&mut self, id: &str, owners: &[(String, HolderOwner)]) -> Known {
        if self.client.who.id.owns(id) {
            return Known::of_this_client(self.client, None);
        }
        let beside =
            owners.iter().find(|(holder, _)| *holder == id).map(|(_, owner)| owner.clone());
        match beside.filter(|_| self.client.config.owner.is_some()) {
            Some(owner) => Known { owner: Some(owner), ..Known::default() },
            None => self.announced_by(id),
        }
    }

    fn announced_by(&mut self, holder: &str) -> Known {
        if Holder::parse_permits(holder).is_some() {
            return self.announced_of_permits(holder);
        }
        let Some((client, number)) = client_and_number(holder) else { return Known::default() };
        let place = match self.known.iter().position(|(known, _)| known == client) {
            Some(place) => place,
            None => {
                let announced = self.look_up(client);
                self.known.push((client.to_owned(), announced));
                self.known.len() - 1
            }
        };
        let Some((announcement, left)) = &self.known[place].1 else { return Known::default() };
        Known::announced(announcement, *left, announcement.age_of(number, *left))
    }

    /// The id of permits does not contain the client: they belong to the client that lists them
    /// among its holds.
    fn announced_of_permits(&mut self, id: &str) -> Known {
        if !std::mem::replace(&mut self.has_all, true) {
            self.look_up_all();
        }
        let holds = |(_, known): &&(String, Option<(Announcement, Duration)>)| {
            known.as_ref().is_some_and(|(announcement, _)| {
                announcement.holds.iter().any(|hold| hold.id == id)
            })
        };
        let Some((_, Some((announcement, left)))) = self.known.iter().find(holds) else {
            return Known::default();
        };
        Known::announced(announcement, *left, announcement.age_of_hold(id, *left))
    }

    /// Takes over the announcements of all clients, so that none of them is queried again.
    pub(super) fn knows(&mut self, all: Vec<(String, Announcement, Duration)>) {
        self.has_all = true;
        // The client id follows the prefix of its names, which may differ from this client's.
        let client =
            |key: &str| key.get(key.len().checked_sub(CLIENT_LENGTH)?..).map(str::to_owned);
        let known = |(key, announcement, left): (String, _, _)| {
            Some((client(&key)?, Some((announcement, left))))
        };
        self.known = all.into_iter().filter_map(known).collect();
        self.most = self.most.saturating_add(self.known.len());
    }

    fn look_up_all(&mut self) {
        if self.is_over
            || !self.client.seen.announcer.as_ref().is_some_and(|announcer| announcer.may_ask())
        {
            return;
        }
        match self.client.store.owners().map(all_announced) {
            Some(Ok(all)) => self.knows(all),
            Some(Err(e)) => log::debug!("the owners of permits are not known: {}", e.chain()),
            None => {}
        }
    }

    fn look_up(&mut self, client: &str) -> Option<(Announcement, Duration)> {
        if self.is_over || self.known.len() >= self.most {
            self.is_over = true;
            return None;
        }
        let announcer = self.client.seen.announcer.as_ref()?;
        announcer.look_up(self.client.store.owners()?, client).unwrap_or_else(|e| {
            log::debug!("the owner of a lock is not known: {}", e.chain());
            self.is_over = e.kind().is_outage();
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_left_out() {
        let owner = HolderOwner::read("billing-7", "4711", "host-a");
        let seconds = |n| Some(Duration::from_secs(n));
        let holder = |owner, held_for, remaining| {
            let id = "a8a5ef81:30".to_owned();
            let hold_count = 1;
            let is_this_client = false;
            let known = Known { owner, held_for, ..Known::default() };
            let data = None;
            LockHolder { id, hold_count, remaining, is_this_client, known, data }.to_string()
        };
        let known = holder(owner.clone(), seconds(12), seconds(21));
        assert_eq!(
            known,
            "held by billing-7 (pid 4711 on host-a) for 12 s, its lease ends in 21 s"
        );
        assert_eq!(holder(owner, None, None), "held by billing-7 (pid 4711 on host-a)");
        let java = holder(None, None, Some(Duration::from_millis(970)));
        assert_eq!(java, "held by a8a5ef81:30, its lease ends in 970 ms");
    }
}
