//! The server itself.

use super::*;
use crate::conditions::row::{NO_MORE_FILES, may_open_files};
use crate::conditions::rows;
use crate::on_postgres::{end_the_probe, wait_for_a_commit_that_waits};

/// The role has this setting, in sessions that begin from then on; and all begin anew.
fn with_setting(setting: &'static str) -> OnPostgres {
    let stage = OnPostgres::stage(
        "",
        move |stage, _| {
            stage.sql(&format!("ALTER ROLE app SET {setting}"));
            stage.end_connections();
        },
        |stage, _| {
            stage.sql("ALTER ROLE app RESET ALL");
            // Its sessions keep the setting.
            stage.end_connections();
        },
    );
    stage.for_a_role()
}

/// Times that are an hour later and a clock that is an hour behind are the same; negative hours set
/// the clock ahead.
fn with_clock_set_back(hours: &'static str) -> OnPostgres {
    OnPostgres::stage(
        "",
        move |stage, _| {
            let token = if hours.starts_with('-') { "0" } else { "3600000000" };
            stage.sql(&format!(
                "UPDATE leasehold.lock SET ends = ends + interval '{hours}', wanted = wanted + interval '{hours}', \
                     barred = barred + interval '{hours}', since = since + interval '{hours}', token = token + {token}; \
                 UPDATE leasehold.share SET ends = ends + interval '{hours}', since = since + interval '{hours}'; \
                 UPDATE leasehold.waiter SET deadline = deadline + interval '{hours}', since = since + interval '{hours}'; \
                 UPDATE leasehold.once SET ends = ends + interval '{hours}'; \
                 UPDATE leasehold.client SET ends = ends + interval '{hours}'"
            ));
        },
        // The marks of counts stay for the hour longer, and do no harm.
        |stage, _| {
            stage.sql("UPDATE leasehold.once SET ends = least(ends, clock_timestamp() + interval '1 hour')");
        },
    )
}

/// The server ends, and its standby has all that it had.
fn with_standby(
    begins: impl Fn(&mut OnPostgres, &[String]) + 'static,
    ends: impl Fn(&mut OnPostgres, &[String]) + 'static,
) -> OnPostgres {
    let mut stage = OnPostgres::stage(
        "wal_level = replica",
        move |stage, names| {
            stop(stage, "fast");
            begins(stage, names);
        },
        ends,
    );
    let standby = stage.server.standby("hot_standby = on");
    standby.run();
    wait_until("it streams", || {
        stage.server.number_of("SELECT count(*) FROM pg_stat_replication") == 1
    });
    stage.standby = Some(standby);
    stage
}

/// Nobody can ask the server while it shuts down: it says so then, and a call may meet that.
fn stop(stage: &mut OnPostgres, mode: &str) {
    stage.proxy().refuse(true);
    stage.proxy().cut_all();
    stage.admin = None;
    stage.server.stop(mode);
    stage.proxy().refuse(false);
}

fn promote(stage: &mut OnPostgres) {
    let standby = stage.standby.as_ref().expect("it has one");
    standby.promote();
    stage.admin = Some(standby.connect());
}

rows! {
    full_of_connections: row("The server has reached its `max_connections`, and the client's have ended", || {
        OnPostgres::stage("max_connections = 30", |stage, _| {
            stage.proxy().refuse(true);
            stage.end_connections();
            let mut config = stage.server.config();
            config.user("app");
            let taken = std::iter::from_fn(|| config.connect(postgres::NoTls).ok());
            stage.strangers = taken.collect();
            stage.proxy().refuse(false);
        }, |stage, _| stage.strangers_end()).for_a_role()
    }).failing(not_ready, &["max_connections"]);

    no_more_files: row(NO_MORE_FILES, || {
        OnPostgres::stage("", |_, _| may_open_files(false), |_, _| may_open_files(true))
    }).alone();

    statement_timeout: row("The role has a `statement_timeout` of 200 ms", || with_setting("statement_timeout = 200"));

    lock_timeout: row("The role has a `lock_timeout` of 200 ms", || with_setting("lock_timeout = 200"));

    idle_session_timeout: row("The role has an `idle_session_timeout` of 200 ms", || {
        with_setting("idle_session_timeout = 200")
    });

    idle_in_transaction: row("The role has an `idle_in_transaction_session_timeout` of 200 ms", || {
        with_setting("idle_in_transaction_session_timeout = 200")
    });

    read_only_role: row("The role's sessions begin anew, and read only (`default_transaction_read_only`)", || {
        with_setting("default_transaction_read_only = on")
    }).failing(read_only, SAYS_READ_ONLY);

    read_only_server: row("The server becomes read-only (`default_transaction_read_only`)", || {
        OnPostgres::stage("", |stage, _| stage.set_in_all("default_transaction_read_only = on"), |stage, _| {
            stage.sql("SET default_transaction_read_only = off");
            stage.set("default_transaction_read_only = off");
        })
    }).failing(|class| if matches!(class, Class::Look | Class::List) { &[None, Some(ReadOnly)] } else { read_only(class) }, SAYS_READ_ONLY);

    clock_set_back: row("The server's clock is set back by an hour", || with_clock_set_back("1 h"));

    clock_set_ahead: row("The server's clock is set ahead by an hour", || with_clock_set_back("-1 h"))
        // All leases have ended, and nobody has taken what they were for yet.
        .failing(|class| match class {
            Class::Keep | Class::Reenter | Class::Release | Class::Change => &[None, Some(Lost)],
            // A read hold is looked at soon after its grant.
            Class::Local => &[None, Some(Lost)],
            _ => DONE,
        }, &["the server forgot it", "their lease has ended"]);

    // What writes nothing, or asynchronously (a release, a downgrade), has an answer, if the others leave it a
    // connection.
    standby_missing: row("The server's synchronous standby is missing, so that commits wait for it", || {
        OnPostgres::stage("", |stage, _| {
            // A backend whose commit waits goes on when its connection has ended.
            stage.counts = false;
            stage.set("synchronous_standby_names = 'nobody'");
            wait_for_a_commit_that_waits(&stage.server);
        }, |stage, _| {
            stage.sql("SET synchronous_commit = off");
            stage.set("synchronous_standby_names = ''");
            end_the_probe(&stage.server);
        }).impatient()
    }).failing(|class| match class {
        // Another call of the row may have locked the lock's row, and its commit waits.
        Class::Keep | Class::Reenter | Class::Release | Class::Force => &[None, Some(Unreachable), Some(NotReady)],
        Class::Look | Class::List => &[None, Some(Unreachable)],
        _ => unreachable(class),
    }, HANGS_OR_LOCKED);

    killed: row("The server is killed, and comes back", || {
        OnPostgres::stage("", |stage, _| stop(stage, "immediate"), |stage, _| stage.run_again())
    }).failing(unreachable, ENDS);

    not_promoted: row("The primary has ended, and its standby is promoted later", || {
        with_standby(|_, _| (), |stage, _| promote(stage))
    }).failing(read_only, SAYS_READ_ONLY);

    promoted: row("The primary has ended, and its standby was promoted", || {
        with_standby(|stage, _| promote(stage), |_, _| ())
    });
}

fn read_only(class: Class) -> Answers {
    if_it_asks(class, &[Some(ReadOnly)])
}

const SAYS_READ_ONLY: &[&str] = &["a standby or read-only", "in a read-only transaction"];
