//! The terminal, which is restored however the program ends.

use std::io::{self, Stdout, stdout};
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::{Frame, Terminal};

/// Whether the terminal is to be restored. Leaving the alternate screen twice would move the cursor
/// up over what was written between the two, such as the message of a panic.
static IS_ENTERED: AtomicBool = AtomicBool::new(false);

pub(super) struct Screen {
    /// Not dropped: its `drop` would show the cursor, as `give_back` does, and panic if the
    /// terminal is gone and stderr with it.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    reads_keys: bool,
}

impl Screen {
    pub(super) fn enter(reads_keys: bool) -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        let terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(stdout()))?);
        let screen = Self { terminal, reads_keys };
        screen.take()?;
        Ok(screen)
    }

    fn take(&self) -> io::Result<()> {
        IS_ENTERED.store(true, Ordering::SeqCst);
        if self.reads_keys {
            enable_raw_mode()?;
        }
        execute!(stdout(), EnterAlternateScreen)
    }

    /// Also adapts to the current size of the terminal.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }

    /// Restores the terminal while `other` runs.
    pub(super) fn without(&mut self, other: impl FnOnce()) -> io::Result<()> {
        give_back();
        other();
        self.take()?;
        self.terminal.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    if IS_ENTERED.swap(false, Ordering::SeqCst) {
        // A terminal that is gone need not be restored.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}
