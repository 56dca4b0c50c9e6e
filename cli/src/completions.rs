//! `leasehold completions`.

use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::write_out;

/// What follows `--` is a command of its own, which clap's script for bash does not complete. Also
/// for bash 3.2, which macOS has, and with or without the package bash-completion.
const BASH: &str = r#"
_leasehold_or_command() {
    local i
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -- ]] || continue
        if declare -F _comp_command_offset >/dev/null; then
            _comp_command_offset $((i + 1))
        elif declare -F _command_offset >/dev/null; then
            _command_offset $((i + 1))
        elif ((COMP_CWORD == i + 1)); then
            local IFS=$'\n'
            COMPREPLY=($(compgen -A command -A file -- "${COMP_WORDS[COMP_CWORD]}"))
        else
            local IFS=$'\n'
            COMPREPLY=($(compgen -A file -- "${COMP_WORDS[COMP_CWORD]}"))
        fi
        return
    done
    _leasehold "$@"
}
complete -F _leasehold_or_command -o bashdefault -o default leasehold
"#;

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
    if args.shell == Shell::Bash {
        script.extend(BASH.bytes());
    }
    write_out(&script).map(|_| 0)
}
