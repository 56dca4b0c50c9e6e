//! The stores, each with its rows of the table.

use std::sync::Arc;

use super::case::Case;
use super::network::Elsewhere;
use super::primitives::{PRIMITIVES, Primitive};

type Row = &'static Primitive;

#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) test: fn(&mut Case),
    /// On the first row alone, because it is a test of several primitives.
    pub(super) once: bool,
}

impl Point {
    fn rows(self, of: impl Fn(&Primitive) -> bool) -> Vec<Row> {
        let most = if self.once { 1 } else { usize::MAX };
        PRIMITIVES.iter().filter(|row| of(row)).take(most).collect()
    }
}

#[cfg(feature = "testing")]
pub(super) fn memory(point: Point) {
    let rows = point.rows(Primitive::is_plain_row);
    side_by_side(&rows, |row| run(Case::in_memory(row), point));
}

pub(super) fn redis(point: Point) {
    on_own_servers(Primitive::is_plain_row, point);
}

#[cfg(feature = "tls")]
pub(super) fn tls(point: Point) {
    on_own_servers(|row| row.over_tls, point);
}

pub(super) fn sentinel(point: Point) {
    on_own_servers(|row| row.by_sentinel, point);
}

pub(super) fn cluster(point: Point) {
    on_own_servers(|row| row.in_cluster, point);
}

pub(super) fn redlock(point: Point) {
    on_own_servers(|row| row.masters > 1, point);
}

#[cfg(feature = "postgres")]
pub(super) fn postgres(point: Point) {
    on_one_server(&super::on_postgres::start(), point);
}

#[cfg(feature = "mysql")]
pub(super) fn mysql(point: Point) {
    on_one_server(&super::on_mysql::start(), point);
}

#[cfg(feature = "zookeeper")]
pub(super) fn zookeeper(point: Point) {
    on_one_server(&super::on_zookeeper::start(), point);
}

/// Each row has its own servers, so that a leftover of one cannot be mistaken for another's.
fn on_own_servers(rows: impl Fn(&Primitive) -> bool, point: Point) {
    side_by_side(&point.rows(rows), |row| run(Case::new(row), point));
}

fn on_one_server(server: &Arc<dyn Elsewhere>, point: Point) {
    // Only a few run in parallel, because each has its own connections there.
    let has = |row: &Primitive| row.is_plain_row() && server.has(row.label);
    for rows in point.rows(has).chunks(3) {
        side_by_side(rows, |row| run(Case::elsewhere(row, server.clone()), point));
    }
    server.assert_clean();
}

fn run(mut case: Case, point: Point) {
    (point.test)(&mut case);
    case.end();
}

fn side_by_side(rows: &[Row], run: impl Fn(Row) + Sync) {
    assert!(!rows.is_empty(), "the table has rows for this store");
    let failed: Vec<&str> = std::thread::scope(|s| {
        let spawn = |row: &Row| {
            let (run, row) = (&run, *row);
            // A panic message begins with the name of its thread.
            let thread = std::thread::Builder::new().name(row.label.into());
            (row.label, thread.spawn_scoped(s, move || run(row)).unwrap())
        };
        let threads: Vec<_> = rows.iter().map(spawn).collect();
        threads
            .into_iter()
            .filter_map(|(label, thread)| thread.join().is_err().then_some(label))
            .collect()
    });
    assert!(failed.is_empty(), "not kept by {failed:?}");
}
