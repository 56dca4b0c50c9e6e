//! `leasehold ls` and `leasehold show`.

use std::time::Duration;

use leasehold::{Builder, LockClient};
use serde_json::{Value, json};

use crate::json::json_of;
use crate::program::{leasehold, leasehold_at, run};
use crate::rig::{Server, wait_until};
use crate::support::{Clients, Masters};

/// Holders that publish their identity, one of each kind, and one waiter.
struct Scene {
    client: LockClient,
    waiter: LockClient,
}

impl Scene {
    fn new(builder: impl Fn() -> Builder) -> Self {
        let client = builder().owner("billing-7").build().unwrap();
        Self { client, waiter: builder().owner("billing-8").build().unwrap() }
    }

    fn play(&self, look: impl FnOnce()) {
        let Self { client, waiter } = self;
        let mutex = client.mutex("job \u{1b}[31m").with_data("build 812\u{1b}[31m").lock().unwrap();
        let again = client.lock("job \u{1b}[31m").unwrap();
        let (fair, read) =
            (client.fair("line").lock_owned().unwrap(), client.rw_lock("rw").read_owned().unwrap());
        client.semaphore("pool").try_set_permits(3).unwrap();
        let permits = client.semaphore("pool").acquire_many(2).unwrap();
        std::thread::scope(|s| {
            let waits = s.spawn(|| waiter.fair("line").lock().unwrap().unlock().unwrap());
            wait_until("it waits", || {
                client.fair("line").queue_len().is_ok_and(|waiting| waiting == 1)
            });
            look();
            fair.unlock().unwrap();
            waits.join().unwrap();
        });
        drop((mutex, again, read, permits));
    }
}

fn by_name<'v>(locks: &'v Value, name: &str) -> &'v Value {
    locks
        .as_array()
        .unwrap()
        .iter()
        .find(|lock| lock["name"] == name)
        .unwrap_or_else(|| panic!("{name}: {locks}"))
}

fn shown(url: &str, name: &str) -> String {
    let (status, out, err) = run(leasehold_at(url, &["show", name]));
    assert_eq!((status, err.as_str()), (Some(0), ""));
    out
}

fn looks_right(url: &str) {
    // It happens in the background, shortly after the first grant.
    wait_until("it is announced", || {
        let (_, table, _) = run(leasehold_at(url, &["ls"]));
        table.contains("rw") && table.contains("pool") && shown(url, "pool").contains("billing-7")
    });
    let (status, locks) = json_of("ls", leasehold_at(url, &["ls"]));
    assert_eq!(status, 0);
    let job = by_name(&locks, "job \u{1b}[31m");
    assert_eq!((&job["kind"], &job["holders"][0]["hold_count"]), (&json!("mutex"), &json!(2)));
    assert_eq!(job["holders"][0]["owner"]["label"], "billing-7");
    assert_eq!(job["holders"][0]["data"], "build 812\u{1b}[31m");
    let pool = by_name(&locks, "pool");
    assert_eq!(pool["permits"], json!({ "free": 1, "taken": 2 }));

    let (_, table, _) = run(leasehold_at(url, &["ls"]));
    assert!(table.starts_with("NAME") && table.lines().count() >= 5, "{table}");
    assert!(!table.contains('\u{1b}') && table.contains("job \\u{1b}[31m"), "{table}");
    assert!(table.contains(" DATA\n") && table.contains("build 812\\u{1b}[31m\n"), "{table}");
    let job = shown(url, "job \u{1b}[31m");
    assert!(job.contains("\n  data     build 812\\u{1b}[31m\n"), "{job}");
    let (_, some, _) = run(leasehold_at(url, &["ls", "po*"]));
    assert_eq!(some.lines().count(), 2, "{some}");

    let (_, report) = json_of("show", leasehold_at(url, &["show", "job \u{1b}[31m"]));
    assert_eq!(report["locks"][0]["holders"].as_array().unwrap().len(), 1);
    let text = shown(url, "job \u{1b}[31m");
    assert!(!text.contains('\u{1b}') && text.contains("x2"), "{text}");
    assert!(shown(url, "pool").contains("1 free, 2 taken"));
    let (status, text, err) = run(leasehold_at(url, &["show", "nothing"]));
    assert_eq!((status, text.as_str(), err.as_str()), (Some(1), "nothing: free", ""));
    let (status, nothing) = json_of("show", leasehold_at(url, &["show", "nothing"]));
    assert_eq!((status, &nothing["locks"]), (1, &json!([])));
    let (_, everything) = json_of("ls", leasehold_at(url, &["ls", "--all"]));
    assert_eq!(everything.as_array().unwrap().len(), locks.as_array().unwrap().len(), "{locks}");
}

#[test]
fn a_redis_is_looked_at() {
    let server = Server::start();
    Scene::new(|| server.builder()).play(|| {
        looks_right(&server.url());
        let (_, line) = json_of("show", leasehold(&server, &["show", "line"]));
        assert_eq!(
            (&line["locks"][0]["kind"], line["queue"].as_array().unwrap().len()),
            (&json!("fair"), 1)
        );
        assert!(line["last_token"].as_u64().unwrap() > 0);
        // A waiter in a queue publishes its identity, even if it holds nothing.
        wait_until("the entry has a name", || {
            shown(&server.url(), "line").contains("queue    1. billing-8 (pid ")
        });
    });
    let limiter = server.client().rate_limiter("api");
    limiter.set_rate(5, Duration::from_secs(600)).unwrap();
    limiter.acquire(2).unwrap();
    assert!(shown(&server.url(), "api").contains("3 free, 2 taken"));
    let (_, api) = json_of("show", leasehold(&server, &["show", "api"]));
    assert_eq!(api["locks"][0]["kind"], "rate_limiter");
    assert_eq!(api["locks"][0]["permits"], json!({ "free": 3, "taken": 2 }));
    let (status, out, err) = run(leasehold(&server, &["ls", "j*"]));
    assert_eq!((status, out.as_str()), (Some(0), ""));
    assert_eq!(err, "leasehold: no locks match j*; --all also finds those of other libraries");
    assert_eq!(run(leasehold(&server, &["ls", "j*", "--all"])).2, "leasehold: no locks match j*");
}

/// Foreign data in the server are not touched.
#[test]
fn keys_of_others_cost_a_look_nothing() {
    let server = Server::start();
    let fill = "for n = 1, 5000 do redis.call('hset', 'user:' .. n, 'name', n, 'mail', n) end";
    server.cmd::<redis::Value>(&["EVAL", fill, "0"]);
    let client = server.builder().owner("billing-7").build().unwrap();
    let _guards = ["a", "b"].map(|name| client.mutex(name).lock_owned().unwrap());
    let java = "0f0ba0e5-46ae-4ab8-a4ba-9b8b5f6c1d2e:34";
    server.cmd::<u32>(&["HSET", "java", java, "1"]);
    let names = |options: &[&str]| -> Vec<String> {
        let (_, locks) = json_of("ls", leasehold(&server, &[&["ls"], options].concat()));
        locks
            .as_array()
            .unwrap()
            .iter()
            .map(|lock| lock["name"].as_str().unwrap().to_owned())
            .collect()
    };
    wait_until("they are announced", || names(&[]) == ["a", "b"]);
    let before = ["scan", "hlen"].map(|command| server.call_count(command));
    assert_eq!(names(&[]), ["a", "b"]);
    let [scans, looks] = ["scan", "hlen"].map(|command| server.call_count(command));
    assert_eq!(scans, before[0]);
    assert!(looks - before[1] < 10, "{looks}");
    let before = server.call_count("evalsha");
    assert_eq!(names(&["--all"]), ["a", "b", "java"]);
    assert!(server.call_count("scan") > scans && server.call_count("evalsha") - before < 50);
}

#[test]
fn the_holds_that_have_no_room_are_counted() {
    let server = Server::start();
    let client = server.builder().owner("x").lease(Duration::from_secs(9)).build().unwrap();
    let _guards: Vec<_> =
        (0..300).map(|n| client.mutex(format!("job {n:0200}")).lock_owned().unwrap()).collect();
    wait_until("it is reported", || {
        let (status, out, err) = run(leasehold(&server, &["ls"]));
        status == Some(0)
            && out.lines().count() < 100
            && err.contains("more holds")
            && err.contains("--all")
    });
}

#[test]
fn a_java_client_shows_by_its_id() {
    let server = Server::start();
    let id = "0f0ba0e5-46ae-4ab8-a4ba-9b8b5f6c1d2e:34";
    server.cmd::<()>(&["HSET", "app:job", id, "1"]);
    server.cmd::<()>(&["PEXPIRE", "app:job", "30000"]);
    let (_, table, _) = run(leasehold(&server, &["ls", "--all", "--key-prefix", "app:"]));
    assert!(table.contains(id) && table.contains("\njob "), "{table}");
    let (_, report) = json_of("show", leasehold(&server, &["show", "job", "--key-prefix", "app:"]));
    let holder = &report["locks"][0]["holders"][0];
    assert_eq!(
        (&holder["id"], &holder["owner"], &holder["lease_ms"]),
        (&json!(id), &Value::Null, &Value::Null)
    );
    // Something that is not a lock is an error, and is not listed.
    server.cmd::<()>(&["LPUSH", "app:list", "1"]);
    let (status, _, err) = run(leasehold(&server, &["show", "app:list"]));
    assert!(status == Some(76) && err.starts_with("leasehold: "), "{status:?} {err}");
}

#[cfg(feature = "postgres")]
#[test]
fn a_postgres_is_looked_at() {
    let server = crate::rig::Postgres::start();
    Scene::new(|| server.builder()).play(|| looks_right(&server.url()));
}

/// The store knows how many permits without leases are free, and nothing else of them.
#[cfg(feature = "postgres")]
#[test]
fn nobody_says_how_many_permits_without_leases_are_taken() {
    let server = crate::rig::Postgres::start();
    let client = server.client();
    let pool = client.counting_semaphore("pool");
    pool.try_set_permits(3).unwrap();
    let _permit = pool.acquire().unwrap();
    let (_, locks) = json_of("ls", leasehold_at(&server.url(), &["ls"]));
    assert_eq!(by_name(&locks, "pool")["permits"], json!({ "free": 2, "taken": null }));
    for arguments in [&["ls"][..], &["show", "pool"]] {
        let (_, text, _) = run(leasehold_at(&server.url(), arguments));
        assert!(text.contains("2 free") && !text.contains("taken"), "{text}");
    }
}

#[test]
fn several_masters_are_looked_at() {
    let masters = Masters::fresh(3);
    let client = masters.client();
    let guard = client.lock("job").unwrap();
    wait_until("all have it", || masters.holding("job") == 3);
    masters.0[0].cmd::<()>(&["DEL", "job"]);
    let urls = masters.urls().join(" ");
    let (_, locks) = json_of("ls", leasehold_at(&urls, &["ls", "--redlock", "--all"]));
    assert_eq!(by_name(&locks, "job")["masters"], json!({ "on": 2, "of": 3 }));
    let (_, table, _) = run(leasehold_at(&urls, &["ls", "--redlock", "--all"]));
    assert!(table.contains("on 2 of 3 masters"), "{table}");
    drop(guard);
}

#[test]
fn a_server_that_is_down_or_denies_is_said() {
    let mut server = Server::start();
    server.cmd::<()>(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-scan"]);
    let file = server.dir().join("password");
    std::fs::write(&file, "pw").unwrap();
    let url = format!("{}?user=app", server.url());
    let with = ["--password-file", file.to_str().unwrap()];
    let (status, _, err) = run(leasehold_at(&url, &[&["ls", "--all"][..], &with].concat()));
    assert!(status == Some(77) && err.starts_with("leasehold: ") && err.contains("scan"), "{err}");
    let (status, _, err) =
        run(leasehold_at(&url, &[&["ls", "exact", "--all"][..], &with].concat()));
    assert_eq!(status, Some(0), "one name needs no SCAN: {err}");
    server.kill();
    for arguments in [&["ls"][..], &["show", "job"], &["unlock", "job"]] {
        let (status, out, err) = run(leasehold(&server, arguments));
        assert_eq!((status, out.as_str()), (Some(69), ""), "{err}");
        assert!(err.starts_with("leasehold: ") && err.lines().count() == 1, "{err}");
    }
}

/// The list is as long as a page of a terminal: the reader exits before everything is written.
#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let server = Server::start();
    let client = server.builder().lease(Duration::from_secs(60)).build().unwrap();
    let _guards: Vec<_> =
        (0..3000).map(|n| client.lock(format!("job {n:0100}")).unwrap()).collect();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", r#""$0" ls --all | head -n 1; exit "$?""#]).arg(crate::program::path());
    let (status, out, err) = run({
        shell.env("LEASEHOLD_URL", server.url());
        shell
    });
    assert!(status == Some(0) && out.starts_with("NAME") && err.is_empty(), "{out} {err}");
}
