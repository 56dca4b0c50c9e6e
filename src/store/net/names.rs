//! Host names of servers, looked up while nobody waits for longer than it can.
//!
//! The system looks names up without a limit: with a name server that is away, 20 s are usual. A
//! thread that renews would lose its locks meanwhile, although the server is well.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Instant;

use super::limits::LateName;
use super::question::{Answer, Question, WhichAnswer};
use crate::base::log;
use crate::os::{self, HashMap, Mutex};
use crate::report::traffic::Traffic;

/// What all connections of one client share.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) traffic: Arc<Traffic>,
    pub(super) names: Names,
}

impl Network {
    /// Its connections add to this traffic.
    pub(crate) fn counted_in(traffic: &Arc<Traffic>) -> Arc<Self> {
        Arc::new(Self { traffic: traffic.clone(), names: Names::default() })
    }
}

/// The addresses of a name, or the system's reason why there are none.
type Found = Result<Arc<[SocketAddr]>, String>;

/// The names that one client has looked up, each with its last addresses.
///
/// They are looked up again for each connect, because a name may lead to another server now. The
/// last addresses are used when the answer is late or is an error: a name server that is away says
/// nothing about the server. For a name that has moved meanwhile they are what a name server with a
/// cache would have answered.
#[derive(Default)]
pub(super) struct Names(Mutex<HashMap<String, Arc<Question<Found>>>>);

impl Names {
    /// The addresses of a host. Blocks until `until` at most; if earlier addresses are known, for a
    /// quarter of the time.
    ///
    /// # Errors
    /// The system's, or a timeout.
    pub(super) fn resolve(
        &self,
        host: &str,
        port: u16,
        until: Instant,
    ) -> io::Result<Vec<SocketAddr>> {
        self.resolve_by(host, port, until, look_up)
    }

    fn resolve_by(
        &self,
        host: &str,
        port: u16,
        until: Instant,
        look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![(ip, port).into()]);
        }
        let began = os::now();
        let name = self.name(host);
        let owned = host.to_owned();
        let question = move || look_up(&owned).map(Into::into).map_err(|e| e.to_string());
        let found = match name.ask(WhichAnswer::Next, until, question) {
            Answer { came: Some(Ok(found)), .. } if !found.is_empty() => found,
            Answer { came, kept: Some(Ok(kept)) } => {
                let why = came.map_or("the name server has not answered yet".to_owned(), why_not);
                log::debug!("{host:?} was not looked up, its last addresses are used: {why}");
                kept
            }
            Answer { came: Some(came), .. } => return Err(io::Error::other(why_not(came))),
            Answer { came: None, .. } => return Err(LateName(os::since(began)).into()),
        };
        Ok(found.iter().map(|address| with_port(*address, port)).collect())
    }

    fn name(&self, host: &str) -> Arc<Question<Found>> {
        let is_found = |found: &Found| found.as_ref().is_ok_and(|addresses| !addresses.is_empty());
        let mut names = self.0.lock();
        names
            .entry(host.to_owned())
            .or_insert_with(|| Arc::new(Question::new("lh-name", is_found)))
            .clone()
    }
}

fn why_not(found: Found) -> String {
    found.err().unwrap_or_else(|| "the host name has no address".to_owned())
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// The system's answer, however long it takes.
fn look_up(host: &str) -> io::Result<Vec<SocketAddr>> {
    #[cfg(feature = "testing")]
    if let Some(stands_in) = stand_ins::of(host) {
        return Ok(stands_in()?.into_iter().map(|ip| (ip, 0).into()).collect());
    }
    (host, 0).to_socket_addrs().map(Iterator::collect)
}

/// Names that a test answers: a name server that hangs cannot be had otherwise.
#[cfg(feature = "testing")]
pub(crate) mod stand_ins {
    use std::io;
    use std::net::IpAddr;
    use std::sync::Arc;

    use parking_lot::Mutex;

    type Answers = Arc<dyn Fn() -> io::Result<Vec<IpAddr>> + Send + Sync>;

    static STAND_INS: Mutex<Vec<(String, Answers)>> = Mutex::new(Vec::new());

    pub(crate) fn add(host: &str, answers: Answers) {
        STAND_INS.lock().push((host.to_owned(), answers));
    }

    pub(super) fn of(host: &str) -> Option<Answers> {
        STAND_INS.lock().iter().find(|(name, _)| name == host).map(|(_, answers)| answers.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::super::limits::no_answer;
    use super::*;

    type Answer = io::Result<Vec<SocketAddr>>;

    fn within(
        names: &Names,
        time: Duration,
        look_up: impl FnOnce() -> Answer + Send + 'static,
    ) -> Answer {
        names.resolve_by("a", 7, Instant::now() + time, |_| look_up())
    }

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 9], port).into()
    }

    #[test]
    fn a_name_that_is_late_or_fails_leads_to_its_last_addresses() {
        let (names, long, short) =
            (Names::default(), Duration::from_secs(60), Duration::from_millis(40));
        let fails = || Err(io::Error::other("no such name"));
        assert_eq!(within(&names, long, fails).unwrap_err().to_string(), "no such name");
        assert_eq!(
            within(&names, long, || Ok(vec![])).unwrap_err().to_string(),
            "the host name has no address"
        );

        let (answer, answers) = channel();
        let late = within(&names, short, move || Ok(answers.recv().unwrap())).unwrap_err();
        assert!(no_answer(&late).unwrap().contains("name server"), "{late}");
        answer.send(vec![address(0)]).unwrap();
        // The next look-up begins after that answer, which nobody waited for.
        let addresses = || within(&names, long, fails).unwrap();
        while addresses() != [address(7)] {}
        assert_eq!(within(&names, long, || Ok(vec![])).unwrap(), [address(7)]);
        let (_hangs, answers) = channel::<()>();
        let hangs = move || answers.recv().map(|()| vec![]).map_err(io::Error::other);
        assert_eq!(within(&names, short, hangs).unwrap(), [address(7)]);
    }

    #[test]
    fn an_ip_address_is_not_looked_up() {
        let names = Names::default();
        for host in ["127.0.0.1", "::1"] {
            let found =
                names.resolve_by(host, 7, Instant::now(), |_| panic!("it was looked up")).unwrap();
            assert_eq!(found, [SocketAddr::new(host.parse().unwrap(), 7)]);
        }
    }

    #[test]
    fn the_system_looks_names_up_and_the_port_is_that_of_the_url() {
        let later = Instant::now() + Duration::from_secs(60);
        let found = Names::default().resolve("localhost", 7, later).unwrap();
        assert!(!found.is_empty(), "{found:?}");
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 7));
    }

    #[test]
    fn the_connections_of_a_network_are_counted_together() {
        let traffic = Arc::new(Traffic::default());
        let network = Network::counted_in(&traffic);
        assert!(Arc::ptr_eq(&network.traffic, &traffic));
    }
}
