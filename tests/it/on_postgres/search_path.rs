//! Functions and operators created by another role are not called: neither in sessions of the
//! library, nor in those of users who fence a transaction.

use leasehold::LockClient;

use super::{server, use_everything_as_app, wait_for_a_renewal};
use crate::rig::{Postgres, ms};
use crate::support::ShortLease;

/// The objects that the role `mallory`, which may create functions in the schema `public`, creates
/// there: functions with the names of PostgreSQL's own, and operators for all types, including
/// those for which PostgreSQL has none and converts an operand. All return PostgreSQL's results,
/// and record who has called them.
const TRAPS: &str = r#"
CREATE ROLE mallory; GRANT CREATE, USAGE ON SCHEMA public TO mallory; SET ROLE mallory;
CREATE TABLE public.caught (who text, what text); GRANT INSERT ON public.caught TO PUBLIC;
DO $$
DECLARE op text; l text; r text; result text; n int := 0; f record;
  types text[] := '{int4,int8,numeric,float8,text,\"char\",interval,timestamptz,bool}';
BEGIN
  FOREACH op IN ARRAY '{*,+,-,/,=,<>,<,>,<=,>=,||}'::text[] LOOP
    FOREACH l IN ARRAY types LOOP
      FOREACH r IN ARRAY types LOOP
        BEGIN
          EXECUTE format('SELECT pg_typeof(NULL::%s OPERATOR(pg_catalog.%s) NULL::%s)', l, op, r) INTO result;
        EXCEPTION WHEN OTHERS THEN CONTINUE;
        END;
        n := n + 1;
        EXECUTE format('CREATE FUNCTION public.trap_%s(a %s, b %s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN '
          'INSERT INTO public.caught VALUES (session_user, %L); RETURN a OPERATOR(pg_catalog.%s) b; END $f$',
          n, l, r, result, concat_ws(' ', l, op, r), op);
        EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.trap_%s)', op, l, r, n);
      END LOOP;
    END LOOP;
  END LOOP;
  FOR f IN SELECT proname, oidvectortypes(proargtypes) AS arguments, prorettype::regtype AS result, pronargs
      FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind = 'f' AND NOT proretset AND proname IN
        ('clock_timestamp', 'set_config', 'current_setting', 'pg_notify', 'split_part', 'abs', 'ceil', 'pg_backend_pid',
         'pg_is_in_recovery', 'pg_terminate_backend', 'pg_postmaster_start_time', 'to_regnamespace', 'nextval',
         'has_function_privilege', 'has_database_privilege', 'has_schema_privilege', 'has_table_privilege')
      LOOP
    EXECUTE format('CREATE FUNCTION public.%s(%s) RETURNS %s LANGUAGE sql AS $f$ '
      'INSERT INTO public.caught VALUES (session_user, %L); SELECT pg_catalog.%s(%s) $f$',
      f.proname, f.arguments, f.result, f.proname, f.proname,
      (SELECT coalesce(string_agg('$' || i, ', ' ORDER BY i), '') FROM generate_series(1, f.pronargs) i));
  END LOOP;
END $$;
RESET ROLE;
"#;

/// Creates a role of the application whose search path finds the functions of `public` before
/// PostgreSQL's own.
fn set_up(server: &Postgres) -> String {
    server.run_sql(&format!(
        "{TRAPS} CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app"
    ));
    server.run_sql("ALTER ROLE app SET search_path = public, pg_catalog");
    server.url().replace("leasehold@", "app@")
}

/// The traps that the application's role has called.
fn caught(server: &Postgres) -> Vec<String> {
    server.texts("SELECT DISTINCT what FROM public.caught WHERE who = 'app' ORDER BY 1")
}

/// A session of a user with that role.
fn session(server: &Postgres) -> postgres::Client {
    let mut config = postgres::Config::new();
    config.host_path(server.dir()).user("app").dbname("postgres").connect(postgres::NoTls).unwrap()
}

#[test]
fn the_library_calls_no_function_of_another_role() {
    let server = server!(Postgres::start());
    let url = set_up(&server);
    let mut db = session(&server);
    db.batch_execute("SELECT 2::bigint * interval '1 ms', clock_timestamp()").unwrap();
    assert_eq!(caught(&server), ["clock_timestamp", "int8 * interval"], "the traps work");
    server.run_sql("DELETE FROM public.caught");

    let client = LockClient::builder().url(&url).short_lease(ms(6000)).build().unwrap();
    let guard = client.lock("k").unwrap();
    client.lock("k").unwrap().unlock().unwrap();
    wait_for_a_renewal(&server, "k");
    let others: Vec<_> = (0..3)
        .map(|n| {
            let client = client.clone();
            std::thread::spawn(move || match n {
                0 => drop(client.try_lock_for("k", ms(50)).unwrap()),
                1 => drop(client.fair("k").try_lock_for(ms(50)).unwrap()),
                _ => drop(client.multi(["k", "l"]).try_lock_for(ms(50)).unwrap()),
            })
        })
        .collect();
    for other in others {
        other.join().unwrap();
    }
    guard.unlock().unwrap();
    use_everything_as_app(&server, &client);
    drop(client);
    // Other uses of the application's rights.
    db.batch_execute(
        "SET search_path = pg_catalog; SELECT leasehold_v1.sweep(0, 100), leasehold_v1.sweep_locks(0, 100)",
    )
    .unwrap();
    assert_eq!(caught(&server), [""; 0]);
    drop(db);
    server.assert_clean();
}

#[test]
fn a_fence_calls_no_function_of_another_role() {
    let server = server!(Postgres::start());
    let client = LockClient::open(&set_up(&server)).unwrap();
    let guard = client.lock("k").unwrap();
    let fence = guard.fence_sql().unwrap();
    let mut db = session(&server);
    for sql in [fence.sql(), fence.sql_at_commit()] {
        let mut transaction = db.transaction().unwrap();
        transaction.execute(sql, &[&fence.name(), &fence.token().as_i64()]).unwrap();
        transaction.commit().unwrap();
    }
    let mut transaction = db.transaction().unwrap();
    transaction.execute(fence.sql(), &[&fence.name(), &fence.token().as_i64()]).unwrap();
    // The function sets its own search path, and its settings last for the transaction.
    let idle = "SHOW idle_in_transaction_session_timeout";
    assert_eq!(transaction.query_one(idle, &[]).unwrap().get::<_, String>(0), "10s");
    assert_eq!(
        transaction.query_one("SHOW search_path", &[]).unwrap().get::<_, String>(0),
        "public, pg_catalog"
    );
    transaction.commit().unwrap();
    assert_eq!(db.query_one(idle, &[]).unwrap().get::<_, String>(0), "0");
    assert_eq!(caught(&server), [""; 0]);
    guard.unlock().unwrap();
    drop((client, db));
    server.assert_clean();
}
