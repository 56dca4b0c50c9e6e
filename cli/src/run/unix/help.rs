//! The part of the help that holds on Unix only.

pub(in crate::run) const DETAILS: &str = "\
If the lock is lost (its lease could not be renewed, somebody freed it by force, or --max-hold is over), the command's
process group gets SIGTERM, and SIGKILL after --kill-after. If the store becomes unavailable while the command runs,
renewal is retried until the lease ends.

Signals: the command runs in a process group of its own, which is the foreground group if stdin, stdout and stderr are
terminals. If only stdin is a terminal (`leasehold run ... | less`), the command's group comes to the foreground when
the command reads the terminal or changes its settings, until another process of the pipeline does so. SIGTERM, SIGINT,
SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on to that group, except those that were ignored from the start (nohup;
detected on Linux). When the command is stopped at a terminal (Ctrl-Z), leasehold stops too, and the lease may end: the
command is then ended as soon as it is continued. A command that is stopped in another way keeps its lock.

If leasehold itself is killed by SIGKILL, the command goes on without renewal, and the lock becomes free when the lease
ends: let the resource check the token. On Linux, `-- setpriv --pdeathsig TERM command` ends the command in that case.
Processes that a command leaves running in the background are no longer protected by the lock once the command itself
has ended.";
