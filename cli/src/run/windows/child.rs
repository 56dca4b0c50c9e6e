//! The command, in a job object of its own.

use std::io;
use std::process::ExitStatus;

use process_wrap::std::{ChildWrapper, CommandWrap, JobObject};

use crate::failure::Failure;
use crate::run::args::RunArgs;
use crate::run::command::{Environment, cannot_start, under_lock};

/// How a program ends that does not handle Ctrl-C (STATUS_CONTROL_C_EXIT).
const ENDED_BY_CTRL_C: u32 = 0xC000_013A;

/// If it is dropped while the command runs, it ends the command: a run whose thread panics must not
/// release the lock earlier.
pub(crate) struct Child {
    process: Box<dyn ChildWrapper>,
    has_ended: bool,
}

/// How the command ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Exited(u8),
    Interrupted,
}

impl Child {
    /// The process is in the job before it runs, so that no process which it starts is outside.
    /// The job does not end it when this process ends.
    pub(crate) fn start(
        args: &RunArgs,
        guard: &dyn leasehold::Held,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let mut command = CommandWrap::from(under_lock(args, guard, environment));
        command.wrap(JobObject);
        let started = command.spawn().map(|process| Self { process, has_ended: false });
        started.map_err(|e| cannot_start(&args.command, &e))
    }

    /// Ends all processes of the job.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.process.start_kill()
    }

    /// How the command has ended, if it has. Processes that it has started may go on.
    pub(super) fn end(&mut self) -> io::Result<Option<End>> {
        let end = self.process.try_wait()?.map(End::from);
        self.has_ended = end.is_some();
        Ok(end)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.has_ended && self.kill().is_ok() {
            let _ = self.process.wait();
        }
    }
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        match status.code().unwrap_or(-1).cast_unsigned() {
            ENDED_BY_CTRL_C => Self::Interrupted,
            code => Self::Exited(u8::try_from(code).unwrap_or(u8::MAX)),
        }
    }
}
