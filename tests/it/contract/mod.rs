//! What every primitive that can be an exclusive lock promises: one suite that runs over all of
//! them.
//!
//! Each test has a server for each primitive, so that what one leaves behind cannot be mistaken for
//! another's.

mod exclusion;
mod in_memory;
mod leases;
mod lost_replies;
mod min_hold;
#[cfg(feature = "postgres")]
mod on_postgres;
#[cfg(feature = "zookeeper")]
mod on_zookeeper;
pub(crate) mod primitives;
mod waits;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::{Builder, ErrorKind, LockClient};

use self::in_memory::Memory;
use self::primitives::{EXCEPTIONS, Exclusive, Guard, Held, PRIMITIVES, Primitive};
use crate::rig::{CAP, Certificates, Cluster, ClusterOptions, Fault, Proxy, Server, ms, sentinel_of, wait_until};
use crate::support::Masters;

/// Short enough to wait for, long enough to be renewed on a busy machine.
const SHORT: Duration = ms(900);
/// So long that no test can pass because a lease ended.
const LONG: Duration = Duration::from_secs(120);
/// Far more time than anything takes that does not wait for a lease of [`LONG`].
const SOON: Duration = Duration::from_secs(10);

/// One primitive on servers of its own, or in memory.
struct Case {
    primitive: &'static Primitive,
    name: String,
    /// None for a primitive in memory. In a cluster the owner of the name comes first.
    servers: Masters,
    memory: Option<Memory>,
    /// None for a primitive on servers of its own, or in memory.
    elsewhere: Option<Arc<dyn Elsewhere>>,
    /// Of servers with TLS.
    certificates: Option<Certificates>,
    /// Names the server.
    sentinel: Option<(Server, String)>,
}

/// A server of another kind, which all rows of a test share.
trait Elsewhere: Send + Sync {
    fn what(&self) -> &'static str;
    fn url(&self) -> String;
    /// What its clients need by default.
    fn builder(&self, builder: Builder) -> Builder;
    /// After the last row.
    fn assert_clean(&self);
    fn network(&self) -> Network;
    /// What stands under a name.
    fn held(&self, name: &str) -> Vec<String>;
    fn delete(&self, name: &str);
    /// Whether another client waits for a name, and hears of its release. `client`: its name.
    fn is_waited_for(&self, client: &str, name: &str) -> bool;
}

/// Those that are installed here.
fn elsewhere() -> Vec<Arc<dyn Elsewhere>> {
    let all: Vec<Option<Arc<dyn Elsewhere>>> = vec![
        #[cfg(feature = "postgres")]
        on_postgres::start(),
        #[cfg(feature = "zookeeper")]
        on_zookeeper::start(),
    ];
    all.into_iter().flatten().collect()
}

/// The network between a client and its servers.
struct Network {
    proxies: Vec<Arc<Proxy>>,
    /// Nodes of a cluster, which announce their proxies; or what else leads to the proxy.
    nodes: Vec<String>,
    /// Names the proxy.
    sentinel: Option<(Server, String)>,
    /// In front of the proxies, which do not understand TLS.
    #[cfg(feature = "tls")]
    fronts: Vec<crate::rig::TlsFront>,
}

impl Network {
    /// A proxy that reads and writes another protocol, and the URL that leads to it.
    #[cfg(any(feature = "postgres", feature = "zookeeper"))]
    fn of(proxy: Proxy, url: String) -> Self {
        Self {
            proxies: vec![Arc::new(proxy)],
            nodes: vec![url],
            sentinel: None,
            #[cfg(feature = "tls")]
            fronts: Vec::new(),
        }
    }

    fn start(case: &Case) -> Self {
        if let Some(elsewhere) = &case.elsewhere {
            return elsewhere.network();
        }
        let start = if case.primitive.by_sentinel { Proxy::before } else { Proxy::start };
        let in_cluster = case.primitive.in_cluster;
        let proxies: Vec<Arc<Proxy>> = match in_cluster {
            true => vec![case.server().shared_proxy()],
            false => case.servers.0.iter().map(start).map(Arc::new).collect(),
        };
        Self {
            nodes: if in_cluster { case.urls() } else { Vec::new() },
            sentinel: case.primitive.by_sentinel.then(|| sentinel_of(proxies[0].port())),
            #[cfg(feature = "tls")]
            fronts: case
                .certificates
                .iter()
                .flat_map(|certificates| proxies.iter().map(|proxy| crate::rig::TlsFront::of(certificates, proxy)))
                .collect(),
            proxies,
        }
    }

    fn urls(&self) -> Vec<String> {
        if let Some((_, url)) = &self.sentinel {
            return vec![url.clone()];
        }
        if !self.nodes.is_empty() {
            return self.nodes.clone();
        }
        #[cfg(feature = "tls")]
        if !self.fronts.is_empty() {
            return self.fronts.iter().map(crate::rig::TlsFront::url).collect();
        }
        self.proxies.iter().map(|proxy| proxy.url()).collect()
    }

    fn inject_after(&self, word: &str, skip: u32, fault: Fault) {
        self.proxies.iter().for_each(|proxy| proxy.inject_after(word, skip, fault));
    }

    fn inject(&self, word: &str, fault: Fault) {
        self.inject_after(word, 0, fault);
    }

    fn wait_hits(&self, n: u32) {
        self.proxies.iter().for_each(|proxy| proxy.wait_hits(n));
    }

    fn silence(&self, silent: bool) {
        self.proxies.iter().for_each(|proxy| proxy.silence(silent));
    }
}

/// `ca`: of servers with TLS.
fn builder(primitive: &Primitive, urls: &[String], ca: Option<&Path>) -> Builder {
    let builder = match primitive.masters {
        1 if primitive.in_cluster => LockClient::builder().urls(urls).cluster(),
        1 => LockClient::builder().url(&urls[0]),
        // Tests of their own cover masters that lost their data.
        _ => LockClient::builder().urls(urls).redlock().longest_lease(LONG).admit_fresh_nodes(),
    };
    match ca {
        None => builder,
        #[cfg(feature = "tls")]
        Some(ca) => builder.tls(leasehold::Tls::new().ca_file(ca)),
        #[cfg(not(feature = "tls"))]
        Some(_) => unreachable!("no row has TLS"),
    }
}

/// Three primaries behind proxies, the owner of the name first. While a test suspends them they do
/// not find each other dead.
fn primaries(name: &str) -> Masters {
    let options = ClusterOptions { replicas: false, proxies: true, node_timeout: 60_000, ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options);
    let owner = cluster.owner(cluster.slot(name));
    let mut nodes = cluster.into_nodes();
    nodes.swap(0, owner);
    Masters(nodes)
}

impl Case {
    fn new(primitive: &'static Primitive) -> Self {
        let certificates = primitive.over_tls.then(Certificates::new);
        let servers = match &certificates {
            Some(certificates) => {
                Masters((0..primitive.masters).map(|_| Server::start_tls(certificates, &[])).collect())
            }
            None if primitive.by_sentinel => Masters(vec![Server::start_tcp(&[])]),
            None if primitive.in_cluster => primaries(&format!("the-{}", primitive.label)),
            None => Masters::start(primitive.masters),
        };
        let sentinel = primitive.by_sentinel.then(|| sentinel_of(servers.0[0].port()));
        let name = format!("the-{}", primitive.label);
        let case = Self { primitive, name, servers, memory: None, elsewhere: None, certificates, sentinel };
        case.prepare();
        case
    }

    fn in_memory(primitive: &'static Primitive) -> Self {
        let (servers, memory) = (Masters(Vec::new()), Some(Memory::new()));
        let name = format!("the-{}", primitive.label);
        let case = Self { primitive, name, servers, memory, elsewhere: None, certificates: None, sentinel: None };
        case.prepare();
        case
    }

    fn elsewhere(primitive: &'static Primitive, elsewhere: Arc<dyn Elsewhere>) -> Self {
        let (servers, elsewhere) = (Masters(Vec::new()), Some(elsewhere));
        let name = format!("the-{}", primitive.label);
        let case = Self { primitive, name, servers, memory: None, elsewhere, certificates: None, sentinel: None };
        case.prepare();
        case
    }

    fn prepare(&self) {
        let client = match &self.memory {
            Some(memory) => memory.client(LockClient::builder()),
            None => self.client(|builder| builder),
        };
        (self.primitive.prepare)(&client, &self.name);
        if self.primitive.masters > 1 {
            self.servers.wait_until_all_vote();
        }
    }

    /// The first or only server.
    fn server(&self) -> &Server {
        &self.servers.0[0]
    }

    fn client(&self, settings: impl FnOnce(Builder) -> Builder) -> LockClient {
        match &self.memory {
            Some(memory) => memory.client(settings(LockClient::builder())),
            None => settings(self.builder(&self.urls())).build().unwrap(),
        }
    }

    fn urls(&self) -> Vec<String> {
        if let Some(elsewhere) = &self.elsewhere {
            return vec![elsewhere.url()];
        }
        if self.primitive.in_cluster {
            return self.servers.0.iter().map(Server::announced_url).collect();
        }
        self.sentinel.as_ref().map_or_else(|| self.servers.urls(), |(_, url)| vec![url.clone()])
    }

    fn builder(&self, urls: &[String]) -> Builder {
        let builder = builder(self.primitive, urls, self.ca_file().as_deref()).client_name(self.primitive.label);
        self.elsewhere.as_ref().map_or(builder.clone(), |elsewhere| elsewhere.builder(builder))
    }

    fn ca_file(&self) -> Option<PathBuf> {
        self.certificates.as_ref().map(Certificates::ca_file)
    }

    /// A lock of a new client with a lease that outlasts the test.
    fn open(&self) -> Box<dyn Exclusive> {
        self.open_with(|builder| builder.lease(LONG))
    }

    fn open_with(&self, settings: impl FnOnce(Builder) -> Builder) -> Box<dyn Exclusive> {
        (self.primitive.open)(self.client(settings), &self.name, None)
    }

    fn open_through(&self, network: &Network, settings: impl FnOnce(Builder) -> Builder) -> Box<dyn Exclusive> {
        (self.primitive.open)(settings(self.builder(&network.urls())).build().unwrap(), &self.name, None)
    }

    /// The keys of holders and waiters, on a majority: one of several masters may lag behind.
    fn keys(&self) -> Vec<String> {
        if let Some(memory) = &self.memory {
            return memory.held();
        }
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.held(&self.name);
        }
        let stays: Vec<_> = self.primitive.stays.iter().map(|key| key.replace("{}", &self.name)).collect();
        let mut keys: Vec<String> = self.servers.0.iter().flat_map(Server::lock_keys).collect();
        keys.retain(|key| !stays.contains(key));
        keys.sort();
        let of_most = keys.chunk_by(|a, b| a == b).filter(|same| same.len() > self.primitive.masters / 2);
        of_most.map(|same| same[0].clone()).collect()
    }

    fn delete_keys(&self) {
        if let Some(elsewhere) = &self.elsewhere {
            elsewhere.delete(&self.name);
        }
        for server in &self.servers.0 {
            for key in server.lock_keys() {
                server.cmd::<u32>(&["DEL", &key]);
            }
        }
    }

    /// As after a failover to a replica that lagged: the holder's keys are gone, the prepared keys
    /// are restored.
    fn forget(&self, all: bool) {
        if let Some(memory) = &self.memory {
            return memory.lose_all();
        }
        if all && self.elsewhere.is_none() {
            self.servers.0.iter().for_each(|server| server.cmd::<()>(&["FLUSHALL"]));
        } else {
            self.delete_keys();
        }
        self.prepare();
    }

    /// Waits until a waiter of another client has subscribed; a fair lock subscribes to a pattern.
    fn wait_for_a_waiter(&self) {
        wait_until(&format!("{}: a waiter is subscribed", self.primitive.label), || {
            if let Some(memory) = &self.memory {
                return memory.is_waited_for(&self.name);
            }
            if let Some(elsewhere) = &self.elsewhere {
                return elsewhere.is_waited_for(self.primitive.label, &self.name);
            }
            !crate::cluster::channels(self.server()).is_empty() || self.server().cmd::<u32>(&["PUBSUB", "NUMPAT"]) > 0
        });
    }

    #[track_caller]
    fn assert_free(&self, why: &str) {
        assert_eq!(self.keys(), [""; 0], "{}: {why}", self.primitive.label);
        let taken = self.open().try_lock().unwrap().is_some();
        assert!(taken, "{}: {why}, so it can be taken", self.primitive.label);
    }

    fn end(self) {
        let few = |server: &Server| server.lock_keys().len() <= self.primitive.stays.len();
        wait_until(&format!("{} leaves nothing", self.primitive.label), || {
            self.keys().is_empty() && self.servers.0.iter().all(few)
        });
        let left: Vec<String> = self.servers.0.iter().flat_map(Server::lock_keys).collect();
        assert!(self.primitive.masters == 1 || left.is_empty(), "{} leaves {left:?}", self.primitive.label);
        self.delete_keys();
        self.servers.assert_clean();
    }
}

/// Runs a test over all primitives on servers in parallel, and checks that nothing is left behind.
fn for_all(point: impl Fn(&mut Case) + Sync) {
    run_all(false, true, point);
}

/// The same without servers of other kinds, which all rows share: the test stops the server, or
/// empties it by a restart.
fn for_all_with_own_server(point: impl Fn(&mut Case) + Sync) {
    run_all(false, false, point);
}

/// Over all primitives on servers, elsewhere and in memory.
fn everywhere(point: impl Fn(&mut Case) + Sync) {
    run_all(cfg!(feature = "testing"), true, point);
}

fn run_all(in_memory: bool, elsewhere_too: bool, point: impl Fn(&mut Case) + Sync) {
    for elsewhere in if elsewhere_too { elsewhere() } else { Vec::new() } {
        let plain: Vec<_> = PRIMITIVES.iter().filter(|primitive| primitive.is_plain_row()).collect();
        // A few at once: they share the server, and each has connections of its own there.
        for rows in plain.chunks(3) {
            let failed = run_rows(rows, |primitive| {
                run_case(Case::elsewhere(primitive, elsewhere.clone()), &point);
            });
            assert!(failed.is_empty(), "{} not kept by {failed:?}", elsewhere.what());
        }
        elsewhere.assert_clean();
    }
    let has_tls = cfg!(feature = "tls") && Server::has_tls();
    let rows: Vec<_> = PRIMITIVES.iter().filter(|primitive| has_tls || !primitive.over_tls).collect();
    let failed = run_rows(&rows, |primitive| {
        if in_memory && primitive.is_plain_row() {
            println!("{} in memory", primitive.label);
            run_case(Case::in_memory(primitive), &point);
        }
        run_case(Case::new(primitive), &point);
    });
    assert!(failed.is_empty(), "not kept by {failed:?}");
}

fn run_case(mut case: Case, point: &impl Fn(&mut Case)) {
    point(&mut case);
    case.end();
}

/// The rows in which the test failed.
fn run_rows(rows: &[&'static Primitive], run: impl Fn(&'static Primitive) + Sync) -> Vec<&'static str> {
    std::thread::scope(|s| {
        let spawn = |primitive: &&'static Primitive| {
            let (run, primitive) = (&run, *primitive);
            // A panic message begins with the name of its thread.
            let thread = std::thread::Builder::new().name(primitive.label.into());
            (primitive.label, thread.spawn_scoped(s, move || run(primitive)).unwrap())
        };
        let threads: Vec<_> = rows.iter().map(spawn).collect();
        threads.into_iter().filter_map(|(label, thread)| thread.join().is_err().then_some(label)).collect()
    })
}

/// With a longer I/O timeout than the default of a quarter of the lease: the lease must be the
/// first to end.
fn short(builder: Builder) -> Builder {
    builder.lease(SHORT).io_timeout(ms(800))
}

/// Counts how often the loss of a hold is reported.
fn count_losses(guard: &dyn Held) -> Arc<AtomicU32> {
    let reported = Arc::new(AtomicU32::new(0));
    let count = reported.clone();
    guard.on_lost(Box::new(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    }));
    reported
}

/// Checks that a hold reports its loss in every way, and unlocks it.
#[track_caller]
fn assert_lost(primitive: &str, guard: Guard, reported: &AtomicU32) {
    assert!(guard.wait_lost(CAP), "{primitive}: wait_lost");
    assert!(!guard.is_held(), "{primitive}: is_held");
    assert_eq!(guard.remaining(), Duration::ZERO, "{primitive}: remaining");
    assert_eq!(guard.ensure_held().unwrap_err().kind(), ErrorKind::Lost, "{primitive}: ensure_held");
    wait_until(&format!("{primitive}: the callback has run"), || reported.load(Ordering::SeqCst) == 1);
    let late = count_losses(&*guard);
    wait_until(&format!("{primitive}: a late callback has run"), || late.load(Ordering::SeqCst) == 1);
    assert_eq!(guard.extend(LONG).unwrap_err().kind(), ErrorKind::Lost, "{primitive}: extend");
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost, "{primitive}: unlock");
}

/// A failure of the connection or the server leaves the outcome unknown; any other error would be a
/// wrong answer.
#[track_caller]
fn assert_unasked(what: &str, error: &leasehold::Error) {
    assert!(
        matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::NoQuorum | ErrorKind::Protocol),
        "{what}: {error:?}"
    );
}

/// Every method that waits for something is in the table or among the exceptions, so that a new
/// primitive cannot be forgotten.
#[test]
fn every_waiting_method_is_in_the_contract_or_excepted_with_a_reason() {
    let mut found = BTreeSet::new();
    let mut files = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.extend(waiting_methods(&std::fs::read_to_string(path).unwrap()));
        }
    }
    let reported: BTreeSet<String> = PRIMITIVES.iter().map(|primitive| primitive.method.to_owned()).collect();
    let except: BTreeSet<String> = EXCEPTIONS.iter().map(|(method, _)| (*method).to_owned()).collect();
    assert!(reported.is_disjoint(&except));
    let known: BTreeSet<String> = reported.union(&except).cloned().collect();
    assert_eq!(found, known, "methods of the sources (left), and of the table and its exceptions (right)");
}

/// `Type.method` for everything in public types that waits: the methods that macros make in four
/// forms, and those with one of these names.
fn waiting_methods(source: &str) -> Vec<String> {
    const NAMES: [&str; 3] = ["lock", "acquire", "wait"];
    let is_word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let (mut found, mut owner, mut public) = (Vec::new(), "", BTreeSet::new());
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("pub struct ") {
            public.insert(rest.split(|c: char| !c.is_alphanumeric()).next().unwrap());
        }
        if let Some(rest) = line.strip_prefix("impl ") {
            owner = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap();
        }
        let line = line.trim();
        let method = line.strip_prefix("pub fn ").and_then(|rest| rest.split_once("(&self")).map(|(name, _)| name);
        let method = method.filter(|name| NAMES.contains(name));
        // `name, try_name, ..`
        let block = line.split_once(", try_").map(|(name, _)| name).filter(|name| is_word(name));
        let method = method.or(block.filter(|_| line.contains("_until(")));
        if let Some(method) = method.filter(|_| public.contains(owner)) {
            found.push(format!("{owner}.{method}"));
        }
    }
    found
}
