//! The contract in a PostgreSQL database: all rows of a test share one server.

#[cfg(feature = "postgres")]
mod there {
    use std::sync::Arc;

    use super::super::Network;
    use crate::rig::{Postgres, Proxy};

    #[derive(Clone)]
    pub(in super::super) struct Database(Arc<Postgres>);

    impl Database {
        pub(in super::super) fn start() -> Option<Self> {
            Postgres::start().map(|server| Self(Arc::new(server)))
        }

        pub(in super::super) fn url(&self) -> String {
            self.0.url()
        }

        /// After the last row.
        pub(in super::super) fn assert_clean(&self) {
            self.0.assert_clean();
        }

        pub(in super::super) fn network(&self) -> Network {
            let proxies = vec![Arc::new(Proxy::before_postgres(&self.0))];
            Network {
                proxies,
                nodes: Vec::new(),
                sentinel: None,
                #[cfg(feature = "tls")]
                fronts: Vec::new(),
            }
        }

        /// What stands under this name, and under those that begin with it.
        pub(in super::super) fn held(&self, name: &str) -> Vec<String> {
            let own = |held: &String| {
                let first = held.split(' ').next().unwrap();
                first == name || first == format!("{name}-too")
            };
            self.0.held().into_iter().filter(own).collect()
        }

        pub(in super::super) fn delete(&self, name: &str) {
            for table in ["lock", "share", "waiter"] {
                self.0.run_sql(&format!("DELETE FROM leasehold.{table} WHERE name IN ('{name}', '{name}-too')"));
            }
        }

        /// Whether a client of this name has subscribed. It may have sent a ping since then.
        pub(in super::super) fn is_waited_for(&self, client: &str) -> bool {
            let listeners = format!(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{client}' \
                 AND (query LIKE 'LISTEN %' OR query = '')"
            );
            self.0.number_of(&listeners) > 0
        }
    }
}

#[cfg(feature = "postgres")]
pub(super) use there::Database;

/// Without the feature there is none.
#[cfg(not(feature = "postgres"))]
#[derive(Clone)]
pub(super) enum Database {}

#[cfg(not(feature = "postgres"))]
impl Database {
    pub(super) fn start() -> Option<Self> {
        None
    }

    pub(super) fn url(&self) -> String {
        match *self {}
    }

    pub(super) fn assert_clean(&self) {
        match *self {}
    }

    pub(super) fn network(&self) -> super::Network {
        match *self {}
    }

    pub(super) fn held(&self, _name: &str) -> Vec<String> {
        match *self {}
    }

    pub(super) fn delete(&self, _name: &str) {
        match *self {}
    }

    pub(super) fn is_waited_for(&self, _client: &str) -> bool {
        match *self {}
    }
}
