//! The tables in the database: whether they exist, whether they are ours, and creating them.

use std::time::Duration;

use super::packet::Set;
use super::server_error::ServerError;
use crate::base::advice::Advice;
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::log;

/// Creates the tables and the procedure that locks need in a MySQL or MariaDB database. A client
/// runs these statements unless it is told not to
/// ([`Mysql::create_schema`](crate::Mysql::create_schema)). For the program `mysql`: the
/// `DELIMITER` in it is no statement.
pub const MYSQL_SCHEMA: &str = include_str!("../schema.sql");

/// How often a statement is sent again that met one of another client.
const TRIES: u32 = 100;
/// How many tables there are.
const TABLES: u64 = 4;

/// Per table, procedure and trigger: how many there are, and how many of them are ours. A trigger
/// would run somebody's code with the rights of whoever takes a lock.
pub(crate) const LOOK: &str = "\
    SELECT COUNT(*),COALESCE(SUM(engine='InnoDB' AND table_comment='leasehold 1'),0) \
    FROM information_schema.tables WHERE table_schema=DATABASE() \
    AND table_name IN ('leasehold_lock','leasehold_share','leasehold_fence','leasehold_client');\
    SELECT COUNT(*),COALESCE(SUM(security_type='INVOKER' AND routine_comment='leasehold 1'),0) \
    FROM information_schema.routines WHERE routine_schema=DATABASE() AND routine_name='leasehold_fence';\
    SELECT COUNT(*),0 FROM information_schema.triggers WHERE event_object_schema=DATABASE() \
    AND event_object_table IN ('leasehold_lock','leasehold_share','leasehold_fence','leasehold_client')";

/// What a look has found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    Complete,
    Missing,
    /// Something of this name is not ours, or of another release.
    Foreign(&'static str),
}

pub(crate) fn found(sets: &[Set]) -> Option<Schema> {
    let number = |set: usize, column: usize| -> Option<u64> {
        sets.get(set)?.rows.first()?.get(column)?.as_ref()?.parse().ok()
    };
    let counts = |set| Some((number(set, 0)?, number(set, 1)?));
    let ((tables, own), (procedures, own_procedures)) = (counts(0)?, counts(1)?);
    Some(if own < tables {
        Schema::Foreign(
            "a table whose name begins with leasehold_ is not of this release, or not of InnoDB",
        )
    } else if own_procedures < procedures {
        Schema::Foreign("the procedure leasehold_fence is not of this release")
    } else if number(2, 0)? > 0 {
        Schema::Foreign("a table of leasehold has a trigger, which would run code of somebody else")
    } else if tables < TABLES || procedures == 0 {
        Schema::Missing
    } else {
        Schema::Complete
    })
}

/// A query of the handshake.
pub(super) type Ask<'a> =
    dyn FnMut(&str) -> Result<std::result::Result<Vec<Set>, ServerError>> + 'a;

pub(super) fn look(ask: &mut Ask<'_>) -> Result<Schema> {
    let sets = ask(LOOK)?.map_err(|e| e.to_error())?;
    let why = "the server does not say which tables it has";
    found(&sets).ok_or_else(|| Error::new(ErrorKind::Protocol, why))
}

/// Whether locks can be kept there.
pub(super) fn require(schema: &Schema) -> Result<()> {
    match schema {
        Schema::Complete => Ok(()),
        Schema::Missing => {
            let why = "the tables of leasehold, or its procedure, are not in the database, or the user may not use \
                       them, and create_schema is off or had no effect";
            Err(Error::new(ErrorKind::Unsupported, why).advise(Advice::CreateTables))
        }
        Schema::Foreign(what) => Err(Error::new(ErrorKind::Unsupported, *what)),
    }
}

/// Clients that do this at once stand in each other's way: MySQL ends all but one of them as in a
/// deadlock.
pub(super) fn create(ask: &mut Ask<'_>) -> Result<()> {
    let mut tries = TRIES;
    for statement in statements() {
        loop {
            match ask(statement)? {
                Ok(_) => break,
                // Another client was first.
                Err(error) if error.exists_already() => break,
                Err(error) if error.is_contended() && tries > 0 => tries -= 1,
                Err(error) => return Err(refused(error.to_error())),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    log::info!("the tables of leasehold were created");
    Ok(())
}

#[cold]
fn refused(said: Error) -> Error {
    if said.kind() != ErrorKind::Denied {
        return said.and_also("while creating the tables of leasehold");
    }
    let reworded = |said: &str| {
        format!(
            "the tables of leasehold are not in the database, and the user may not create them ({said})"
        )
    };
    said.reworded(reworded).advise(Advice::CreateTables)
}

/// The statements, each by itself.
fn statements() -> impl Iterator<Item = &'static str> {
    let (tables, rest) = MYSQL_SCHEMA.split_once("DELIMITER //\n").expect("the file has it");
    let procedure = rest.split_once("//").expect("the file has it").0;
    tables.split(";\n").filter(|text| text.contains("CREATE")).chain([procedure])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(counts: [[u64; 2]; 3]) -> Vec<Set> {
        let row = |counts: [u64; 2]| counts.map(|count| Some(count.to_string())).to_vec();
        counts.map(|counts| Set { rows: vec![row(counts)], ..Set::default() }).into()
    }

    #[test]
    fn each_statement_is_sent_by_itself() {
        let all: Vec<&str> = statements().collect();
        assert_eq!(all.len() as u64, TABLES + 1);
        assert!(all[4].trim_end().ends_with("END"), "{}", all[4]);
        assert!(all.iter().all(|one| one.contains("leasehold 1") && !one.contains("DELIMITER")));
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        assert_eq!(found(&sets([[4, 4], [1, 1], [0, 0]])), Some(Schema::Complete));
        assert_eq!(found(&sets([[0, 0], [0, 0], [0, 0]])), Some(Schema::Missing));
        assert_eq!(found(&sets([[4, 4], [0, 0], [0, 0]])), Some(Schema::Missing));
        for foreign in
            [[[4, 3], [1, 1], [0, 0]], [[4, 4], [1, 0], [0, 0]], [[4, 4], [1, 1], [1, 0]]]
        {
            assert!(matches!(found(&sets(foreign)), Some(Schema::Foreign(_))), "{foreign:?}");
        }
        assert_eq!(found(&[]), None);
    }
}
