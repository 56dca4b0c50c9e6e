//! Notices when the machine stands still: a virtual machine that is paused, a disk that blocks, more
//! threads than it can run. Nobody can answer in time then, and no process is to blame.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use crate::event::{Nanos, millis, now};
use crate::rig::ms;

/// A thread that is ready runs at the latest after this, on a machine that does not stand still.
const LATEST: Nanos = millis(150);

pub(super) struct Pulse {
    stop: Sender<()>,
    thread: JoinHandle<Vec<(Nanos, Nanos)>>,
}

impl Pulse {
    pub(super) fn begin() -> Self {
        let (stop, stopped) = channel();
        let beat = move || {
            let (mut stalls, mut last) = (Vec::new(), now());
            loop {
                let goes_on = stopped.recv_timeout(ms(20)) == Err(RecvTimeoutError::Timeout);
                let beats = now();
                if beats - last > LATEST {
                    stalls.push((last, beats));
                }
                if !goes_on {
                    return stalls;
                }
                last = beats;
            }
        };
        Self { stop, thread: std::thread::spawn(beat) }
    }

    /// When it stood still.
    pub(super) fn end(self) -> Vec<(Nanos, Nanos)> {
        drop(self.stop);
        self.thread.join().unwrap()
    }
}
