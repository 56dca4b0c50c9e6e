//! What the subcommands need from the system: what ends them, the terminal, the processes above.
//! What only `run` needs is in its own folders, which have these names as well.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(crate) use unix::{
    Ancestors, TERMINATED, columns_of_stdout, ignored, is_in, stop, take_in,
    take_in_those_of_a_screen,
};
#[cfg(windows)]
pub(crate) use windows::{
    Ancestors, TERMINATED, columns_of_stdout, receive, stop, take_in, take_in_those_of_a_screen,
};

/// What the system reports to a live screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScreenSignal {
    #[cfg_attr(
        windows,
        expect(dead_code, reason = "no signal: the next drawing adapts to the size")
    )]
    Resized,
    #[cfg_attr(windows, expect(dead_code, reason = "no shell there continues a program"))]
    Suspend,
    /// By the signal with this number.
    End(i32),
}
