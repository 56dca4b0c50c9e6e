//! Programs on Windows: Wine starts them, the servers and the other clients run here. They test the
//! library and the command, `tests/windows/run.sh` builds what they start.
//!
//! Wine is not Windows: it shows that the code for Windows works with the interfaces as Wine
//! implements them.

#![allow(missing_docs, reason = "tests")]
#![cfg(target_os = "linux")]

mod agent;
mod command;
mod library;
mod program;

use leasehold_rig as rig;
