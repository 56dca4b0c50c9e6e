//! Wake-ups in a cluster: one connection to each primary that has the slot of a channel with
//! waiters, all read by one thread.
//!
//! A connection is made on a thread that ends afterwards, because connecting blocks and the
//! messages of the other primaries must not wait. While a channel has no connection, its topics are
//! reported as unwatched, and waiters rely on their timers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::nodes::Cluster;
use super::topology::NodeAddress;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;
use crate::base::random::Backoff;
use crate::os::Mutex;
use crate::store::net::Waker;
use crate::store::redis::keys::Slot;
use crate::store::redis::subscription::{channel_name, is_about_channels, log_refusal};
use crate::store::redis::wire::{Frame, PubSubReader, PubSubWriter, Publishing, wait_for_input};
use crate::store::{Received, Subscriber, SubscriptionSender, Topic};

/// How long a connection without channels is kept.
const LINGER: Duration = Duration::from_secs(1);
/// A connection that is silent for this long is pinged.
const SILENCE: Duration = Duration::from_secs(5);

type Opened = Result<(PubSubReader, PubSubWriter)>;

struct SharedBranches {
    cluster: Arc<Cluster>,
    state: Mutex<BranchState>,
    waker: Waker,
}

#[derive(Default)]
struct BranchState {
    channels: HashMap<String, Channel>,
    links: HashMap<NodeAddress, Link>,
    /// Connections that were just made, or could not be made.
    arrivals: Vec<(NodeAddress, Opened)>,
    /// Whether some channel has no connection.
    unplaced: bool,
    /// The version of the map by which the channels were placed.
    version: u64,
    /// A node that has given up a slot, which a thread that was started asks for the map.
    given_up: Option<NodeAddress>,
    next_id: u64,
    closed: bool,
}

struct Channel {
    /// Usually one, as with a single server.
    topics: Vec<Topic>,
    slot: Slot,
    /// The node that was asked to subscribe.
    at: Option<NodeAddress>,
    confirmed: bool,
    /// After a second redirect in a row: when to follow it.
    not_before: Option<Instant>,
    /// It was redirected, and has not been confirmed since.
    pause: Option<Backoff>,
}

/// The connection to one primary.
struct Link {
    id: u64,
    phase: Phase,
    pause: Backoff,
    /// The number of its channels.
    channels: usize,
    idle_since: Option<Instant>,
    pinged: Option<Instant>,
    last_received: Instant,
}

enum Phase {
    Connecting,
    Open(PubSubWriter),
    RetryAt(Instant),
}

impl Cluster {
    /// No I/O: connections are made when there is something to wait for.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        read_timeout: Duration,
    ) -> Result<(Box<dyn Subscriber>, Box<dyn SubscriptionSender>)> {
        let waker = Waker::new().map_err(|e| {
            let why =
                "no pair of sockets could be made for the thread that receives release messages";
            Error::new(ErrorKind::Unreachable, why).caused_by(e)
        })?;
        let shared =
            Arc::new(SharedBranches { cluster: self.clone(), state: Mutex::default(), waker });
        let subscriber = ClusterSubscriber {
            shared: shared.clone(),
            readers: Vec::new(),
            read_timeout,
            warned: false,
        };
        Ok((Box::new(subscriber), Box::new(ClusterSender(shared))))
    }
}

struct ClusterSubscriber {
    shared: Arc<SharedBranches>,
    readers: Vec<Reader>,
    read_timeout: Duration,
    /// Whether a log line has already said that the user may not subscribe.
    warned: bool,
}

struct Reader {
    /// The id of its link.
    id: u64,
    address: NodeAddress,
    reader: PubSubReader,
}

impl Subscriber for ClusterSubscriber {
    fn receive(&mut self) -> Result<Received> {
        let deadline = Instant::now() + self.read_timeout;
        loop {
            if let Some(lost) = self.tidy()? {
                return Ok(lost);
            }
            if let Some(received) = self.read() {
                return Ok(received);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Received::Timeout);
            }
            wait_for_input(
                self.readers.iter().map(|reader| &reader.reader),
                &self.shared.waker,
                left,
            );
        }
    }
}

impl ClusterSubscriber {
    /// Takes over new connections, drops those that have ended, and subscribes to channels without
    /// a connection. Returns the topics of a connection that does not answer.
    fn tidy(&mut self) -> Result<Option<Received>> {
        let mut failed = Vec::new();
        let lost = self.tidy_links(&mut failed)?;
        // Logged after the mutex is unlocked: a logger that blocks would keep every waiter from its
        // message.
        for (address, error) in &failed {
            self.log_trouble(address, error);
        }
        Ok((!lost.is_empty()).then_some(Received::Unwatched(lost)))
    }

    fn tidy_links(&mut self, failed: &mut Vec<(NodeAddress, Error)>) -> Result<Vec<Topic>> {
        let mut state = self.shared.state.lock();
        if state.closed {
            return Err(Error::new(ErrorKind::Closed, "the subscription was ended"));
        }
        for (address, opened) in std::mem::take(&mut state.arrivals) {
            state.unplaced = true;
            let Some(link) = state.links.get_mut(&address) else { continue };
            match opened {
                Ok((reader, writer)) => {
                    link.open(writer);
                    self.readers.push(Reader { id: link.id, address, reader });
                }
                Err(e) => {
                    link.fail();
                    failed.push((address, e));
                }
            }
        }
        let mut lost = Vec::new();
        let answer = self.shared.cluster.background.io_timeout;
        for address in state.silent_links(answer) {
            lost.extend(state.end(&address));
        }
        if self.shared.cluster.publishing.get() == Some(&Publishing::Sharded) {
            lost.extend(state.follow_map(&self.shared.cluster));
        }
        let links = &state.links;
        self.readers.retain(|reader| {
            links.get(&reader.address).is_some_and(|link| link.is_open_as(reader.id))
        });
        self.shared.place_all(&mut state);
        Ok(lost)
    }

    /// A refusal lasts, so it is logged as a warning, but only once.
    fn log_trouble(&mut self, address: &NodeAddress, error: &Error) {
        let NodeAddress { host, port } = address;
        if error.kind() == ErrorKind::Denied && !std::mem::replace(&mut self.warned, true) {
            log::warn!(
                "release messages cannot be received from {host}:{port}, waiting by timer: {}",
                error.chain()
            );
        } else {
            log::debug!("no release messages from {host}:{port} for now: {}", error.chain());
        }
    }

    /// Reads until there is something to report, or nothing is left.
    fn read(&mut self) -> Option<Received> {
        // The next call begins with another connection, so that a busy one cannot starve the
        // others.
        if !self.readers.is_empty() {
            self.readers.rotate_left(1);
        }
        let mut ended = None;
        for (at, Reader { address, reader, .. }) in self.readers.iter_mut().enumerate() {
            loop {
                match reader.receive() {
                    Ok(Frame::Timeout) => break,
                    Ok(frame) => {
                        if let Some(received) = self.shared.received(address, frame) {
                            return Some(received);
                        }
                    }
                    Err(e) if is_about_channels(&e) => {
                        let (channels, received) = self.shared.refused(address);
                        for channel in channels {
                            let is_known = std::mem::replace(&mut self.warned, true);
                            log_refusal(is_known, &format!("on {channel:?}"), &e);
                        }
                        return Some(received);
                    }
                    Err(e) => {
                        ended = Some((at, e));
                        break;
                    }
                }
            }
            if ended.is_some() {
                break;
            }
        }
        let (at, error) = ended?;
        let Reader { id, address, .. } = self.readers.remove(at);
        self.log_trouble(&address, &error);
        // The link may already have been replaced.
        let mut state = self.shared.state.lock();
        let is_present = state.links.get(&address).is_some_and(|link| link.id == id);
        Some(if is_present { Received::Unwatched(state.end(&address)) } else { Received::Alive })
    }
}

impl SharedBranches {
    fn received(self: &Arc<Self>, from: &NodeAddress, frame: Frame) -> Option<Received> {
        let mut state = self.state.lock();
        if let Some(link) = state.links.get_mut(from) {
            link.pinged = None;
            link.last_received = Instant::now();
        }
        match frame {
            Frame::Message { channel, grant, .. } => {
                let topics = state.channel(&channel).map(|channel| channel.topics.clone());
                Some(Received::message(topics, grant))
            }
            Frame::Subscribed { topic } => {
                if let Some(link) = state.links.get_mut(from) {
                    link.pause.reset();
                    link.writer(|writer| writer.confirmed(0, &topic));
                }
                let channel =
                    state.channel(&topic).filter(|channel| channel.at.as_ref() == Some(from))?;
                channel.confirmed = true;
                channel.pause = None;
                Some(Received::Watching(channel.topics.clone()))
            }
            // Its slot has moved, or the node is a replica now. If this is the confirmation of an
            // earlier request, a second subscription does no harm.
            Frame::Unsubscribed { topic } => {
                let topics = state.lose(from, |name, _| name.as_bytes() == topic);
                self.place_all(&mut state);
                if !topics.is_empty() {
                    self.ask_for_map(&mut state, from);
                }
                (!topics.is_empty()).then_some(Received::Unwatched(topics))
            }
            Frame::Moved { slot, address } => {
                let slot = Slot::new(slot)?;
                self.cluster.note_moved(slot, &NodeAddress::parse(&address, &from.host)?);
                if let Some(link) = state.links.get_mut(from) {
                    let is_it = |channel: &str| Slot::for_key(channel) == slot;
                    link.writer(|writer| writer.redirected(0, is_it));
                }
                // They are not confirmed, so nobody relies on them.
                let is_refused = |channel: &Channel| channel.slot == slot && !channel.confirmed;
                let at_this = |channel: &&mut Channel| channel.at.as_ref() == Some(from);
                for channel in state.channels.values_mut().filter(at_this) {
                    if is_refused(channel) {
                        channel.note_redirect();
                    }
                }
                state.lose(from, |_, channel| is_refused(channel));
                self.place_all(&mut state);
                None
            }
            Frame::Alive => Some(Received::Alive),
            Frame::Timeout => None,
        }
    }

    /// The user may not subscribe to the channel of the oldest request. It is not asked for again
    /// over this connection.
    fn refused(&self, by: &NodeAddress) -> (Vec<String>, Received) {
        let mut state = self.state.lock();
        let refused = |link: &mut Link| link.writer(|writer| writer.refused(0));
        let channels = state.links.get_mut(by).and_then(refused).unwrap_or_default();
        let known = channels.iter().filter_map(|channel| state.channels.get(channel));
        let topics = known.flat_map(|channel| channel.topics.clone()).collect();
        (channels, Received::Refused(topics))
    }

    /// Subscribes each channel that has no connection at its primary, and starts connecting to
    /// primaries without a connection.
    fn place_all(self: &Arc<Self>, state: &mut BranchState) {
        if !std::mem::take(&mut state.unplaced) {
            return;
        }
        let Some(publishing) = self.cluster.publishing.get() else {
            state.unplaced = true;
            return;
        };
        let BranchState { channels, links, next_id, unplaced, .. } = state;
        for (name, channel) in channels.iter_mut().filter(|(_, channel)| channel.at.is_none()) {
            *unplaced = true;
            if channel.not_before.is_some_and(|at| at > Instant::now()) {
                continue;
            }
            let Some(address) = self.cluster.address_of_slot(channel.slot) else { continue };
            let link = links.entry(address.clone()).or_insert_with(|| {
                *next_id += 1;
                Link::new(*next_id)
            });
            match &mut link.phase {
                Phase::Open(writer) => match subscribe(writer, name, *publishing) {
                    Ok(()) => {
                        channel.at = Some(address);
                        link.channels += 1;
                    }
                    // The reader will notice the end.
                    Err(_) => writer.close(),
                },
                Phase::RetryAt(at) if *at <= Instant::now() => match self.connect(address) {
                    Ok(()) => link.phase = Phase::Connecting,
                    Err(_) => link.fail(),
                },
                Phase::Connecting | Phase::RetryAt(_) => {}
            }
        }
    }

    /// Asks a node that has given up a slot who has it now. A node that has become a replica of the
    /// new primary would accept the subscription again, and miss the messages.
    fn ask_for_map(self: &Arc<Self>, state: &mut BranchState, from: &NodeAddress) {
        if state.given_up.replace(from.clone()).is_some() {
            return;
        }
        let shared = self.clone();
        let ask = move || {
            // Taken before the node is asked: it may give up another slot after its answer, and a
            // panic here must not keep later ones from being asked.
            let Some(from) = shared.state.lock().given_up.take() else { return };
            if let Err(e) = shared.cluster.refresh_at(&from) {
                log::debug!("the map of the cluster cannot be read now: {}", e.chain());
            }
            shared.waker.wake();
        };
        if std::thread::Builder::new().name("lh-cluster".to_owned()).spawn(ask).is_err() {
            state.given_up = None;
        }
    }

    fn connect(self: &Arc<Self>, to: NodeAddress) -> std::io::Result<()> {
        let shared = self.clone();
        let connect = move || {
            let cluster = &shared.cluster;
            let opened = cluster.background_at(&to).subscribe_without_waiting();
            if opened.is_err() {
                // Another node may have its slots by now.
                let _ = cluster.refresh(cluster.version(), Some(&to));
            }
            let mut state = shared.state.lock();
            if !state.closed {
                state.arrivals.push((to, opened));
            }
            drop(state);
            shared.waker.wake();
        };
        std::thread::Builder::new().name("lh-connect".to_owned()).spawn(connect).map(drop)
    }
}

fn subscribe(writer: &mut PubSubWriter, channel: &str, publishing: Publishing) -> Result<()> {
    match publishing {
        Publishing::Classic => writer.subscribe(&[channel]),
        Publishing::Sharded => writer.subscribe_sharded(channel),
    }
}

fn unsubscribe(writer: &mut PubSubWriter, channel: &str, publishing: Publishing) -> Result<()> {
    match publishing {
        Publishing::Classic => writer.unsubscribe(channel),
        Publishing::Sharded => writer.unsubscribe_sharded(channel),
    }
}

impl BranchState {
    fn channel(&mut self, name: &[u8]) -> Option<&mut Channel> {
        self.channels.get_mut(std::str::from_utf8(name).ok()?)
    }

    /// The channels at a node that `which` selects no longer have a connection. Returns their
    /// topics.
    fn lose(&mut self, at: &NodeAddress, which: impl Fn(&str, &Channel) -> bool) -> Vec<Topic> {
        let mut topics = Vec::new();
        for (name, channel) in &mut self.channels {
            if channel.at.as_ref() == Some(at) && which(name, channel) {
                channel.at = None;
                channel.confirmed = false;
                topics.extend(channel.topics.iter().cloned());
                self.unplaced = true;
                if let Some(link) = self.links.get_mut(at) {
                    link.channels -= 1;
                }
            }
        }
        topics
    }

    /// After the map was read again, the channels whose slots have another primary lose their
    /// connection, to be subscribed there. Returns their topics.
    fn follow_map(&mut self, cluster: &Cluster) -> Vec<Topic> {
        let version = cluster.version();
        if std::mem::replace(&mut self.version, version) == version {
            return Vec::new();
        }
        let has_moved = |(name, channel): (&String, &Channel)| {
            let at = channel.at.clone()?;
            let now = cluster.address_of_slot(channel.slot)?;
            (at != now).then(|| (name.clone(), at))
        };
        let moved: Vec<(String, NodeAddress)> =
            self.channels.iter().filter_map(has_moved).collect();
        let mut lost = Vec::new();
        for (name, at) in moved {
            lost.extend(self.lose(&at, |other, _| other == name));
            if let Some(Link { phase: Phase::Open(writer), .. }) = self.links.get_mut(&at)
                && writer.unsubscribe_sharded(&name).is_err()
            {
                writer.close();
            }
        }
        lost
    }

    /// The connection to a node has ended.
    fn end(&mut self, address: &NodeAddress) -> Vec<Topic> {
        if let Some(link) = self.links.get_mut(address) {
            link.fail();
        }
        self.lose(address, |_, _| true)
    }

    /// The nodes that have not answered a ping within `answer`. Silent ones are pinged.
    fn silent_links(&mut self, answer: Duration) -> Vec<NodeAddress> {
        let now = Instant::now();
        let mut dead = Vec::new();
        for (address, link) in &mut self.links {
            match link.pinged {
                Some(pinged) if now.duration_since(pinged) > answer => dead.push(address.clone()),
                None if now.duration_since(link.last_received) > SILENCE => link.ping(),
                _ => {}
            }
        }
        dead
    }
}

impl Channel {
    fn new(slot: Slot) -> Self {
        let topics = Vec::new();
        Self { topics, slot, at: None, confirmed: false, not_before: None, pause: None }
    }

    /// The first redirect is followed at once. Two nodes may each report that the other has the
    /// slot, until both know of a move.
    fn note_redirect(&mut self) {
        self.not_before = self.pause.as_mut().map(|pause| Instant::now() + pause.next());
        self.pause.get_or_insert_with(new_pause);
    }
}

fn new_pause() -> Backoff {
    Backoff::new(Duration::from_millis(10), Duration::from_millis(500))
}

impl Link {
    fn new(id: u64) -> Self {
        let now = Instant::now();
        let phase = Phase::RetryAt(now);
        let pause = new_pause();
        Self { id, phase, pause, channels: 0, idle_since: None, pinged: None, last_received: now }
    }

    fn is_open_as(&self, id: u64) -> bool {
        self.id == id && matches!(self.phase, Phase::Open(_))
    }

    fn writer<T>(&mut self, with: impl FnOnce(&mut PubSubWriter) -> T) -> Option<T> {
        if let Phase::Open(writer) = &mut self.phase { Some(with(writer)) } else { None }
    }

    fn open(&mut self, writer: PubSubWriter) {
        self.phase = Phase::Open(writer);
        self.pinged = None;
        self.last_received = Instant::now();
    }

    fn fail(&mut self) {
        if let Phase::Open(writer) = &self.phase {
            writer.close();
        }
        self.phase = Phase::RetryAt(Instant::now() + self.pause.next());
        self.pinged = None;
    }

    fn ping(&mut self) {
        if let Phase::Open(writer) = &mut self.phase
            && self.pinged.is_none()
        {
            self.pinged = Some(Instant::now());
            if writer.ping().is_err() {
                writer.close();
            }
        }
    }
}

struct ClusterSender(Arc<SharedBranches>);

impl SubscriptionSender for ClusterSender {
    fn watch(&mut self, topics: &[&Topic]) -> Result<bool> {
        let shared = &self.0;
        let mut state = shared.state.lock();
        let mut all_confirmed = true;
        for topic in topics {
            let slot = Slot::for_key(&*topic.key);
            let channel =
                state.channels.entry(channel_name(topic)).or_insert_with(|| Channel::new(slot));
            channel.topics.push((*topic).clone());
            all_confirmed &= channel.confirmed;
        }
        state.unplaced |= !all_confirmed;
        shared.place_all(&mut state);
        let waits = state.unplaced;
        drop(state);
        if waits {
            // Wakes the thread, so that it learns when to try again.
            shared.waker.wake();
        }
        Ok(all_confirmed)
    }

    fn unwatch(&mut self, topic: &Topic) -> Result<()> {
        let mut state = self.0.state.lock();
        let name = channel_name(topic);
        let Some(channel) = state.channels.get_mut(&name) else { return Ok(()) };
        channel.topics.retain(|other| other != topic);
        if !channel.topics.is_empty() {
            return Ok(());
        }
        let at = state.channels.remove(&name).and_then(|channel| channel.at);
        let publishing = self.0.cluster.publishing.get();
        if let Some(link) = at.and_then(|at| state.links.get_mut(&at)) {
            link.channels -= 1;
            if let (Phase::Open(writer), Some(publishing)) = (&mut link.phase, publishing)
                && unsubscribe(writer, &name, *publishing).is_err()
            {
                writer.close();
            }
        }
        Ok(())
    }

    fn ping(&mut self) -> Result<()> {
        for link in self.0.state.lock().links.values_mut() {
            link.ping();
        }
        Ok(())
    }

    /// Ends connections without channels.
    fn maintain(&mut self) -> Result<()> {
        let mut state = self.0.state.lock();
        let now = Instant::now();
        // A connection that is being made may be for a channel without one.
        let unplaced = state.unplaced;
        state.links.retain(|_, link| {
            if link.channels > 0 || unplaced {
                link.idle_since = None;
                return true;
            }
            let idle_since = *link.idle_since.get_or_insert(now);
            let is_over =
                now.duration_since(idle_since) > LINGER && !matches!(link.phase, Phase::Connecting);
            if is_over && let Phase::Open(writer) = &link.phase {
                writer.close();
            }
            !is_over
        });
        Ok(())
    }

    fn close(&self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        state.arrivals.clear();
        for link in state.links.values() {
            if let Phase::Open(writer) = &link.phase {
                writer.close();
            }
        }
        drop(state);
        self.0.waker.wake();
    }
}
