//! The loop of the live screen: receives answers, keys and signals, and draws cells.

use std::io;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, never, select, unbounded};
use leasehold::observe::LockSummary;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::draw::draw;
use super::screen::Screen;
use super::state::{Input, Todo, TopState};
use crate::failure::{Failure, by_signal, status};
use crate::looks::{Looks, asker_has_ended};
use crate::platform::{ScreenSignal, TERMINATED, stop, take_in_those_of_a_screen};

/// How often to redraw without an event, because the age of the last answer is shown.
const TICK: Duration = Duration::from_millis(500);
/// How long after a failed write to the terminal its SIGHUP may arrive.
const HANG_UP: Duration = Duration::from_millis(500);

/// Returns the exit status.
pub(super) fn show(
    looks: &Looks<Vec<LockSummary>>,
    mut state: TopState,
    start: Instant,
    reads_keys: bool,
) -> Result<u8, Failure> {
    // Before the screen is entered: from here on, no signal ends the process without restoring the
    // terminal.
    let signals = take_in_those_of_a_screen()?;
    let mut screen = Screen::enter(reads_keys).map_err(no_screen)?;
    let mut keys = if reads_keys { read_keys()? } else { never() };
    loop {
        if let Err(e) = screen.draw(|frame| draw(frame, &mut state, start.elapsed())) {
            return without_terminal(e, &signals);
        }
        let todo = select! {
            recv(looks.received) -> look => {
                state.look(look.map_err(|_| asker_has_ended())?, start);
                Todo::Draw
            }
            recv(keys) -> input => match input {
                Ok(input) => state.press(&input),
                Err(_) => {
                    keys = never();
                    Todo::Draw
                }
            },
            recv(signals) -> signal => match signal.unwrap_or(ScreenSignal::End(TERMINATED)) {
                ScreenSignal::Resized => Todo::Draw,
                ScreenSignal::Suspend => Todo::Suspend,
                ScreenSignal::End(signal) => return Ok(by_signal(signal)),
            },
            default(TICK) => Todo::Draw,
        };
        looks.pause(state.is_paused);
        match todo {
            Todo::Draw => {}
            Todo::Quit => return Ok(0),
            Todo::Suspend => screen.without(stop).map_err(no_screen)?,
        }
    }
}

/// When a terminal goes away, either a write fails first or the signal arrives first.
fn without_terminal(e: io::Error, signals: &Receiver<ScreenSignal>) -> Result<u8, Failure> {
    let deadline = Instant::now() + HANG_UP;
    let end = |signal| match signal {
        ScreenSignal::End(signal) => Some(signal),
        ScreenSignal::Resized | ScreenSignal::Suspend => None,
    };
    let signal = std::iter::from_fn(|| signals.recv_deadline(deadline).ok()).find_map(end);
    signal.map(by_signal).ok_or_else(|| no_screen(e))
}

/// Reads keys on a thread of its own, which ends with the process.
fn read_keys() -> Result<Receiver<Input>, Failure> {
    let (sender, keys) = unbounded();
    let read = move || {
        while let Ok(event) = event::read() {
            if input(&event).is_some_and(|input| sender.send(input).is_err()) {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("lh-keys".into());
    thread.spawn(read).map_err(no_screen)?;
    Ok(keys)
}

fn input(event: &Event) -> Option<Input> {
    let Event::Key(KeyEvent {
        code,
        modifiers,
        kind: KeyEventKind::Press | KeyEventKind::Repeat,
        ..
    }) = event
    else {
        return None;
    };
    if modifiers.contains(KeyModifiers::CONTROL) {
        return match code {
            KeyCode::Char('c') => Some(Input::Interrupt),
            KeyCode::Char('z') => Some(Input::Suspend),
            _ => None,
        };
    }
    match code {
        KeyCode::Char(c) => Some(Input::Text(*c)),
        KeyCode::Up => Some(Input::Up),
        KeyCode::Down => Some(Input::Down),
        KeyCode::PageUp => Some(Input::PageUp),
        KeyCode::PageDown => Some(Input::PageDown),
        KeyCode::Home => Some(Input::Home),
        KeyCode::End => Some(Input::End),
        KeyCode::Enter => Some(Input::Enter),
        KeyCode::Esc => Some(Input::Escape),
        KeyCode::Backspace => Some(Input::Backspace),
        _ => None,
    }
}

#[cold]
fn no_screen(e: io::Error) -> Failure {
    Failure::new(status::UNAVAILABLE, format!("the terminal cannot be used: {e}"))
}
