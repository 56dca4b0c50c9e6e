//! A client of nodes in this process that have nothing good to say.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::nodes::Cluster;
use super::topology::NodeAddress;
use crate::base::lock_name::Kind;
use crate::signal::clock::SystemClock;
use crate::store::redis::keys::Slot;
use crate::store::redis::script;
use crate::store::redis::wire::{Connector, Endpoint, Publishing};
use crate::store::{Received, Topic};

const LONG: Duration = Duration::from_secs(20);

fn cluster(port: u16) -> Arc<Cluster> {
    let publishing = OnceLock::from(Publishing::Sharded);
    let connector = Connector {
        endpoint: Endpoint::parse(&format!("redis://127.0.0.1:{port}")).unwrap().into(),
        client_name: "t".to_owned(),
        handshake: script::handshake(""),
        io_timeout: LONG,
        clock: Arc::new(SystemClock),
        busy_poll: true,
        memory_seen: Arc::default(),
        introduced: Arc::default(),
        cluster: Some(Arc::new(publishing)),
    };
    Arc::new(Cluster::new(connector.clone(), connector.clone(), &[connector], 1))
}

/// Runs `serve` for each connection. The thread ends with the process.
fn node(listener: TcpListener, serve: impl Fn(TcpStream) + Clone + Send + 'static) {
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            std::thread::spawn(move || serve(socket));
        }
    });
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Until both know of a move, each of two nodes may report that the other has the slot.
#[test]
fn a_subscription_that_is_sent_to_and_fro_is_not_sent_without_end() {
    let slot = Slot::for_key("l");
    let number = (0..16384).find(|number| Slot::new(*number) == Some(slot)).unwrap();
    let (nodes, asked) = ([listen(), listen()], Arc::new(AtomicU64::new(0)));
    let settled = Arc::new(AtomicU64::new(u64::MAX));
    let ports = [nodes[0].1, nodes[1].1];
    for (listener, port) in nodes {
        let other = if port == ports[0] { ports[1] } else { ports[0] };
        let (asked, settled) = (asked.clone(), settled.clone());
        node(listener, move |mut socket| {
            let mut requests = BufReader::new(socket.try_clone().unwrap()).lines();
            while let Some(Ok(line)) = requests.next() {
                let answer = match &*line {
                    "SETNAME" => "+OK\r\n".to_owned(),
                    "SSUBSCRIBE" => {
                        let channel = requests.nth(1).unwrap().unwrap();
                        if asked.fetch_add(1, Ordering::SeqCst) < settled.load(Ordering::SeqCst) {
                            format!("-MOVED {} 127.0.0.1:{other}\r\n", number)
                        } else {
                            let length = channel.len();
                            format!("*3\r\n$10\r\nssubscribe\r\n${length}\r\n{channel}\r\n:1\r\n")
                        }
                    }
                    _ => continue,
                };
                if socket.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        });
    }
    let cluster = cluster(ports[0]);
    cluster.note_moved(slot, &NodeAddress { host: "127.0.0.1".into(), port: ports[0] });
    let (mut subscriber, mut sender) = cluster.subscribe(Duration::from_millis(5)).unwrap();
    let topic = Topic { kind: Kind::Mutex, key: "l".into(), turn_of: None };
    sender.watch(&[&topic]).unwrap();
    let began = Instant::now();
    while asked.load(Ordering::SeqCst) < 3 || began.elapsed() < Duration::from_secs(1) {
        assert!(matches!(subscriber.receive().unwrap(), Received::Timeout | Received::Alive));
        assert!(began.elapsed() < LONG);
    }
    let so_far = asked.load(Ordering::SeqCst);
    // A second has room for eleven of the shortest pauses, which grow.
    assert!((3..50).contains(&so_far), "{so_far}");
    settled.store(0, Ordering::SeqCst);
    while subscriber.receive().unwrap() != Received::Watching(vec![topic.clone()]) {
        assert!(began.elapsed() < LONG);
    }
    sender.close();
}

/// As for one server: a hundred waiters must not connect a thousand times a second.
#[test]
fn a_client_without_a_map_pauses_after_a_failure() {
    let (listener, port) = listen();
    let connects = Arc::new(AtomicU64::new(0));
    let count = connects.clone();
    node(listener, move |_| _ = count.fetch_add(1, Ordering::SeqCst));
    let cluster = cluster(port);
    for _ in 0..1000 {
        assert!(cluster.refresh(0, None).is_err());
    }
    let so_far = connects.load(Ordering::SeqCst);
    assert!((1..100).contains(&so_far), "{so_far}");
    let began = Instant::now();
    while connects.load(Ordering::SeqCst) == so_far {
        assert!(cluster.refresh(0, None).is_err() && began.elapsed() < LONG);
    }
}
