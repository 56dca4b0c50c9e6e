//! A network of one execution: bytes arrive in virtual time, and whoever waits for them is a thread
//! that the scheduler knows. A scenario has the servers' ends, and so decides what is late and what
//! is cut.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::boot_nanos;
use super::parker::Parker;
use super::thread::step;
use super::time::{self, nanos_of};

/// One end of a connection; clones are the same end. It is closed when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Socket(Arc<End>);

#[derive(Debug)]
struct End {
    input: Arc<Pipe>,
    output: Arc<Pipe>,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Pipe(Mutex<PipeState>);

#[derive(Debug, Default)]
struct PipeState {
    /// What was written, and when it arrives, in order.
    pieces: VecDeque<(u64, Vec<u8>)>,
    /// When the end arrives, after all pieces.
    end: Option<u64>,
    /// Nobody reads it any more.
    is_deaf: bool,
    /// The threads that wait for it.
    sleepers: Vec<Arc<Parker>>,
}

impl Pipe {
    /// Never held over a step of the scheduler.
    fn state(&self) -> MutexGuard<'_, PipeState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When a read returns something, as far as that is known.
    fn next(&self) -> Option<u64> {
        let state = self.state();
        state.pieces.front().map(|(arrives, _)| *arrives).or(state.end)
    }

    fn change(&self, change: impl FnOnce(&mut PipeState)) {
        let mut state = self.state();
        change(&mut state);
        let sleepers = std::mem::take(&mut state.sleepers);
        drop(state);
        for parker in &sleepers {
            parker.wake();
        }
    }
}

impl PipeState {
    /// Nothing overtakes what was written before.
    fn arrival(&self, after: Duration) -> u64 {
        let last = self.pieces.back().map_or(0, |(arrives, _)| *arrives);
        last.max(boot_nanos() + nanos_of(after))
    }
}

impl Socket {
    /// Both ends of a connection.
    pub fn pair() -> (Self, Self) {
        let one = Arc::<Pipe>::default();
        let other = Arc::<Pipe>::default();
        let end = |input: &Arc<Pipe>, output: &Arc<Pipe>| {
            Self(Arc::new(End { input: input.clone(), output: output.clone() }))
        };
        (end(&one, &other), end(&other, &one))
    }

    /// Connects to whoever listens there.
    pub fn connect(to: SocketAddr) -> io::Result<Self> {
        step();
        let listener = LISTENERS
            .with_borrow(|all| all.get(&to).cloned())
            .ok_or(io::ErrorKind::ConnectionRefused)?;
        let intervene = listener.0.lock().unwrap_or_else(PoisonError::into_inner).intervene;
        intervene.inspect(|intervene| intervene());
        let (own, other) = Self::pair();
        listener.0.lock().unwrap_or_else(PoisonError::into_inner).waiting.push_back(other);
        listener.1.change(|bell| bell.end = Some(0));
        Ok(own)
    }

    pub fn write(&self, bytes: &[u8]) -> io::Result<()> {
        step();
        self.write_at_once(bytes, Duration::ZERO)
    }

    /// Within the step of the caller. The bytes arrive `after` this time, and after all that were
    /// written before.
    pub fn write_at_once(&self, bytes: &[u8], after: Duration) -> io::Result<()> {
        let mut outcome = Ok(());
        self.0.output.change(|pipe| {
            if pipe.is_deaf || pipe.end.is_some() {
                outcome = Err(io::ErrorKind::BrokenPipe.into());
            } else {
                pipe.pieces.push_back((pipe.arrival(after), bytes.to_vec()));
            }
        });
        outcome
    }

    /// Reads what has arrived; nothing after the end.
    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        step();
        let now = boot_nanos();
        let mut state = self.0.input.state();
        match state.pieces.pop_front() {
            Some((arrives, mut bytes)) if arrives <= now => {
                let read = bytes.len().min(buffer.len());
                buffer[..read].copy_from_slice(&bytes[..read]);
                if read < bytes.len() {
                    state.pieces.push_front((arrives, bytes.split_off(read)));
                }
                Ok(read)
            }
            Some(later) => {
                state.pieces.push_front(later);
                Err(io::ErrorKind::WouldBlock.into())
            }
            None if state.end.is_some_and(|end| end <= now) => Ok(0),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// What was written before still arrives at the other end, which then finds the end. Nothing is
    /// received any more.
    pub fn close(&self) {
        step();
        self.0.close();
    }

    /// Within the step of the caller.
    pub fn close_at_once(&self) {
        self.0.close();
    }

    /// Whether the other end has closed it, although that may not have arrived yet.
    pub fn is_cut(&self) -> bool {
        self.0.input.state().end.is_some()
    }
}

impl End {
    fn close(&self) {
        self.output.change(|pipe| pipe.end = pipe.end.or(Some(pipe.arrival(Duration::ZERO))));
        self.input.change(|pipe| {
            pipe.is_deaf = true;
            pipe.end = Some(0);
            pipe.pieces.clear();
        });
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // After the execution there is nobody who could notice.
        if time::current().is_some() {
            self.close();
        }
    }
}

/// Which of them can be read or have ended. Waits for the first, at most for `timeout`.
pub fn readable(sockets: &[&Socket], timeout: Option<Duration>) -> Vec<bool> {
    let inputs: Vec<&Pipe> = sockets.iter().map(|socket| &*socket.0.input).collect();
    wait(&inputs, timeout)
}

fn wait(inputs: &[&Pipe], timeout: Option<Duration>) -> Vec<bool> {
    step();
    let deadline = timeout.map(|timeout| boot_nanos() + nanos_of(timeout));
    loop {
        let now = boot_nanos();
        let ready: Vec<bool> =
            inputs.iter().map(|input| input.next().is_some_and(|next| next <= now)).collect();
        if ready.contains(&true) || deadline.is_some_and(|deadline| deadline <= now) {
            return ready;
        }
        // Entered in the same step as the look, so that whoever changes something wakes it.
        let parker = Arc::new(Parker::default());
        for input in inputs {
            input.state().sleepers.push(parker.clone());
        }
        let until = inputs.iter().filter_map(|input| input.next()).chain(deadline).min();
        match until.zip(time::current()) {
            Some((until, time)) => time.park_until(until, &parker),
            None => parker.park(),
        }
        for input in inputs {
            input.state().sleepers.retain(|other| !Arc::ptr_eq(other, &parker));
        }
    }
}

/// Connections that nobody has accepted yet, and what rings when there is one.
type Port = Arc<(Mutex<Backlog>, Pipe)>;

#[derive(Default)]
struct Backlog {
    waiting: VecDeque<Socket>,
    intervene: Option<fn()>,
}

thread_local! {
    /// Of the present execution.
    static LISTENERS: RefCell<BTreeMap<SocketAddr, Port>> = const { RefCell::new(BTreeMap::new()) };
}

/// Nobody listens any more: an execution begins, or has ended.
pub(super) fn forget() {
    // Dropped outside the cell: connections that nobody has accepted are closed.
    let left = LISTENERS.take();
    drop(left);
}

/// Where a server of the scenario listens. Connections that it does not accept are open, as in the
/// backlog of a server that hangs.
pub struct Listener {
    port: Port,
    address: SocketAddr,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Listener {
    pub fn new(address: SocketAddr) -> Self {
        let port = Port::default();
        LISTENERS.with_borrow_mut(|all| all.insert(address, port.clone()));
        Self { port, address }
    }

    /// Called in each connect, by the thread that connects. It may sleep, and panic.
    pub fn intervene(&self, intervene: Option<fn()>) {
        self.backlog().intervene = intervene;
    }

    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.port.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next connection; `None` once it is closed.
    pub fn accept(&self) -> Option<Socket> {
        loop {
            if let Some(next) = self.backlog().waiting.pop_front() {
                return Some(next);
            }
            if self.port.1.state().is_deaf {
                return None;
            }
            wait(&[&self.port.1], None);
            self.port.1.change(|bell| bell.end = bell.end.filter(|_| bell.is_deaf));
        }
    }

    /// From now on connects are refused, and those that were not accepted have ended.
    pub fn close(&self) {
        LISTENERS.with_borrow_mut(|all| all.remove(&self.address));
        let waiting = std::mem::take(&mut self.backlog().waiting);
        drop(waiting);
        self.port.1.change(|bell| (bell.is_deaf, bell.end) = (true, Some(0)));
    }
}
