//! Which server is the master, according to the sentinels.
//!
//! Every connect asks them ([`inquiry`]), and a thread watches them ([`watch`]), so that the
//! connections to an old master end although it still answers. One case remains: an old master that
//! is on our side of a partition together with every sentinel that we can reach is believed, and
//! renewed against, until one of the others can be reached. A grant that must be acknowledged by
//! replicas (`replicas`) is impossible there, and a fencing token reveals the stale holder.

mod diagnosis;
mod inquiry;
mod known;
mod question;
mod urls;
mod verdict;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::inquiry::Inquiry;
use self::known::Known;
pub(crate) use self::urls::{Providers, SentinelUrls};
use self::watch::MasterWatch;
use crate::base::error::Result;
use crate::report::diagnosis::Finding;
use crate::signal::clock::Clock;
use crate::signal::process::OwnProcess;
use crate::store::redis::wire::{FindMaster, Master};

/// The sentinels of one client.
pub(crate) struct Sentinels {
    inquiry: Arc<Inquiry>,
    watch: Arc<MasterWatch>,
    process: OwnProcess,
    clock: Arc<dyn Clock>,
}

impl Sentinels {
    /// Nothing is connected before the first [`find`](FindMaster::find). `io_timeout`: the limit
    /// for one round of questions.
    pub(crate) fn new(
        urls: SentinelUrls,
        client_name: &str,
        io_timeout: Duration,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let known = Known::new(urls.sentinels, client_name, io_timeout);
        let inquiry = Arc::new(Inquiry::new(urls.name, urls.server, known, io_timeout));
        let watch = Arc::new(MasterWatch::new(inquiry.clone(), client_name, io_timeout));
        Self { inquiry, watch, process: OwnProcess::now(), clock }
    }
}

impl FindMaster for Sentinels {
    fn find(&self) -> Result<Master> {
        let master = self.inquiry.find()?;
        self.watch.begin();
        Ok(master)
    }

    fn moves(&self) -> u64 {
        self.inquiry.moves()
    }

    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inquiry.show(f)
    }

    fn examine(&self) -> Vec<Finding> {
        self.inquiry.examine()
    }

    fn close(&self) {
        self.inquiry.close();
        self.watch.stop();
    }
}

impl Drop for Sentinels {
    /// For a client that was not closed because it could not be built. Nothing is touched in a
    /// fork, where a thread that does not exist may have locked it.
    fn drop(&mut self) {
        if !self.process.is_other(self.clock.now()) {
            self.close();
        }
    }
}
