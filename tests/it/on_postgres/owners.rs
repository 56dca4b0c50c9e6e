//! Tables and functions that another role has made, or may change: their code is not called.

use std::sync::Arc;

use parking_lot::Mutex;

use leasehold::observe::Severity;
use leasehold::{ErrorKind, LockClient, POSTGRES_SCHEMA, Postgres as Settings};

use super::{server, versions};
use crate::rig::Postgres;

/// A server with a database of `dba`, in which the roles `app` and `mallory` may create schemas.
fn set_up() -> Postgres {
    let server = Postgres::start();
    server.run_sql(
        "CREATE ROLE dba; CREATE ROLE app LOGIN; CREATE ROLE mallory; ALTER DATABASE postgres OWNER TO dba; \
         GRANT CREATE ON DATABASE postgres TO app, mallory; \
         CREATE TABLE public.caught (who text); GRANT INSERT ON public.caught TO PUBLIC; \
         CREATE FUNCTION public.trap() RETURNS trigger LANGUAGE plpgsql AS \
           $$ BEGIN INSERT INTO public.caught VALUES (current_user); RETURN NEW; END $$",
    );
    server
}

fn open(server: &Postgres, create: bool) -> leasehold::Result<LockClient> {
    let url = server.url().replace("leasehold@", "app@");
    LockClient::builder().postgres(Settings::new(url).create_schema(create)).build()
}

/// All rights on whatever is there.
const GRANTS: &str = "GRANT USAGE ON SCHEMA leasehold, leasehold_v1 TO app; \
     GRANT ALL ON ALL TABLES IN SCHEMA leasehold TO app; GRANT ALL ON ALL SEQUENCES IN SCHEMA leasehold TO app;";

/// The script as a role that may create schemas runs it.
fn by(role: &str) -> String {
    format!("SET ROLE {role}; {POSTGRES_SCHEMA}; {GRANTS} RESET ROLE;")
}

#[test]
fn code_of_another_owner_is_refused_before_it_runs() {
    let server = server!(set_up());
    let traps = "CREATE TRIGGER trap BEFORE INSERT OR UPDATE ON leasehold.lock FOR EACH ROW EXECUTE FUNCTION public.trap()";
    let installed = POSTGRES_SCHEMA;
    let cases = [
        ("the schema leasehold", by("mallory")),
        (
            "the schema leasehold_v1",
            format!("{installed}; ALTER SCHEMA leasehold_v1 OWNER TO mallory; {GRANTS}"),
        ),
        (
            "leasehold.lock",
            format!("{installed}; ALTER TABLE leasehold.lock OWNER TO mallory; {traps}; {GRANTS}"),
        ),
        (
            "the function leasehold_v1.micros",
            format!("{installed}; ALTER FUNCTION leasehold_v1.micros OWNER TO mallory; {GRANTS}"),
        ),
        // Reading it would run the code.
        (
            "leasehold.meta",
            format!(
                "{installed}; DROP TABLE leasehold.meta; CREATE FUNCTION public.peek() RETURNS int LANGUAGE plpgsql AS \
                   $$ BEGIN INSERT INTO public.caught VALUES (current_user); RETURN 1; END $$; \
                 CREATE VIEW leasehold.meta AS SELECT public.peek() AS tables; \
                 ALTER VIEW leasehold.meta OWNER TO mallory; {GRANTS}"
            ),
        ),
        // Left by an older version on a table of ours, and run by each fence.
        (
            "the function leasehold_v0.check_fenced() of the trigger leasehold_v0",
            format!(
                "{}; {installed}; ALTER FUNCTION leasehold_v0.check_fenced OWNER TO mallory; {GRANTS}",
                versions::older()
            ),
        ),
        // Nothing but a schema: what is installed into it could be replaced.
        ("the schema leasehold", "CREATE SCHEMA leasehold AUTHORIZATION mallory".to_owned()),
    ];
    for (thing, made) in cases {
        server.run_sql(&made);
        for create in [true, false] {
            let error = open(&server, create).unwrap_err();
            let text = error.to_string();
            if error.kind() == ErrorKind::Unsupported {
                assert!(!create && text.contains("create_schema is off"), "{thing}: {text}");
                continue;
            }
            assert_eq!(error.kind(), ErrorKind::Denied, "{thing}: {text}");
            for part in [thing, "\"mallory\"", "\"app\"", "install the schema again"] {
                assert!(text.contains(part), "{thing}, {part}: {text}");
            }
        }
        let url = server.url().replace("leasehold@", "app@");
        let found = LockClient::builder().url(url).connect_lazily().build().unwrap().diagnose();
        let problem =
            found.findings().iter().find(|finding| finding.severity() == Severity::Problem);
        assert!(
            problem.is_some_and(|problem| format!("{problem:?}").contains(thing)),
            "{thing}: {found:?}"
        );
        // Nor by an administrator, whose rights its code would have.
        let mut db = server.connect();
        let error = db.batch_execute(POSTGRES_SCHEMA).unwrap_err();
        assert_eq!(error.code().unwrap().code(), "LH002", "{error:?}");
        drop(db);
        assert_eq!(server.number_of("SELECT count(*) FROM public.caught"), 0, "{thing}");
        server.run_sql(
            "DROP SCHEMA IF EXISTS leasehold CASCADE; DROP SCHEMA IF EXISTS leasehold_v1 CASCADE; \
             DROP SCHEMA IF EXISTS leasehold_v0 CASCADE",
        );
    }
}

#[test]
fn the_owner_of_the_database_a_superuser_and_the_role_itself_may_own_them() {
    let server = server!(set_up());
    server.run_sql("GRANT CREATE ON DATABASE postgres TO pg_database_owner");
    for owner in ["leasehold", "dba", "app", "pg_database_owner"] {
        server.run_sql(&by(owner));
        let client = open(&server, false).unwrap_or_else(|error| panic!("{owner}: {error}"));
        client.lock("k").unwrap().unlock().unwrap();
        drop(client);
        server.run_sql("DROP SCHEMA leasehold CASCADE; DROP SCHEMA leasehold_v1 CASCADE");
    }
}

/// An administrator has made the schemas, and nothing in them: that counts as no schema.
#[test]
fn an_empty_schema_is_filled_or_the_remedy_is_named() {
    let server = server!(set_up());
    server.run_sql("CREATE SCHEMA leasehold_v1; GRANT USAGE ON SCHEMA leasehold_v1 TO app");
    let error = open(&server, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("create_schema is off"), "{error}");
    // It may not create anything in a schema of another.
    let error = open(&server, true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    let text = error.to_string();
    assert!(text.contains("administrator run leasehold::POSTGRES_SCHEMA"), "{text}");
    assert!(!text.contains("a client with create_schema installs it"), "{text}");
    let found = leasehold::LockClient::builder()
        .url(server.url().replace("leasehold@", "app@"))
        .connect_lazily()
        .build()
        .unwrap()
        .diagnose();
    assert!(format!("{found:?}").contains("is empty"), "{found:?}");
    server.run_sql("GRANT CREATE ON SCHEMA leasehold_v1 TO app");
    open(&server, true).unwrap().lock("k").unwrap().unlock().unwrap();
    server.assert_clean();
}

/// The schemas were given to a role that may not make any itself.
#[test]
fn a_role_that_owns_the_empty_schemas_installs_into_them() {
    let server = server!(set_up());
    server.run_sql(
        "REVOKE CREATE ON DATABASE postgres FROM app; \
         CREATE SCHEMA leasehold AUTHORIZATION app; CREATE SCHEMA leasehold_v1 AUTHORIZATION app",
    );
    let url = server.url().replace("leasehold@", "app@");
    let found = LockClient::builder().url(url).connect_lazily().build().unwrap().diagnose();
    assert!(format!("{found:?}").contains("the first connection installs it"), "{found:?}");
    open(&server, true).unwrap().lock("k").unwrap().unlock().unwrap();
    server.assert_clean();
}

/// Whoever runs the script is told if clients of other roles will refuse what it makes.
#[test]
fn a_script_of_a_role_that_others_do_not_trust_warns() {
    let server = server!(set_up());
    for (owner, warns) in
        [("leasehold", false), ("dba", false), ("pg_database_owner", false), ("app", true)]
    {
        server.run_sql("GRANT CREATE ON DATABASE postgres TO pg_database_owner");
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let heard = warnings.clone();
        let mut db = server
            .config()
            .notice_callback(move |notice| heard.lock().push(notice.message().to_owned()))
            .connect(postgres::NoTls)
            .unwrap();
        db.batch_execute(&format!("SET client_min_messages = warning; {}", by(owner))).unwrap();
        let warnings = warnings.lock();
        assert_eq!(warnings.len(), usize::from(warns), "{owner}: {warnings:?}");
        assert!(
            warnings.iter().all(|warning| warning.contains("only clients of the role \"app\"")),
            "{warnings:?}"
        );
        server.run_sql("DROP SCHEMA leasehold CASCADE; DROP SCHEMA leasehold_v1 CASCADE");
    }
}
