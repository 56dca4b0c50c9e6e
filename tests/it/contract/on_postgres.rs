//! The contract in a PostgreSQL database: all rows of a test share one.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Builder;

use super::{Elsewhere, Network};
use crate::rig::{Postgres, Proxy};

struct Database(Postgres);

pub(super) fn start() -> Arc<dyn Elsewhere> {
    Arc::new(Database(Postgres::shared()))
}

impl Elsewhere for Database {
    fn what(&self) -> &'static str {
        "in a database"
    }

    fn url(&self) -> String {
        self.0.url()
    }

    /// The tests running in parallel share one server, which also copies databases: it can stall
    /// for longer than the default.
    fn builder(&self, builder: Builder) -> Builder {
        builder.io_timeout(Duration::from_secs(7))
    }

    fn assert_clean(&self) {
        self.0.assert_clean();
    }

    fn network(&self) -> Network {
        let proxy = Proxy::before_postgres(&self.0);
        let url = proxy.url();
        Network::of(proxy, url)
    }

    /// The rows under this name, and under names that begin with it.
    fn held(&self, name: &str) -> Vec<String> {
        let own = |held: &String| {
            let first = held.split(' ').next().unwrap();
            first == name || first == format!("{name}-too")
        };
        self.0.held().into_iter().filter(own).collect()
    }

    fn delete(&self, name: &str) {
        for table in ["lock", "share", "waiter"] {
            self.0.run_sql(&format!(
                "DELETE FROM leasehold.{table} WHERE name IN ('{name}', '{name}-too')"
            ));
        }
    }

    /// Whether a client of this name has subscribed. It may have sent a ping since then.
    fn is_waited_for(&self, client: &str, _name: &str) -> bool {
        let listeners = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = '{client}' \
             AND (query LIKE 'LISTEN %' OR query = '')"
        );
        self.0.number_of(&listeners) > 0
    }
}
