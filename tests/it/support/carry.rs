//! The proxy's threads: requests up, replies down.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::MutexGuard;

use super::net::{Listener, Stream};
use super::proxy::{Link, Owed, Shared, State};
use super::resp::{self, Framed};
use super::{Action, Rule};

/// Accepts until the proxy stops.
pub(super) fn accept_all(shared: &Arc<Shared>, listener: &Listener) {
    for id in 0.. {
        let Ok(mut client) = listener.accept() else { return };
        let mut state = shared.lock();
        if state.stop {
            return;
        }
        if state.refuse {
            drop(state);
            client.end();
            continue;
        }
        let link = Link {
            client: client.try_clone().unwrap(),
            server: None,
            owed: [].into(),
            cut: false,
            client_gone: false,
            black: state.black_hole,
            holding: false,
            no_more: false,
            subscribed: false,
            users: 1,
        };
        state.links.insert(id, link);
        shared.spawn(&mut state, move |shared| {
            let carrier = Carrier { shared, id };
            carrier.connect();
            carrier.carry_up(&mut client);
            carrier.cut();
            // Drained by its only reader, so that the client sees a plain end.
            client.end();
        });
    }
}

/// One thread's part in a connection; however the thread ends, the connection does not outlive it unnoticed.
struct Carrier<'a> {
    shared: &'a Arc<Shared>,
    id: u64,
}

impl Drop for Carrier<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let link = self.link(&mut state);
        link.users -= 1;
        if std::thread::panicking() {
            link.holding = false;
            link.cut();
        }
        if link.users == 0 {
            link.holding = false;
            link.cut();
            state.links.remove(&self.id);
        }
        self.shared.notify();
    }
}

impl<'a> Carrier<'a> {
    fn link<'s>(&self, state: &'s mut State) -> &'s mut Link {
        state.links.get_mut(&self.id).expect("a link stays as long as it has users")
    }

    fn cut(&self) {
        self.link(&mut self.shared.lock()).cut();
        self.shared.notify();
    }

    /// Waits out a pause; None when the connection is over.
    fn gate(&self) -> Option<MutexGuard<'a, State>> {
        let mut state = self.shared.lock();
        while !self.link(&mut state).cut {
            if !state.paused {
                return Some(state);
            }
            self.shared.wait(&mut state);
        }
        None
    }

    /// Connects to the server, unless nothing may go there anyway.
    fn connect(&self) {
        let black = match self.gate() {
            Some(mut state) => self.link(&mut state).black,
            None => return,
        };
        if black {
            return;
        }
        // Without the lock: a stopped server may not accept for a while.
        let server = self.shared.upstream.connect();
        let mut state = self.shared.lock();
        let link = self.link(&mut state);
        match server {
            Ok(server) if !link.cut => {
                link.server = server.try_clone().ok();
                let id = self.id;
                link.users += 1;
                self.shared.spawn(&mut state, move |shared| Carrier { shared, id }.carry_down(server));
            }
            _ => link.cut(),
        }
    }

    fn carry_up(&self, client: &mut Stream) {
        let mut server = self.link(&mut self.shared.lock()).server.as_ref().and_then(|server| server.try_clone().ok());
        let mut pending = Vec::new();
        let mut chunk = [0; 16 * 1024];
        loop {
            loop {
                let (length, words) = match resp::request(&pending) {
                    Framed::Complete(length, words) => (length, words),
                    Framed::Alien => (pending.len(), Vec::new()),
                    Framed::Partial => break,
                };
                let bytes: Vec<u8> = pending.drain(..length).collect();
                if self.carry_request(server.as_mut(), &bytes, &words).is_none() {
                    return;
                }
            }
            match client.read(&mut chunk) {
                Ok(n) if n > 0 => pending.extend_from_slice(&chunk[..n]),
                _ => break,
            }
        }
        // The client has closed: the server gets the rest and the news, and may still answer what it has.
        let Some(mut state) = self.gate() else { return };
        let link = self.link(&mut state);
        link.client_gone = true;
        self.shared.notify();
        let (black, no_more) = (link.black, link.no_more);
        drop(state);
        let Some(mut server) = server else { return };
        if !black && !no_more {
            let _ = server.write_all(&pending);
        }
        server.shutdown(Shutdown::Write);
        let mut state = self.shared.lock();
        // The server's own end of the connection ends it as a whole.
        while !self.link(&mut state).cut {
            self.shared.wait(&mut state);
        }
    }

    /// None: the connection is over.
    fn carry_request(&self, server: Option<&mut Stream>, bytes: &[u8], words: &[Vec<u8>]) -> Option<()> {
        let mut state = self.gate()?;
        let link = self.link(&mut state);
        let Some(server) = server.filter(|_| !link.black && !link.no_more) else { return Some(()) };
        let fault = state.rules.iter().find_map(|rule| Some((rule.consider(words)?, rule.clone())));
        match fault {
            Some((Action::CutBeforeSend, rule)) => self.cut_request(state, server, &[], &rule),
            Some((Action::CutRequestAt(n), rule)) => {
                self.cut_request(state, server, &bytes[..n.min(bytes.len())], &rule)
            }
            Some((Action::HoldRequest, rule)) => {
                let release = state.releases;
                self.link(&mut state).holding = true;
                rule.count();
                while state.releases == release && !state.stop {
                    self.shared.wait(&mut state);
                }
                let stop = state.stop;
                let link = self.link(&mut state);
                link.holding = false;
                let cut = link.cut;
                expect_replies(link, words, None);
                drop(state);
                if !stop {
                    let _ = server.write_all(bytes);
                }
                if cut {
                    // What was written before this is still delivered.
                    server.shutdown(Shutdown::Write);
                }
                (!cut).then_some(())
            }
            fault => {
                let link = self.link(&mut state);
                link.no_more = fault.as_ref().is_some_and(|(action, _)| action.is_last());
                expect_replies(link, words, fault);
                drop(state);
                // A server that is gone shows on the way down.
                let _ = server.write_all(bytes);
                Some(())
            }
        }
    }

    /// Cuts behind some bytes of a request, once all earlier ones have their replies.
    fn cut_request(
        &self,
        mut state: MutexGuard<'_, State>,
        server: &mut Stream,
        bytes: &[u8],
        rule: &Rule,
    ) -> Option<()> {
        loop {
            let link = self.link(&mut state);
            if link.cut || link.black {
                return None;
            }
            if link.owed.is_empty() {
                break;
            }
            self.shared.wait(&mut state);
        }
        rule.count();
        let _ = server.write_all(bytes);
        self.link(&mut state).cut();
        self.shared.notify();
        None
    }

    fn carry_down(&self, mut server: Stream) {
        let Ok(mut client) = self.link(&mut self.shared.lock()).client.try_clone() else { return self.cut() };
        let mut pending = Vec::new();
        let mut chunk = [0; 16 * 1024];
        loop {
            loop {
                let length = match resp::reply(&pending) {
                    Framed::Complete(length, ()) => length,
                    Framed::Alien => pending.len(),
                    Framed::Partial => break,
                };
                let bytes: Vec<u8> = pending.drain(..length).collect();
                if self.carry_reply(&mut client, &bytes).is_none() {
                    break;
                }
            }
            match server.read(&mut chunk) {
                Ok(n) if n > 0 => pending.extend_from_slice(&chunk[..n]),
                _ => break,
            }
        }
        let Some(mut state) = self.gate() else { return };
        if self.link(&mut state).black {
            // A black hole hides also that the server has closed; once the client has, nobody is left to be fooled.
            while !self.link(&mut state).client_gone && !self.link(&mut state).cut {
                self.shared.wait(&mut state);
            }
        } else {
            let _ = client.write_all(&pending);
        }
        self.link(&mut state).cut();
        self.shared.notify();
    }

    /// None: the connection is over.
    fn carry_reply(&self, client: &mut Stream, bytes: &[u8]) -> Option<()> {
        let mut state = self.gate()?;
        let drop_messages = state.drop_messages;
        let link = self.link(&mut state);
        if link.black {
            return Some(());
        }
        let is_message = is_message(bytes, link.subscribed);
        let fault = if is_message { None } else { link.owed.front_mut().and_then(|owed| owed.fault.take()) };
        let cut_at = match fault {
            _ if is_message && drop_messages => return Some(()),
            Some((Action::CutAfterApplied, rule)) => Some((0, rule)),
            Some((Action::CutReplyAt(n), rule)) => Some((n.min(bytes.len()), rule)),
            Some((Action::BlackHoleReply, rule)) => {
                link.black = true;
                rule.count();
                return Some(());
            }
            Some((Action::StallReply(pause), rule)) => {
                rule.count();
                let end = Instant::now() + pause;
                while Instant::now() < end && !self.link(&mut state).cut {
                    self.shared.wait_until(&mut state, end);
                }
                if self.link(&mut state).black {
                    return Some(());
                }
                None
            }
            Some((Action::GarbageReply(garbage), rule)) => {
                rule.count();
                let _ = client.write_all(&garbage);
                self.answered(&mut state);
                return Some(());
            }
            _ => None,
        };
        if let Some((length, rule)) = cut_at {
            rule.count();
            let _ = client.write_all(&bytes[..length]);
            self.link(&mut state).cut();
            self.shared.notify();
            return None;
        }
        drop(state);
        // A client that is gone shows on the way up.
        let _ = client.write_all(bytes);
        if !is_message {
            self.answered(&mut self.shared.lock());
        }
        Some(())
    }

    /// One reply less is owed; only now, so that a cut behind it cannot overtake it.
    fn answered(&self, state: &mut State) {
        let link = self.link(state);
        if let Some(owed) = link.owed.front_mut() {
            owed.replies -= 1;
            if owed.replies == 0 {
                link.owed.pop_front();
            }
        }
        self.shared.notify();
    }
}

/// Notes what the server will answer to a request.
fn expect_replies(link: &mut Link, words: &[Vec<u8>], fault: Option<(Action, Rule)>) {
    // Empty requests are not answered, and what is not the protocol has no words.
    let Some(name) = words.first().map(|word| word.to_ascii_uppercase()) else { return };
    let subscribes = matches!(&*name, b"SUBSCRIBE" | b"PSUBSCRIBE" | b"SSUBSCRIBE");
    link.subscribed |= subscribes;
    let per_channel = subscribes || matches!(&*name, b"UNSUBSCRIBE" | b"PUNSUBSCRIBE" | b"SUNSUBSCRIBE");
    // Without channels UNSUBSCRIBE is answered once or more: the surplus goes through as owed by nobody.
    let replies = if per_channel { (words.len() - 1).max(1) } else { 1 };
    link.owed.push_back(Owed { replies, fault });
}

/// Whether this comes without having been asked for.
fn is_message(reply: &[u8], subscribed: bool) -> bool {
    let kind = resp::first_word(reply).unwrap_or_default();
    let is_confirmation = kind.ends_with(b"subscribe");
    let is_message = matches!(kind, b"message" | b"pmessage" | b"smessage");
    if reply.starts_with(b">") { !is_confirmation } else { subscribed && is_message }
}
