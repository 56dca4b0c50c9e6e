//! `leasehold completions`.

use std::io::Write;

use clap_complete::Shell;

use crate::failure::{Failure, status};

/// Print the completions for a shell
///
/// For bash: leasehold completions bash > ~/.local/share/bash-completion/completions/leasehold
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

pub(crate) fn print(args: &CompletionsArgs, command: &mut clap::Command) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "leasehold", &mut script);
    write_out(&script)
}

/// To stdout. A reader that leaves early, such as `head`, wants no more.
pub(crate) fn write_out(text: &[u8]) -> Result<u8, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(status::UNAVAILABLE, format!("stdout cannot be written: {e}")))
        }
        _ => Ok(0),
    }
}
