//! `leasehold completions`.

use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::write_out;

/// Print the completion script for a shell
///
/// For bash: leasehold completions bash > ~/.local/share/bash-completion/completions/leasehold
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    shell: Shell,
}

pub(crate) fn print(args: &CompletionsArgs, command: &mut clap::Command) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "leasehold", &mut script);
    write_out(&script).map(|_| 0)
}
