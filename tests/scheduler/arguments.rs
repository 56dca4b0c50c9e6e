//! Parses the command line.

use std::path::PathBuf;
use std::time::Duration;

pub(crate) const HELP: &str = "\
sh tests/scheduler.sh [--seconds N] [--seed N] [--only TEXT] [--schedules N]
sh tests/scheduler.sh --generated [--seconds N] [--seed N]
sh tests/scheduler.sh --program FILE [--seconds N] [--seed N]
sh tests/scheduler.sh --replay FILE
sh tests/scheduler.sh --list

  --seconds N      the time to run in seconds; 10 by default
  --seed N         repeat the schedules of a run
  --only TEXT      the scenarios with this in their name
  --schedules N    stop after N schedules of each scenario instead of after a time
  --generated      only generated programs, no scenarios; otherwise each has half of the time
  --program FILE   many schedules of a generated program, as a failure prints it
  --first          stop at the first failure; otherwise the other scenarios continue
  --replay FILE    repeat a schedule that failed
  --list           list the scenarios";

#[derive(Debug, Clone)]
pub(crate) struct Arguments {
    pub(crate) duration: Duration,
    pub(crate) seed: Option<u64>,
    pub(crate) only: String,
    pub(crate) schedules: Option<usize>,
    pub(crate) replay: Option<PathBuf>,
    pub(crate) generated: bool,
    pub(crate) program: Option<PathBuf>,
    pub(crate) list: bool,
    pub(crate) first: bool,
}

impl Arguments {
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut arguments = Self {
            duration: Duration::from_secs(10),
            seed: None,
            only: String::new(),
            schedules: None,
            replay: None,
            generated: false,
            program: None,
            list: false,
            first: false,
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut value =
                || words.next().ok_or_else(|| format!("{word} needs a value\n\n{HELP}"));
            let number = |text: String| {
                text.parse().map_err(|_| format!("{text:?} is not a number\n\n{HELP}"))
            };
            match &*word {
                "--seconds" => arguments.duration = Duration::from_secs(number(value()?)?),
                "--seed" => arguments.seed = Some(number(value()?)?),
                "--only" => arguments.only = value()?,
                "--schedules" => arguments.schedules = Some(number(value()?)? as usize),
                "--replay" => arguments.replay = Some(value()?.into()),
                "--generated" => arguments.generated = true,
                "--program" => arguments.program = Some(value()?.into()),
                "--first" => arguments.first = true,
                "--list" => arguments.list = true,
                _ => return Err(format!("{word:?} is unknown\n\n{HELP}")),
            }
        }
        Ok(arguments)
    }
}
