//! A name server that is often slow.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold::testing::look_up_by;

use crate::rig::ms;

const HOST: &str = "slow.test";

/// From now on these URLs name the machine, which only this process knows by that name. The first
/// answer comes at once: without any earlier address a client has to wait.
pub(super) fn name_the_machine(urls: &mut [String]) {
    for url in urls {
        *url = url.replace("127.0.0.1", HOST);
    }
    let was_asked = AtomicBool::new(false);
    look_up_by(HOST, move || {
        if was_asked.swap(true, Ordering::SeqCst) {
            std::thread::sleep(ms([0, 0, 0, 40, 300, 3000][rand::random_range(0..6)]));
        }
        Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)])
    });
}
