//! Several locks acquired as one, compared with the bare scripts and with as many locks acquired
//! one after another.

use redis::Value;

use crate::common::Bench;
use crate::common::load::rate_of;
use crate::common::scripts::script;
use crate::common::server::connect;
use crate::common::table::{Table, median};

/// Leasehold's defaults.
const LEASE_MS: u64 = 30_000;
const TOKEN_TTL_MS: u64 = 24 * 60 * 60 * 1000;

pub(crate) fn several(bench: &Bench, table: &mut Table) {
    let (rounds, span) = bench.rounds((21, 120), (5, 40));
    for count in [2, 10, 100] {
        let names = |of: &str| (0..count).map(|n| format!("several-{of}-{n}")).collect::<Vec<_>>();
        let client = bench.client();
        let (multi, singles) = (client.multi(names("multi")), names("single"));
        let mut raw = Raw::new(bench.url(), &names("raw"));
        let (mut bare, mut as_one, mut one_by_one) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(rate_of(span, || raw.cycle()));
            as_one.push(rate_of(span, || {
                multi.lock().and_then(|all| all.unlock()).expect("nobody else uses them");
            }));
            one_by_one.push(rate_of(span, || {
                let all: Vec<_> = singles
                    .iter()
                    .map(|name| client.lock(name).expect("nobody else uses it"))
                    .collect();
                for one in all {
                    one.unlock().expect("it was held");
                }
            }));
        }
        let (bare, as_one, one_by_one) = (median(&bare), median(&as_one), median(&one_by_one));
        table.compare(&format!("{count} locks as one, lock + unlock"), bare, as_one, None, "raw");
        table.compare(
            &format!("  {count} locks one after the other (raw: as one)"),
            bare,
            one_by_one,
            None,
            "raw",
        );
    }
}

/// The two scripts on a connection of its own, without any other work.
struct Raw {
    connection: redis::Connection,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

impl Raw {
    fn new(url: &str, names: &[String]) -> Self {
        let mut connection = connect(url);
        let mut load = |source: &str| -> String {
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(source)
                .query(&mut connection)
                .expect("the script is loaded")
        };
        let [acquire, release] = [script("multi_acquire"), script("multi_release")].map(&mut load);
        let (seconds, fraction): (u64, u64) =
            redis::cmd("TIME").query(&mut connection).expect("TIME");
        let of_each =
            |what: &str| names.iter().map(|name| format!("{what}{{{name}}}")).collect::<Vec<_>>();
        // The ids are as long as leasehold's.
        let holders =
            vec![format!("{:08x}-0000-8000-8000-000000000000:1", std::process::id()); names.len()];
        let acquire = redis::cmd("EVALSHA")
            .arg(acquire)
            .arg(2 * names.len())
            .arg(names)
            .arg(of_each("redisson_lock_token:"))
            .arg(&holders)
            .arg(vec![0; names.len()])
            .arg(&[LEASE_MS, TOKEN_TTL_MS])
            .arg("redisson_lock__channel:")
            .arg(&[0, seconds * 1_000_000 + fraction, 0])
            .get_packed_command();
        let release = redis::cmd("EVALSHA")
            .arg(release)
            .arg(names.len())
            .arg(names)
            .arg(&holders)
            .arg(vec![1; names.len()])
            .arg(of_each("redisson_lock__channel:"))
            .get_packed_command();
        Self { connection, acquire, release }
    }

    fn cycle(&mut self) {
        for (request, status) in [(&self.acquire, 1), (&self.release, 2)] {
            self.connection.send_packed_command(request).expect("the private server answers");
            let answer = self.connection.recv_response().expect("an answer");
            let Value::Array(numbers) = answer else { panic!("a script answered {answer:?}") };
            assert_eq!(numbers[0], Value::Int(status), "nobody else uses them");
        }
    }
}
