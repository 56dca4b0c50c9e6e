//! The answers to requests that must not run twice, kept for as long as they may be repeated.

use std::sync::Arc;
use std::time::Duration;

use crate::base::lease::Moment;
use crate::os::HashMap;
use crate::store::CountAnswer;

/// With this many answers or more, expired ones are removed.
const SWEEP_AT: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Counted(CountAnswer),
    /// A rate was set, or a limiter deleted.
    Done,
    /// Permits without leases were taken.
    Taken,
    /// They were given back, or must not be taken in future.
    GivenBack,
    /// When a latch was opened last.
    Opened(i64),
}

/// By name and by the id of the request.
#[derive(Debug)]
pub(super) struct Answers {
    kept: HashMap<(Arc<str>, Box<str>), (Answer, Moment)>,
    sweep_at: usize,
}

impl Default for Answers {
    fn default() -> Self {
        Self { kept: HashMap::default(), sweep_at: SWEEP_AT }
    }
}

impl Answers {
    pub(super) fn get(&self, key: &Arc<str>, id: &str, now: Moment) -> Option<Answer> {
        let (answer, until) = self.kept.get(&(key.clone(), id.into()))?;
        (now < *until).then_some(*answer)
    }

    pub(super) fn keep(
        &mut self,
        key: &Arc<str>,
        id: &str,
        answer: Answer,
        how_long: Duration,
        now: Moment,
    ) {
        if self.kept.len() >= self.sweep_at {
            self.kept.retain(|_, (_, until)| now < *until);
            self.sweep_at = SWEEP_AT.max(2 * self.kept.len());
        }
        self.kept.insert((key.clone(), id.into()), (answer, now.plus(how_long)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_for_a_while() {
        let mut answers = Answers::default();
        let key = Arc::from("n");
        let second = Duration::from_secs(1);
        for n in 0..5 * SWEEP_AT as u64 {
            let now = Moment::from_nanos(n * 1_000_000_000);
            answers.keep(&key, &format!("{n}"), Answer::Taken, second, now);
            assert_eq!(answers.get(&key, &format!("{n}"), now), Some(Answer::Taken));
            assert_eq!(answers.get(&key, &format!("{n}"), now.plus(second)), None);
        }
        assert!(answers.kept.len() <= SWEEP_AT);
    }
}
