//! How MySQL is asked, and how its sessions are ended.

use super::requests::{is_gone, kill, text};
use super::wire::{Answer, Connection, Connector, MysqlFailure, Request};
use crate::base::error::Result;
use crate::signal::clock::Clock;
use crate::store::database::{self, Database};

pub(super) type Server = database::Server<Connector>;

/// A session has its mark until it has ended, and what it wrote is behind locks of rows until it is
/// rolled back; whoever takes the mark therefore knows that no statement of it begins any more.
/// A restart frees all marks.
impl Database for Connector {
    type SessionId = String;

    fn clock(&self) -> &dyn Clock {
        &*self.server.clock
    }

    fn ask_all(
        &self,
        connection: &mut Connection,
        requests: &[Request],
    ) -> std::result::Result<Vec<Answer>, MysqlFailure> {
        let ask = |request| connection.ask(request).inspect(|answer| self.note(answer));
        requests.iter().map(ask).collect()
    }

    fn kill(mark: &String) -> Request {
        kill(mark)
    }

    fn check_kill(answer: Answer) -> Result<()> {
        match answer.sets {
            Err(error) if !error.is_no_such_thread() => Err(error.to_error()),
            _ => Ok(()),
        }
    }

    fn look_for(mark: &String) -> Request {
        is_gone(mark)
    }

    fn has_ended(answer: Answer) -> Result<bool> {
        let set = answer.last()?;
        Ok(set.rows.first().and_then(|row| text(row, 0)) == Some("1"))
    }
}
