//! Locks in a MySQL or MariaDB database.

mod faults;
mod fence;
mod load;
mod looking;
mod lost_replies;
mod promotion;
mod schema;
mod sessions;
mod settings;
mod shares;
