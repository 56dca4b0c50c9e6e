//! Whether the tables and functions exist, and which rights the role lacks.

use super::facts::DatabaseFacts;
use crate::base::advice::Advice;
use crate::base::error::Result;
use crate::report::diagnosis::{Check, Finding};
use crate::store::findings::Examined;
use crate::store::postgres::wire::{
    BareConnection, Connector, REMEDY, Row, TABLES, foreign, owners_query,
};

/// Each missing right: the type of the object, its name, the right.
const MISSING: &str = "\
    SELECT 'SCHEMA', nspname::text, 'USAGE' FROM pg_namespace \
      WHERE nspname IN ('leasehold', 'leasehold_v1') AND NOT has_schema_privilege(oid, 'USAGE') \
    UNION ALL SELECT 'TABLE', w.name, w.need \
      FROM (SELECT t.name, r.need FROM (VALUES ('lock'), ('share'), ('waiter'), ('once'), ('fenced'), ('client'), \
              ('data'), ('done')) t (name), \
            (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) r (need) \
            UNION ALL VALUES ('meta', 'SELECT'), ('meta', 'UPDATE')) w \
      JOIN pg_namespace n ON n.nspname = 'leasehold' \
      JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name \
      WHERE NOT has_table_privilege(c.oid, w.need) \
    UNION ALL SELECT 'SEQUENCE', c.relname::text, 'USAGE' FROM pg_class c \
      JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = 'leasehold' \
      WHERE CASE WHEN c.relkind = 'S' THEN NOT has_sequence_privilege(c.oid, 'USAGE') END \
    UNION ALL SELECT DISTINCT 'FUNCTION', p.proname::text, 'EXECUTE' FROM pg_proc p \
      JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname = 'leasehold_v1' \
      WHERE NOT has_function_privilege(p.oid, 'EXECUTE')";

/// If more rights are missing than these, they are one finding: nobody has granted any.
const FEW: usize = 3;

/// All rights that a role needs, as in the chapter on PostgreSQL.
fn all_rights(role: &str, missing: usize) -> Finding {
    let grants = [
        "GRANT USAGE ON SCHEMA leasehold, leasehold_v1",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.lock, leasehold.share, leasehold.waiter, leasehold.once, \
         leasehold.fenced, leasehold.client, leasehold.data, leasehold.done",
        "GRANT SELECT, UPDATE ON leasehold.meta",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA leasehold",
    ];
    let grants: Vec<String> = grants.iter().map(|grant| format!("{grant} TO {role:?};")).collect();
    Finding::problem(
        Check::Right,
        format!("{role:?} lacks {missing} of the rights that locks need"),
    )
    .advise(grants.join(" "))
}

/// Whether the schema exists with all rights, or is made by the first connection.
pub(super) fn about_schema(
    facts: &DatabaseFacts,
    connection: &mut BareConnection,
    connector: &Connector,
    examined: &mut Examined,
) -> Result<bool> {
    let role = &facts.role;
    // First: the tables of another may be views that run its code.
    if let Some(found) = foreign(&connection.rows(owners_query())?) {
        examined.add(Finding::problem(Check::Schema, found).advise(REMEDY));
        return Ok(false);
    }
    if !facts.has_schema {
        let creates = connector.server.create_schema && facts.may_create;
        let what = "the schema leasehold_v1 does not exist, or is empty";
        examined.add(if creates {
            let found = format!("{what}; the first connection installs it");
            Finding::note(Check::Schema, found)
        } else {
            let found = format!("{what}, and {role:?} does not create it");
            Finding::problem(Check::Schema, found).advise(Advice::InstallSchema)
        });
        // Connecting would install it, and a diagnosis changes nothing.
        return Ok(false);
    }
    let missing = connection.rows(MISSING)?;
    let mut complete = true;
    let mut lacking = Vec::new();
    for row in &missing {
        let [Some(on), Some(name), Some(right)] = &row[..] else { continue };
        let schema = if on == "FUNCTION" { "leasehold_v1" } else { "leasehold" };
        let full = if on == "SCHEMA" { name.clone() } else { format!("{schema}.{name}") };
        if name == "client" {
            let found =
                format!("{role:?} lacks {right} on {full}: others cannot see who holds a lock");
            examined.add(
                Finding::note(Check::Right, found)
                    .advise(format!("GRANT {right} ON {full} TO {role:?}")),
            );
            continue;
        }
        complete = false;
        let on = if on == "TABLE" { String::new() } else { format!("{on} ") };
        let found = format!("{role:?} lacks {right} on {full}, which locks need");
        lacking.push(
            Finding::problem(Check::Right, found)
                .advise(format!("GRANT {right} ON {on}{full} TO {role:?}")),
        );
    }
    if lacking.len() > FEW {
        lacking = vec![all_rights(role, lacking.len())];
    }
    for finding in lacking {
        examined.add(finding);
    }
    if !facts.may_ask_control {
        complete = false;
        examined.add(
            Finding::problem(
                Check::Right,
                format!("{role:?} may not run pg_control_system(), which distinguishes servers"),
            )
            .advise(format!("GRANT EXECUTE ON FUNCTION pg_control_system() TO {role:?}")),
        );
    }
    let keeps_from_reading = |row: &Row| match &row[..] {
        [_, Some(name), Some(right)] => {
            name == "leasehold" || (name == "meta" && right == "SELECT")
        }
        _ => false,
    };
    let may_read = !missing.iter().any(keeps_from_reading);
    if complete {
        examined.add(Finding::ok(Check::Right, "the role has every right that locks need"));
    }
    if may_read {
        let version = connection.rows("SELECT tables FROM leasehold.meta")?;
        let version = version.first().and_then(|row| row.first()?.clone()).unwrap_or_default();
        examined.add(if version == TABLES.to_string() {
            Finding::ok(
                Check::Schema,
                format!("the schema leasehold_v1 exists, with tables of version {version}"),
            )
        } else {
            complete = false;
            Finding::problem(
                Check::Schema,
                format!("the tables have version {version:?}, and this release knows {TABLES}"),
            )
            .advise("use the same release of leasehold everywhere")
        });
    }
    Ok(complete)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rights_are_those_on_all_tables() {
        let schema = crate::POSTGRES_SCHEMA;
        let all = format!("{:?}", all_rights("app", 9));
        let mut tables = 0;
        for table in schema.split("CREATE TABLE IF NOT EXISTS leasehold.").skip(1) {
            let name = table.split([' ', '(']).next().unwrap();
            tables += 1;
            assert!(MISSING.contains(&format!("('{name}'")), "{name}");
            assert!(all.contains(&format!("leasehold.{name}")), "{name}");
        }
        assert!(tables >= 9, "{tables}");
    }
}
