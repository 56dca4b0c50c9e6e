//! The part of the help of `leasehold run` that differs between systems.

#[cfg(unix)]
pub(super) const ON_THIS_SYSTEM: &str = "\
If the lock is lost (its lease could not be renewed, somebody freed it by force, or --max-hold is over), the command's
process group gets SIGTERM, and SIGKILL after --kill-after. If the store becomes unavailable while the command runs,
renewal is retried until the lease ends.

Signals: the command runs in a process group of its own, which is the foreground group if stdin, stdout and stderr are
terminals. If only stdin is a terminal (`leasehold run ... | less`), the command's group comes to the foreground when
the command reads the terminal or changes its settings, until another process of the pipeline does so. These signals are
passed on to that group: SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGABRT, SIGALRM, SIGIO, SIGPROF, SIGSYS,
SIGTRAP, SIGURG, SIGVTALRM, SIGWINCH, SIGXCPU and SIGXFSZ, and on Linux SIGPWR and SIGSTKFLT, except those that were
ignored from the start (nohup; detected on Linux). When the command is stopped at a terminal (Ctrl-Z), leasehold stops
too, and the lease may end: the command is then ended as soon as it is continued. SIGTSTP to leasehold does the same,
also if the command ignores that signal. A command that is stopped in another way keeps its lock.

If leasehold itself is killed (by SIGKILL, for want of memory, by a fault or a real-time signal), its command is ended
with it. A second process, lh-backstop, notices that at once (when leasehold dumps core, once the dump is written) and
sends SIGTERM to the command's group, and SIGKILL after --kill-after or half of what is left of the lease, whichever is
shorter: the lock becomes free when its lease ends, which is later. If the command is itself a `leasehold run`, the
command of that one has an eighth of this lease at most from then on, and half of --kill-after, by LEASEHOLD_LONGEST_GRACE
in the environment. A command that is just being started is found by LEASEHOLD_RUN in its environment, on Linux. The
status that a shell sees is that of the kill (137 for SIGKILL).

Not ended are processes that have left the group: by setsid, or by a group of their own (`timeout` inside a script, a
shell with job control); and programs that have become another user's (sudo). If both processes are killed, if
leasehold is killed in the moment in which it starts the command (not on Linux), or if it is stopped (SIGSTOP) for
longer than a lease, the command goes on without a lock: let the resource check the token.
Processes that a command leaves running in the background are no longer protected by the lock once the command itself has
ended.

As the first process of a container (PID 1), leasehold waits for orphaned processes, as an init process does; if it is
killed there, all processes of the container end.";

#[cfg(windows)]
pub(super) const ON_THIS_SYSTEM: &str = "\
If the lock is lost (its lease could not be renewed, somebody freed it by force, or --max-hold is over), the command is
ended at once, with all processes that it has started: they are in a job object. A process that a service starts for the
command (a scheduled task, for example) is not in it. --kill-after has no effect. If the store becomes unavailable while
the command runs, renewal is retried until the lease ends.

Ctrl-C and Ctrl-Break end the wait for a lock, with status 130 or 149. While the command runs, the console sends them to
the command as well, and leasehold waits until it has ended. A command that Ctrl-C has ended counts as ended by signal 2
(130), and an exit status above 255 is passed on as 255. No other signals exist, so none are passed on. When the console
is closed, the user logs off or the system shuts down, Windows gives all programs a few seconds: a wait ends with status
129 or 143, and if the command ends in that time, its lock is released.

COMMAND is a program, with or without .exe, or a batch file, which needs its extension: -- nightly.cmd. Commands of
cmd.exe are run by -- cmd /c COMMAND.

If leasehold itself is ended (taskkill /f), the command goes on without renewal, and the lock becomes free when the
lease ends: let the resource check the token. Processes that a command leaves running are no longer protected by the
lock once the command itself has ended.";
