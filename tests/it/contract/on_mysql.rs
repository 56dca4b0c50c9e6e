//! The contract in a MySQL database: all rows of a test share one.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Builder;

use super::{Elsewhere, Network};
use crate::rig::{Mysql, Proxy};

struct Database(Mysql);

pub(super) fn start() -> Arc<dyn Elsewhere> {
    Arc::new(Database(Mysql::shared()))
}

impl Elsewhere for Database {
    fn what(&self) -> &'static str {
        "in MySQL"
    }

    fn has(&self, label: &str) -> bool {
        !label.starts_with("fair") && label != "plain-with-data"
    }

    fn url(&self) -> String {
        self.0.url()
    }

    /// The tests running in parallel share one server, which can stall for longer than the default.
    fn builder(&self, builder: Builder) -> Builder {
        builder.io_timeout(Duration::from_secs(7))
    }

    fn assert_clean(&self) {
        self.0.assert_clean();
    }

    fn network(&self) -> Network {
        let proxy = Proxy::before_mysql(&self.0);
        let url = proxy.url();
        Network::of(proxy, url)
    }

    fn held(&self, name: &str) -> Vec<String> {
        let own = |held: &String| {
            let first = held.split(' ').next().unwrap();
            first == name || first == format!("{name}-too")
        };
        self.0.held().into_iter().filter(own).collect()
    }

    fn delete(&self, name: &str) {
        for table in ["lock", "share"] {
            self.0.query(&format!(
                "DELETE FROM leasehold_{table} WHERE name IN ('{name}', '{name}-too')"
            ));
        }
    }

    /// Whoever waits looks at the row: that was the last statement of one of its connections.
    fn is_waited_for(&self, _client: &str, name: &str) -> bool {
        let literal: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.0.number_of(&format!(
            "SELECT COUNT(*) FROM performance_schema.events_statements_current WHERE current_schema=DATABASE() \
             AND sql_text LIKE 'SELECT name,token,%FROM leasehold_lock WHERE name IN (%{literal}%'"
        )) > 0
    }
}
