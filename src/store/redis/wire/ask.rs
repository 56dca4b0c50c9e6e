//! Asking several servers side by side: one that hangs must not cost the others anything.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::base::error::Result;

/// Asks every target on a thread of its own, which ends with its I/O, and collects the outcomes as
/// they come, each with the index of its target. Returns once `enough` accepts them, once all have
/// come, or after `timeout`. A target that has not answered by then is not waited for, and its
/// outcome is dropped. There is no outcome for a target whose `ask` panicked.
///
/// `ask` must bound its own I/O. If the system cannot start a thread, the caller asks that target
/// itself.
pub(crate) fn ask_all<X: Send + 'static, T: Send + 'static>(
    thread: &str,
    targets: Vec<X>,
    ask: impl Fn(X) -> Result<T> + Clone + Send + 'static,
    timeout: Duration,
    mut enough: impl FnMut(&[(usize, Result<T>)]) -> bool,
) -> Vec<(usize, Result<T>)> {
    let deadline = Instant::now() + timeout;
    let (sender, receiver) = channel();
    let mut outcomes = Vec::with_capacity(targets.len());
    for (place, target) in targets.into_iter().enumerate() {
        // The target is passed separately, so that it is still available if no thread starts.
        let (hand_over, target_of_thread) = channel();
        let ask_there = ask.clone();
        let sender = sender.clone();
        let spawned = std::thread::Builder::new().name(thread.to_owned()).spawn(move || {
            if let Ok(target) = target_of_thread.recv() {
                let _ = sender.send((place, ask_there(target)));
            }
        });
        match spawned {
            Ok(_) => drop(hand_over.send(target)),
            Err(_) => outcomes.push((place, ask(target))),
        }
    }
    drop(sender);
    while !enough(&outcomes) {
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(outcome) => outcomes.push(outcome),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::{Error, ErrorKind};

    const LONG: Duration = Duration::from_secs(60);

    /// The second target hangs until the test ends; the third fails, the fourth panics.
    #[test]
    fn one_that_hangs_costs_nothing() {
        let (end, ended) = channel::<()>();
        let ended = std::sync::Arc::new(parking_lot::Mutex::new(ended));
        let ask = move |target: u32| match target {
            1 => ended
                .lock()
                .recv()
                .map(|()| 1)
                .map_err(|_| Error::new(ErrorKind::Unreachable, "the test is over")),
            2 => Err(Error::new(ErrorKind::Denied, "no")),
            3 => panic!("the fourth"),
            other => Ok(other),
        };
        let start = Instant::now();
        let outcomes =
            ask_all("lh-test", vec![0, 1, 2, 3], ask.clone(), LONG, |outcomes| outcomes.len() == 2);
        let mut places: Vec<usize> = outcomes.iter().map(|(place, _)| *place).collect();
        places.sort_unstable();
        assert_eq!(places, [0, 2]);
        assert!(start.elapsed() < LONG);

        let some = ask_all("lh-test", vec![0, 1], ask.clone(), Duration::from_secs(3), |_| false);
        assert_eq!(some.len(), 1, "after the timeout");
        let all = ask_all("lh-test", vec![0, 2, 3], ask, LONG, |_| false);
        assert_eq!(all.len(), 2, "nobody is left to wait for");
        drop(end);
    }
}
