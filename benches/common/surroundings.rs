//! The load on the machine during a measurement: two hogs that keep the processor busy, a slow
//! network, and the usage by other programs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::player::{Player, lines, report};

/// Plays the roles of the processes of this file. False if it is none of them.
pub(crate) fn play(role: &[&str]) -> bool {
    match *role {
        ["hog"] => play_hog(),
        ["delay", server_port, micros] => {
            play_delay(
                server_port.parse().expect("a port"),
                Duration::from_micros(micros.parse().expect("a number")),
            );
        }
        _ => return false,
    }
    true
}

/// Starts as many processes as most machines here have cores. They end when the returned value is
/// dropped.
pub(crate) fn hogs() -> Vec<Player> {
    let mut hogs: Vec<_> = (0..2).map(|_| Player::start(&["hog"])).collect();
    for hog in &mut hogs {
        assert_eq!(hog.receive(), "ready");
    }
    hogs
}

fn play_hog() {
    std::thread::spawn(|| {
        report("ready");
        loop {
            std::hint::spin_loop();
        }
    });
    lines().for_each(drop);
}

/// A network with this delay in each direction between the clients and the server at this port: a
/// process of its own, so that it costs the clients no processor time. Returns it with its port.
pub(crate) fn delay(server_port: u16, one_way: Duration) -> (Player, u16) {
    let mut player =
        Player::start(&["delay", &server_port.to_string(), &one_way.as_micros().to_string()]);
    let port = player.receive().parse().expect("a port");
    (player, port)
}

fn play_delay(server_port: u16, one_way: Duration) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    report(&listener.local_addr().expect("bound").port().to_string());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a connection");
            let server =
                TcpStream::connect(("127.0.0.1", server_port)).expect("the server answers");
            for (from, to) in [(&client, &server), (&server, &client)] {
                to.set_nodelay(true).expect("a socket");
                carry(
                    from.try_clone().expect("a socket"),
                    to.try_clone().expect("a socket"),
                    one_way,
                );
            }
        }
    });
    lines().for_each(drop);
}

/// Uses two threads: data in transit must not delay the start of what follows.
fn carry(mut from: TcpStream, mut to: TcpStream, one_way: Duration) {
    let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = [0; 65536];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let _ = sender.send((Instant::now() + one_way, buffer[..count].to_vec()));
        }
    });
    std::thread::spawn(move || {
        for (due, bytes) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
}

/// The share of all cores that other programs use while this one is idle, between 0 and 1; `None`
/// without /proc.
pub(crate) fn used_by_others() -> Option<f64> {
    let (idle_before, all_before) = ticks()?;
    std::thread::sleep(Duration::from_millis(250));
    let (idle, all) = ticks()?;
    Some(1.0 - (idle - idle_before) as f64 / (all - all_before).max(1) as f64)
}

/// The idle ticks of the processor, and all ticks.
fn ticks() -> Option<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let all: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // The fourth is idle, the fifth waits for a disk; guests are included in the first two.
    Some((all.get(3)? + all.get(4)?, all.iter().take(8).sum()))
}
