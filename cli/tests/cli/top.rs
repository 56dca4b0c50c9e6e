//! `leasehold top`: at a terminal created by `script`, and as JSON.

#![cfg(target_os = "linux")]

use std::process::Stdio;

use serde_json::Value;

use crate::json::checked;
use crate::program::{Program, leasehold, leasehold_at, run};
use crate::rig::{Proxy, Server, ms, signal, wait_until};
use crate::screen::screen;
use crate::support::Clients;
use crate::terminal::Session;

const ENTERED: &str = "\u{1b}[?1049h";
const LEFT: &str = "\u{1b}[?1049l";

struct Top {
    session: Session,
    rows: usize,
    columns: usize,
}

impl Top {
    /// Starts it at a terminal of this size; at the end the shell around it reports whether the
    /// terminal is restored.
    fn start(url: &str, rows: usize, columns: usize, arguments: &str) -> Self {
        let line = format!(
            "stty rows {rows} cols {columns}; modes=$(stty -g); \
             sh -c 'echo pid $$.; exec $LEASEHOLD top --interval 100ms {arguments}'; echo status $?.; \
             test \"$modes\" = \"$(stty -g)\" && echo as before.; exit 0"
        );
        Self { session: Session::start_at(url, "sh -c", &line), rows, columns }
    }

    fn lines(&mut self) -> Vec<String> {
        let written = self.session.so_far();
        let entered = written.rfind(ENTERED).unwrap_or(written.len());
        screen(&written[entered..], self.rows, self.columns)
    }

    #[track_caller]
    fn wait_for(&mut self, what: &str, mut is_it: impl FnMut(&[String]) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        let mut shown = || {
            lines = self.lines();
            is_it(&lines)
        };
        wait_until(what, &mut shown);
        lines
    }

    #[track_caller]
    fn wait_for_text(&mut self, text: &str) -> Vec<String> {
        self.wait_for(text, |lines| lines.iter().any(|line| line.contains(text)))
    }

    /// Checks that it has ended with this status, and that the terminal is restored.
    #[track_caller]
    fn ends_with(mut self, status: i32) {
        self.session.expect(LEFT);
        self.session.expect(&format!("status {status}."));
        self.session.expect("as before.");
        self.session.end();
    }
}

#[test]
fn a_full_screen_is_scrolled_sorted_and_filtered() {
    let server = Server::start();
    let client = server.builder().owner("billing-7").build().unwrap();
    let held: Vec<_> =
        (0..40).map(|n| client.mutex(format!("job-{n:02}")).lock_owned().unwrap()).collect();
    let mut top = Top::start(&server.url(), 24, 100, "");
    let lines = top.wait_for_text("1-17 of 40");
    assert!(lines[1].starts_with("40 locks, 40 held, 0 waiting"), "{lines:?}");
    assert!(lines[0].starts_with(" leasehold top  redis"), "{lines:?}");
    assert!(lines[3].starts_with("NAME▾") && lines[3].ends_with("RATE/s"), "{lines:?}");
    let all_drawn =
        |lines: &[String]| lines[4..21].iter().all(|line| line.contains("billing-7 (pid "));
    let lines = top.wait_for("the owner is known", all_drawn);
    for (n, line) in lines[4..21].iter().enumerate() {
        assert!(line.starts_with(&format!("job-{n:02} ")) && line.contains("mutex"), "{lines:?}");
    }
    assert!(lines[23].contains("1-17 of 40"), "{lines:?}");
    top.session.press("\u{1b}[F");
    let lines = top.wait_for_text("24-40 of 40");
    assert!(
        lines[20].starts_with("job-39 ")
            && lines[22].starts_with("\"job-39\" mutex held by billing-7"),
        "{lines:?}"
    );
    top.session.press("\u{1b}[5~\u{1b}[5~\u{1b}[A");
    let lines = top.wait_for_text("5-21 of 40");
    assert!(lines[4].starts_with("job-04 "), "{lines:?}");
    top.session.press("s");
    top.wait_for_text("HELD▾");
    top.session.press("r");
    top.wait_for_text("HELD▴");
    top.session.press("/38\r");
    top.wait_for("one is left", |lines| {
        lines[1].starts_with("1 with \"38\" of 40 locks") && lines[5].is_empty()
    });
    top.session.press(" ");
    top.wait_for_text("PAUSED");
    drop(held);
    std::thread::sleep(ms(300));
    assert!(top.lines()[1].contains("40 locks"));
    top.session.press(" ");
    top.wait_for_text("0 locks, 0 held");
    top.session.press("q");
    top.ends_with(0);
}

#[test]
fn any_end_gives_the_terminal_back() {
    let server = Server::start();
    for (keys, signal_name, status) in
        [("\u{1b}", "", 0), ("\u{3}", "", 0), ("", "TERM", 143), ("", "INT", 130), ("", "HUP", 129)]
    {
        let mut top = Top::start(&server.url(), 24, 100, "");
        top.wait_for_text("0 locks");
        let written = top.session.so_far();
        let pid = written.split_once("pid ").unwrap().1.split_once('.').unwrap().0.parse().unwrap();
        match signal_name {
            "" => top.session.press(keys),
            name => signal(pid, name),
        }
        top.ends_with(status);
    }
}

/// Closing a window does this: the shell forwards SIGHUP.
#[test]
fn a_terminal_that_goes_away_ends_it() {
    let server = Server::start();
    let file = server.dir().join("status");
    let line = format!(
        "stty rows 24 cols 80; trap 'kill -HUP $top' HUP; $LEASEHOLD top --interval 100ms < /dev/tty & top=$!; wait $top; wait $top; \
         echo status $?. > {}",
        file.display()
    );
    let mut top =
        Top { session: Session::start_at(&server.url(), "sh -c", &line), rows: 24, columns: 80 };
    top.wait_for_text("0 locks");
    drop(top);
    wait_until("it has ended", || {
        std::fs::read_to_string(&file).is_ok_and(|status| status.ends_with(".\n"))
    });
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "status 129.\n");
}

#[test]
fn a_server_that_goes_away_and_comes_back() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = server.client();
    let held = client.mutex("job").lock_owned().unwrap();
    let mut top = Top::start(&proxy.url(), 24, 100, "");
    top.wait_for_text("1 lock, 1 held");
    proxy.refuse(true);
    proxy.cut_all();
    let lines = top.wait_for_text("the store cannot be queried");
    assert!(lines.iter().any(|line| line.starts_with("job ")), "{lines:?}");
    let other = client.mutex("other").lock_owned().unwrap();
    proxy.refuse(false);
    let lines = top.wait_for_text("2 locks, 2 held");
    assert!(!lines.iter().any(|line| line.contains("cannot be queried")), "{lines:?}");
    // It does not answer at all: the screen still works.
    server.suspend();
    top.wait_for_text("not answered for");
    top.session.press("s");
    top.wait_for_text("HELD▾");
    server.resume();
    top.wait_for("it continues", |lines| {
        !lines.iter().any(|line| line.contains("not answered") || line.contains("cannot be"))
    });
    top.session.press("q");
    top.ends_with(0);
    drop((held, other));
}

#[test]
fn names_of_others_do_nothing_to_the_terminal() {
    let server = Server::start();
    let client = server.builder().owner("billing-7").build().unwrap();
    let names = [
        "a\u{1b}]0;title\u{7}",
        "b\u{1b}[2J\u{1b}[41m",
        "c\u{9b}31m\r\n\u{8}",
        "d\u{202e}evil",
        "東京:集計",
    ];
    let held: Vec<_> = names.iter().map(|name| client.mutex(name).lock_owned().unwrap()).collect();
    // Records that a client writes about itself are checked when they are read; ids of holders are
    // not.
    server.cmd::<()>(&["HSET", "job", "\u{1b}]0;id\u{7}:1", "1"]);
    server.cmd::<()>(&["PEXPIRE", "job", "60000"]);
    let mut top = Top::start(&server.url(), 24, 120, "");
    // The screen panics at sequences that are not the command's own.
    let lines = top.wait_for_text("5 locks, 5 held, 0 waiting");
    for shown in [
        "a\\u{1b}]0;title\\u{7} ",
        "b\\u{1b}[2J\\u{1b}[41m ",
        "c\\u{9b}31m\\u{d}\\u{a}\\u{8} ",
        "d\\u{202e}evil ",
    ] {
        assert!(lines.iter().any(|line| line.starts_with(shown)), "{shown}: {lines:?}");
    }
    let written = top.session.so_far();
    assert!(
        !written.contains("\u{1b}]")
            && !written.contains('\u{9b}')
            && !written.contains("\u{1b}[41m")
    );
    top.session.press("q");
    top.ends_with(0);
    drop(held);
}

#[test]
fn a_tiny_terminal_and_one_that_grows() {
    let server = Server::start();
    let client = server.client();
    let held = client.mutex("job").lock_owned().unwrap();
    let mut tiny = Top::start(&server.url(), 1, 1, "");
    tiny.session.expect(ENTERED);
    std::thread::sleep(ms(300));
    tiny.session.press("sr /x\r");
    tiny.session.press("\u{3}");
    tiny.ends_with(0);
    let line =
        "stty rows 3 cols 10; (sleep 0.7; stty rows 24 cols 100) < /dev/tty & exec $LEASEHOLD top";
    let session = Session::start_at(&server.url(), "sh -c", line);
    let mut top = Top { session, rows: 24, columns: 100 };
    top.wait_for_text("1 lock, 1 held, 0 waiting   updated");
    top.session.press("q");
    assert_eq!(top.session.end().0, Some(0));
    drop(held);
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let server = Server::start();
    let (status, out, said) = run(leasehold(&server, &["top"]));
    assert_eq!((status, &*out), (Some(64), ""));
    assert!(said.contains("leasehold ls") && said.contains("--json"), "{said}");
    for arguments in
        [&["top", "--interval", "99ms"][..], &["top", "[", "--json"], &["top", "--sort", "age"]]
    {
        assert_eq!(run(leasehold(&server, arguments)).0, Some(64), "{arguments:?}");
    }
    let nowhere = leasehold_at("redis+unix:///nowhere.sock", &["top", "--json"]);
    assert_eq!(run(nowhere).0, Some(69));
}

fn next(program: &Program) -> Value {
    checked("top", &program.expect(""))
}

#[test]
fn json_has_what_is_held_and_how_often_it_changes() {
    let server = Server::start();
    let client = server.builder().owner("billing-7").build().unwrap();
    let job = client.mutex("job").lock_owned().unwrap();
    // A client names its holds in the background.
    wait_until("it is announced", || !client.announced_locks("j*").unwrap().locks().is_empty());
    let program =
        Program::start(leasehold(&server, &["top", "j*", "--interval", "100ms", "--json"]));
    let first = next(&program);
    assert_eq!(first["locks"][0]["name"], "job");
    assert_eq!(first["locks"][0]["rate"], Value::Null);
    assert_eq!(next(&program)["locks"][0]["rate"], 0.0);
    let label = |look: &Value| look["locks"][0]["holders"][0]["owner"]["label"] == "billing-7";
    assert!(label(&first) || (0..100).any(|_| label(&next(&program))));
    job.unlock().unwrap();
    let is_free = |look: &Value| {
        look["locks"].as_array().is_some_and(Vec::is_empty) && look["error"].is_null()
    };
    assert!((0..100).any(|_| is_free(&next(&program))));
    let job = server.client().mutex("job").lock_owned().unwrap();
    let changes = |look: &Value| look["locks"][0]["rate"].as_f64().is_some_and(|rate| rate > 0.0);
    assert!((0..100).any(|_| changes(&next(&program))), "another client has it");
    server.suspend();
    let mut looks = std::iter::from_fn(|| Some(next(&program)));
    assert!(
        looks.find(|look| look["error"].is_string()).is_some_and(|look| look["locks"].is_null())
    );
    server.resume();
    assert!((0..100).any(|_| next(&program)["locks"][0]["name"] == "job"));
    program.signal("TERM");
    assert_eq!(program.ends_with(143), "");
    drop(job);
}

/// Locked far more often than it is checked, by holds of which none lasts.
#[test]
fn a_lock_that_is_fought_for_shows_its_rate_and_who_waits() {
    let server = Server::start();
    let program = Program::start(leasehold(&server, &["top", "--interval", "500ms", "--json"]));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let client = server.client();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let guard = client.lock("hot").unwrap();
                    std::thread::sleep(ms(5));
                    drop(guard);
                }
            });
        }
        let (mut fast, mut waited) = (false, false);
        for _ in 0..60 {
            let look = next(&program);
            let hot = look["locks"].as_array().unwrap().iter().find(|lock| lock["name"] == "hot");
            fast |= hot.is_some_and(|hot| hot["rate"].as_f64().is_some_and(|rate| rate > 4.0));
            waited |=
                hot.is_some_and(|hot| hot["waiting"].as_u64().is_some_and(|waiting| waiting > 0));
            if fast && waited {
                break;
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(fast && waited, "fast {fast}, waited {waited}");
    });
    program.signal("TERM");
    program.ends_with(143);
}

#[test]
fn a_search_at_the_start_shows_others() {
    let server = Server::start();
    let java = "0f0ba0e5-46ae-4ab8-a4ba-9b8b5f6c1d2e:34";
    server.cmd::<u32>(&["HSET", "java", java, "1"]);
    let program =
        Program::start(leasehold(&server, &["top", "--all", "--interval", "100ms", "--json"]));
    let look = next(&program);
    assert_eq!(look["locks"][0]["name"], "java");
    let scans = server.call_count("scan");
    assert_eq!(next(&program)["locks"][0]["holders"][0]["id"], java);
    server.cmd::<u32>(&["DEL", "java"]);
    assert!((0..100).any(|_| next(&program)["locks"].as_array().is_some_and(Vec::is_empty)));
    assert_eq!(server.call_count("scan"), scans, "once");
    program.signal("TERM");
    program.ends_with(143);
}

#[test]
fn json_ends_when_the_reader_leaves() {
    let server = Server::start();
    let mut command = leasehold(&server, &["top", "--interval", "100ms", "--json"]);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(process.stdout.take().unwrap()),
        &mut first,
    )
    .unwrap();
    assert!(checked("top", &first)["elapsed_ms"].is_u64());
    wait_until("it has ended", || process.try_wait().unwrap().is_some());
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

#[cfg(feature = "postgres")]
#[test]
fn over_postgres() {
    let server = crate::rig::Postgres::start();
    let client = server.client();
    let held = client.mutex("job").lock_owned().unwrap();
    let program =
        Program::start(leasehold_at(&server.url(), &["top", "--interval", "100ms", "--json"]));
    let look = next(&program);
    assert_eq!(
        (&look["locks"][0]["name"], &look["locks"][0]["kind"]),
        (&"job".into(), &"mutex".into())
    );
    program.signal("INT");
    assert_eq!(program.ends_with(130), "");
    drop(held);
}
