//! `leasehold schema`: the JSON Schema of `--json`, and the SQL for databases.

use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::write_json;
#[cfg(any(feature = "postgres", feature = "mysql"))]
use crate::output::write_out;

/// Each is an object of definitions: that of the subcommand, and those that it refers to.
const PARTS: [&str; 7] = [
    include_str!("common.json"),
    include_str!("doctor.json"),
    include_str!("ls.json"),
    include_str!("show.json"),
    include_str!("top.json"),
    include_str!("unlock.json"),
    include_str!("watch.json"),
];

/// Print the JSON Schema of the --json output, or the SQL that a database needs
#[derive(Debug, clap::Args)]
pub(crate) struct SchemaArgs {
    /// Print the SQL that creates the tables and functions in PostgreSQL, and the rights of a role,
    /// for an administrator: psql database -f FILE
    #[arg(long)]
    postgres: bool,
    /// Print the SQL that creates the tables and the procedure in MySQL or MariaDB, and the rights
    /// of a user, for an administrator: mysql database < FILE
    #[arg(long, conflicts_with = "postgres")]
    mysql: bool,
}

#[cfg(feature = "postgres")]
fn print_sql() -> Result<u8, Failure> {
    let sql = format!("{}\n{}", leasehold::POSTGRES_SCHEMA.trim_end(), include_str!("rights.sql"));
    write_out(sql.as_bytes()).map(|_| 0)
}

#[cfg(not(feature = "postgres"))]
fn print_sql() -> Result<u8, Failure> {
    Err(Failure::new(
        crate::failure::status::USAGE,
        "this command was built without PostgreSQL (cargo feature postgres)",
    ))
}

#[cfg(feature = "mysql")]
fn print_mysql() -> Result<u8, Failure> {
    let rights = include_str!("rights_mysql.sql");
    write_out(format!("{}\n{rights}", leasehold::MYSQL_SCHEMA.trim_end()).as_bytes()).map(|_| 0)
}

#[cfg(not(feature = "mysql"))]
fn print_mysql() -> Result<u8, Failure> {
    Err(Failure::new(
        crate::failure::status::USAGE,
        "this command was built without MySQL (cargo feature mysql)",
    ))
}

pub(crate) fn print(args: &SchemaArgs) -> Result<u8, Failure> {
    if args.mysql {
        return print_mysql();
    }
    if args.postgres {
        return print_sql();
    }
    let _ = write_json(&schema())?;
    Ok(0)
}

fn schema() -> Value {
    let part = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
    let definitions: Map<String, Value> = PARTS.into_iter().flat_map(part).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What `leasehold SUBCOMMAND --json` prints is $defs/SUBCOMMAND",
        "$defs": definitions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_an_object_and_every_reference_is_defined() {
        for part in PARTS {
            serde_json::from_str::<Map<String, Value>>(part).unwrap();
        }
        let schema = schema();
        let text = schema.to_string();
        for reference in text.split("\"#/$defs/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schema["$defs"].get(name).is_some(), "{name}");
        }
    }
}
