//! A request: one prepared statement with its parameters, which is one call of a function and one
//! transaction.

use bytes::{BufMut, BytesMut};
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;

use crate::base::error::{Result, invalid};

/// Parsed once on each connection.
#[derive(Debug)]
pub(crate) struct Statement {
    /// Its number among all statements, below 64.
    pub(crate) id: u8,
    pub(crate) sql: &'static str,
}

/// How a request can be sent in one transaction with those of other threads.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Batching {
    /// In a transaction of its own.
    Alone,
    /// With other acquires. In a batch this statement is sent, which waits for no row: otherwise
    /// one name would delay all others.
    Acquire(&'static Statement),
    /// Only with other releases: a release makes its transaction asynchronous, and a grant must not
    /// be.
    Release,
}

/// The first parameter is the name of the lock: a batch locks its rows in the order of names, so
/// that no two batches wait for each other.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(super) statement: &'static Statement,
    pub(super) batching: Batching,
    /// It goes before all others that wait for a connection.
    pub(super) is_urgent: bool,
    params: Vec<String>,
}

/// One row of an answer: the text of each column, `None` for null.
pub(crate) type Row = Vec<Option<String>>;

impl Request {
    pub(crate) fn new(statement: &'static Statement) -> Self {
        Self { statement, batching: Batching::Alone, is_urgent: false, params: Vec::new() }
    }

    pub(crate) fn batched(mut self, batching: Batching) -> Self {
        self.batching = batching;
        self
    }

    pub(crate) fn urgent(self) -> Self {
        Self { is_urgent: true, ..self }
    }

    pub(super) fn goes_alone(&self) -> bool {
        matches!(self.batching, Batching::Alone)
    }

    pub(crate) fn arg(mut self, value: impl Into<String>) -> Self {
        self.params.push(value.into());
        self
    }

    pub(crate) fn number(self, value: impl Into<i64>) -> Self {
        let value: i64 = value.into();
        self.arg(value.to_string())
    }

    pub(crate) fn flag(self, value: bool) -> Self {
        self.arg(if value { "true" } else { "false" })
    }

    /// An array in its text form.
    pub(crate) fn list<'a>(self, values: impl Iterator<Item = &'a str>) -> Self {
        let mut text = String::from("{");
        for (place, value) in values.enumerate() {
            if place > 0 {
                text.push(',');
            }
            text.push('"');
            for c in value.chars() {
                if matches!(c, '"' | '\\') {
                    text.push('\\');
                }
                text.push(c);
            }
            text.push('"');
        }
        text.push('}');
        self.arg(text)
    }

    pub(crate) fn numbers(self, values: impl Iterator<Item = i64>) -> Self {
        let text: Vec<String> = values.map(|value| value.to_string()).collect();
        self.arg(format!("{{{}}}", text.join(",")))
    }

    /// The key by which batches are sorted.
    pub(super) fn key(&self) -> &str {
        self.params.first().map_or("", String::as_str)
    }

    /// Writes the messages of one run, without the end of the transaction. `parses`: the statement
    /// is new to the connection.
    pub(super) fn write(
        &self,
        statement: &Statement,
        parses: bool,
        out: &mut BytesMut,
    ) -> Result<()> {
        let name = format!("s{}", statement.id);
        let text = |value: &String, out: &mut BytesMut| {
            out.put_slice(value.as_bytes());
            Ok(IsNull::No)
        };
        let mut write = || -> std::io::Result<()> {
            if parses {
                frontend::parse(&name, statement.sql, None, out)?;
            }
            frontend::bind("", &name, None, &self.params, text, None, out)
                .map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
            frontend::execute("", 0, out)
        };
        write().map_err(|e| invalid("the request is too long").caused_by(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_quoted() {
        static NONE: Statement = Statement { id: 0, sql: "" };
        let request = Request::new(&NONE)
            .list([r#"a"b\c"#, "", "{,}"].into_iter())
            .numbers([1, -2].into_iter());
        assert_eq!(request.params, [r#"{"a\"b\\c","","{,}"}"#, "{1,-2}"]);
        assert_eq!(Request::new(&NONE).list(std::iter::empty()).key(), "{}");
    }
}
