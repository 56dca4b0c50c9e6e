//! Makes connections: log-in and handshake.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::connection::Connection;
use super::fence::Fence;
use super::reply::{Reply, fail_on_error, server_time};
use super::request::{Request, Script};
use super::target::Target;
use super::transport::{Transport, handshake_failed, the_reason};
use super::unknown_outcome::{ConnectionFacts, Epoch, Publishing};
use crate::base::advice::Advice;
use crate::base::error::{Error, ErrorKind, Result, invalid};
use crate::base::log;
use crate::os::Mutex;
use crate::os::atomic::{AtomicBool, Ordering};
use crate::signal::clock::Clock;

/// Makes connections to one server, or to the current master.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    pub(crate) endpoint: Target,
    pub(crate) client_name: String,
    pub(crate) handshake: Handshake,
    /// The limit for the connect with its handshake, for each write and for each reply. Finding the
    /// master has a limit of its own.
    pub(crate) io_timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether a thread that waits for a reply may use a core meanwhile.
    pub(crate) busy_poll: bool,
    /// Whether a connection of this client has read the server's memory settings: the first one
    /// does it for all.
    pub(crate) memory_seen: Arc<AtomicBool>,
    /// What a connection of this client has introduced itself to, with everything that a server
    /// process needs once.
    pub(crate) introduced: Arc<Mutex<Option<Introduction>>>,
    /// `Some`: the server must be a node of a cluster. How its releases are published is decided by
    /// a setting, or by the first node that is connected to.
    pub(crate) cluster: Option<Arc<OnceLock<Publishing>>>,
}

/// A process of a server that has loaded the scripts, and a user of it whose rights were probed.
/// Each further connection leaves both out, so that a starved server lets a client in again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Introduction {
    run_id: String,
    user: String,
    /// It does not know `EVALSHA`.
    by_source: bool,
}

impl Introduction {
    fn is_to(&self, (run_id, user): &(String, String)) -> bool {
        self.run_id == *run_id && self.user == *user
    }
}

/// What the store requires of a server process, once for each client.
#[derive(Debug, Clone)]
pub(crate) struct Handshake {
    /// Loaded into the server.
    pub(crate) scripts: &'static [&'static Script],
    /// Finds out what the user may not do; `check` judges the reply.
    pub(crate) probe: Request,
    pub(crate) check: fn(Reply) -> Result<()>,
}

impl Connector {
    pub(crate) fn connect(&self) -> Result<Connection> {
        let (endpoint, epoch) = self.endpoint.find()?;
        let transport = Transport::connect(&endpoint, self.io_timeout)?;
        log::debug!("connected to {endpoint:?}");
        self.shake_hands(Box::new(transport), epoch).map_err(|e| handshake_failed(&endpoint, e))
    }

    /// Whether releases are published to sharded channels, as far as that is decided.
    pub(crate) fn is_sharded(&self) -> bool {
        self.cluster.as_ref().and_then(|decided| decided.get().copied())
            == Some(Publishing::Sharded)
    }

    /// The same for another address, with the same log-in.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        let endpoint = self
            .endpoint
            .fixed()
            .map_or_else(|| self.endpoint.clone(), |fixed| fixed.at(host, port).into());
        Self { endpoint, introduced: Arc::default(), ..self.clone() }
    }

    /// The same, for an address that somebody else told; see
    /// [`Endpoint::named_by`](super::endpoint::Endpoint::named_by).
    pub(crate) fn named_by(self, who: &'static str) -> Self {
        let endpoint = self.endpoint.fixed().cloned().map(|fixed| fixed.named_by(who).into());
        Self { endpoint: endpoint.unwrap_or_else(|| self.endpoint.clone()), ..self }
    }

    /// Checks whether the URL can name a node of a cluster.
    pub(crate) fn check_seed(&self) -> Result<()> {
        let why =
            match (self.host_and_port(), self.endpoint.fixed().map_or(0, |endpoint| endpoint.db)) {
                (None, _) => "the nodes of a cluster are reached over TCP, not over a unix socket",
                (_, 1..) => "a cluster has only database 0; leave the database out of the URL",
                _ => return Ok(()),
            };
        Err(invalid(why))
    }

    /// Whether both have the same user, password and kind of connection.
    pub(crate) fn logs_in_like(&self, other: &Self) -> bool {
        self.endpoint
            .fixed()
            .zip(other.endpoint.fixed())
            .is_some_and(|(own, other)| own.logs_in_like(other))
    }

    /// `None` for a unix socket.
    pub(crate) fn host_and_port(&self) -> Option<(&str, u16)> {
        self.endpoint.fixed()?.host_and_port()
    }

    /// Sends one request on a connection of its own, which is closed afterwards: to a server of any
    /// role.
    pub(crate) fn ask_once(&self, request: &Request) -> Result<Reply> {
        let (endpoint, _) = self.endpoint.find()?;
        let mut transport = Transport::connect(&endpoint, self.io_timeout)?;
        let replies = exchange(&mut transport, std::slice::from_ref(request));
        let mut replies = replies.map_err(|e| handshake_failed(&endpoint, e))?;
        fail_on_error(replies.remove(0))
    }

    /// Sends in one write: the client's name, questions about the server and about the user's
    /// rights, and the scripts to load. If the server knows this client already, the scripts and
    /// the probe are left out, unless it turns out to be another process, or another user.
    fn shake_hands(
        &self,
        mut transport: Box<Transport>,
        epoch: Option<Epoch>,
    ) -> Result<Connection> {
        let mut requests = vec![
            Request::plain(&["CLIENT", "SETNAME", &self.client_name]),
            Request::plain(&["CLIENT", "INFO"]),
            // An id that cannot exist: this only checks the permission.
            Request::plain(&["CLIENT", "KILL", "ID", "9223372036854775807"]),
            Request::plain(&["INFO", "server"]),
            Request::plain(&["INFO", "replication"]),
        ];
        let known = self.introduced.lock().clone();
        let loads = requests.len();
        // Until this is decided, a script of the other form is sent with its source when it is
        // first needed.
        let publishing = self.cluster.as_ref().and_then(|decided| decided.get().copied());
        if known.is_none() {
            requests.extend(self.loads(publishing));
        }
        let time = requests.len();
        requests.push(Request::plain(&["TIME"]));
        let undecided = self.cluster.is_some() && publishing.is_none();
        let probe = (known.is_none() && !undecided).then(|| {
            requests.push(self.handshake.probe.clone());
            requests.len() - 1
        });
        let memory = (!self.memory_seen.load(Ordering::Relaxed)).then(|| {
            requests.push(Request::plain(&["INFO", "memory"]));
            requests.len() - 1
        });
        let sharded = undecided.then(|| {
            // Redisson asks this as well: an error means that the server has no sharded channels,
            // or that the user may not use them.
            requests.push(Request::plain(&["PUBSUB", "SHARDNUMSUB", &self.client_name]));
            requests.len() - 1
        });

        // Asked by every connection, because there may be proxies.
        let fence = requests.len();
        requests.push(Fence::FIRST.request());

        let asked_at = self.clock.now();
        let mut replies =
            exchange_as(publishing.unwrap_or(Publishing::Classic), &mut transport, &requests)?;
        let answered_at = self.clock.now();

        let text = |i: usize| {
            if let Reply::Bytes(b) = &replies[i] { String::from_utf8_lossy(b) } else { "".into() }
        };
        let server = text(3);
        let replication = text(4);
        check_server(&server, &replication, self.cluster.is_some())?;
        if epoch.is_some() && field(&replication, "role:") != Some("master") {
            fail_on_error(replies[4].clone())?;
            let why = "the server does not report whether it is a master, which is required behind sentinels";
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        if let Some(memory) = memory {
            warn_of_eviction(&text(memory), self);
        }
        let publishing = self.cluster.as_ref().map_or(Publishing::Classic, |decided| {
            let has_sharded = sharded.is_some_and(|at| !matches!(replies[at], Reply::Error(_)));
            *decided
                .get_or_init(|| if has_sharded { Publishing::Sharded } else { Publishing::Classic })
        });
        check_loaded(&replies[loads..time])?;
        let run_id = field(&server, "run_id:").map(str::to_owned);
        let here = run_id.clone().zip(field(&text(1), "user=").map(str::to_owned));
        let by_source = match known {
            Some(known) if here.as_ref().is_some_and(|here| known.is_to(here)) => known.by_source,
            known => {
                let probed = probe.map(|at| replies[at].clone());
                let by_source =
                    self.introduce(&mut transport, publishing, known.is_some(), probed)?;
                *self.introduced.lock() =
                    here.map(|(run_id, user)| Introduction { run_id, user, by_source });
                by_source
            }
        };
        let id = field(&text(1), "id=").and_then(|id| id.parse().ok());
        let may_kill = matches!(replies[2], Reply::Int(_)) && run_id.is_some();
        let fences = Fence::FIRST.is_answered_by(&replies[fence]);
        let facts = ConnectionFacts {
            kill: id.filter(|_| may_kill),
            run_id,
            server_micros: server_time(fail_on_error(replies.swap_remove(time))?)?,
            asked_at,
            answered_at,
            publishing,
            by_source,
            fences,
            epoch,
            ended: AtomicBool::new(false),
        };
        transport.handshake_done()?;
        Ok(Connection::new(transport, facts, self.io_timeout, self.clock.clone()))
    }

    fn loads(&self, publishing: Option<Publishing>) -> impl Iterator<Item = Request> {
        let publishing = publishing.unwrap_or(Publishing::Classic);
        self.handshake
            .scripts
            .iter()
            .map(move |script| Request::plain(&["SCRIPT", "LOAD", script.source(publishing)]))
    }

    /// Has the user's rights checked, and first loads the scripts if the handshake left them out.
    /// `probed`: the reply to the probe, if the handshake had it. Returns whether scripts must be
    /// sent with their source.
    fn introduce(
        &self,
        transport: &mut Transport,
        publishing: Publishing,
        loads: bool,
        probed: Option<Reply>,
    ) -> Result<bool> {
        if loads {
            let loads: Vec<Request> = self.loads(Some(publishing)).collect();
            check_loaded(&exchange(transport, &loads)?)?;
        }
        let mut ask =
            |probe| exchange_as(publishing, transport, &[probe]).map(|mut all| all.remove(0));
        let mut probed = match probed {
            Some(probed) => probed,
            // The user needs the right to publish in the form that was just decided.
            None => ask(self.handshake.probe.clone())?,
        };
        // A proxy may not even know EVALSHA. EVAL alone is enough.
        let by_source = probed.is_unknown_command();
        if (by_source || probed.is_error("NOSCRIPT"))
            && let Some(whole) = self.handshake.probe.whole()
        {
            probed = ask(whole)?;
        }
        (self.handshake.check)(probed)?;
        Ok(by_source)
    }
}

/// A proxy may not know SCRIPT (Envoy): then each script is loaded when it first runs.
fn check_loaded(replies: &[Reply]) -> Result<()> {
    let refused = replies.iter().filter(|reply| !reply.is_unknown_command());
    refused.cloned().try_for_each(|reply| fail_on_error(reply).map(drop))
}

/// A field of `INFO` or `CLIENT INFO`.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split([' ', '\r', '\n']).find_map(|part| part.strip_prefix(name))
}

/// Sends all requests in one write and reads all replies.
pub(super) fn exchange(transport: &mut Transport, requests: &[Request]) -> Result<Vec<Reply>> {
    exchange_as(Publishing::Classic, transport, requests)
}

fn exchange_as(
    publishing: Publishing,
    transport: &mut Transport,
    requests: &[Request],
) -> Result<Vec<Reply>> {
    let mut out = Vec::new();
    for request in requests {
        request.write_as(&mut out, publishing);
    }
    transport.stream.meter.requests(requests.len() as u64);
    // A server that refuses the connection sends an error and closes it, maybe before our write.
    let sent = transport.send(&out);
    let mut replies = Vec::with_capacity(requests.len());
    for _ in requests {
        match transport.recv(None) {
            Ok(Reply::Error(e)) if e.refuses_connection() => return Err(e.into_error()),
            Ok(reply) => replies.push(reply),
            Err(error) => {
                return Err(match sent {
                    Err(unsent) => the_reason(unsent, error),
                    Ok(()) => error,
                });
            }
        }
    }
    sent.map(|()| replies)
}

/// Whether a server of this version, kind and role can store locks.
pub(crate) fn check_server(server: &str, replication: &str, in_cluster: bool) -> Result<()> {
    let unsupported =
        |what: &str, advice: Advice| Err(Error::new(ErrorKind::Unsupported, what).advise(advice));
    match field(server, "redis_mode:").or_else(|| field(server, "server_mode:")) {
        Some("cluster") if !in_cluster => {
            return unsupported("the server is a node of a cluster", Advice::ConnectToCluster);
        }
        Some("sentinel") => {
            return unsupported("the server is a sentinel", Advice::ConnectToSentinels);
        }
        Some(mode) if in_cluster && mode != "cluster" => {
            return unsupported("the server is not a node of a cluster", Advice::ConnectToServer);
        }
        _ => {}
    }
    if let Some(version) = field(server, "redis_version:") {
        let mut numbers = version.split('.').map_while(|n| n.parse::<u32>().ok());
        let version_pair = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if version_pair < (6, 2) {
            return unsupported(
                &format!("the server is Redis {version}"),
                "6.2 or later is needed".into(),
            );
        }
    }
    if field(replication, "role:") == Some("slave") {
        return Err(Error::new(
            ErrorKind::ReadOnly,
            "the server is a replica; connect to the primary",
        ));
    }
    Ok(())
}

/// A lock has a TTL, so every policy but `noeviction` may evict it.
fn warn_of_eviction(memory: &str, connector: &Connector) {
    let Some(policy) = field(memory, "maxmemory_policy:") else { return };
    let with_limit = field(memory, "maxmemory:").is_some_and(|bytes| bytes != "0");
    if !connector.memory_seen.swap(true, Ordering::Relaxed) && with_limit && policy != "noeviction"
    {
        log::warn!(
            "{:?} may evict locks when its memory is full, because its maxmemory-policy is {policy}; set it to \
             noeviction",
            connector.endpoint
        );
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::time::Instant;

    use super::super::endpoint::Endpoint;
    use super::*;
    use crate::signal::clock::SystemClock;

    /// Request connections and subscriptions have one limit for connect and handshake together,
    /// even if each byte of a reply comes in time.
    #[test]
    fn a_server_that_trickles_is_given_up_by_the_subscriber_as_well() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://u:p@{}/", listener.local_addr().unwrap());
        let timeout = Duration::from_millis(300);
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                // The first reply never ends, and each byte comes soon after the one before.
                let mut stream = stream.unwrap();
                let mut byte = b"+".to_vec();
                while stream.write_all(&byte).is_ok() {
                    std::thread::sleep(timeout / 10);
                    byte = b"x".to_vec();
                }
            }
        });
        let connector = Connector {
            endpoint: Endpoint::parse(&url).unwrap().into(),
            client_name: "test".into(),
            handshake: Handshake { scripts: &[], probe: Request::plain(&[]), check: |_| Ok(()) },
            io_timeout: timeout,
            clock: Arc::new(SystemClock),
            busy_poll: true,
            memory_seen: Arc::default(),
            introduced: Arc::default(),
            cluster: None,
        };
        let start = Instant::now();
        for error in
            [connector.connect().err().unwrap(), connector.subscribe(timeout).err().unwrap()]
        {
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error:?}");
            assert!(error.message().contains("io_timeout"), "{error}");
        }
        assert!(start.elapsed() < timeout * 10, "{:?}", start.elapsed());
        server.join().unwrap();
    }
}
