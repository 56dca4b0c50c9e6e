//! Directories and ports that nothing else uses.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The range of the ports lies outside of the one from which the kernel takes ports for outgoing
/// connections: such a connection could take the port of a server that a test restarts.
const FIRST: u32 = 10_000;
const COUNT: u32 = 10_000;
/// The distance from the port of a cluster node to the port of its bus.
pub const TO_BUS: u16 = 10_000;

/// A directory for results that are expensive to make and kept for later runs: `tmp` in the target
/// directory of this program. It equals cargo's `CARGO_TARGET_TMPDIR`, which only test targets
/// receive.
pub fn kept_dir() -> PathBuf {
    // target/debug/deps/program
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(3).expect("it is a program that cargo built").join("tmp")
}

pub fn fresh_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("lh-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A free TCP port of 127.0.0.1 whose port for a cluster's bus is free too. This process uses each
/// port once; another process may take it before the server does.
pub fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU32> =
        LazyLock::new(|| AtomicU32::new(rand::random_range(0..COUNT)));
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut candidates =
        std::iter::repeat_with(|| FIRST + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT);
    candidates
        .find_map(|port| {
            u16::try_from(port).ok().filter(|port| is_free(*port) && is_free(port + TO_BUS))
        })
        .unwrap()
}
