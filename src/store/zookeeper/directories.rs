//! Directories are containers, which the server removes when they become empty. A container that
//! never had a child stays for ever, so each is made in the transaction that makes its first child.

use std::collections::HashSet;

use super::ZooKeeperStore;
use super::queue::{ZooKeeperResult, certain, is_there};
use super::wire::{Code, Mode, Request};

impl ZooKeeperStore {
    /// The requests that make whatever is missing of these directories and those above them.
    pub(super) fn missing<'d>(
        &self,
        directories: impl IntoIterator<Item = &'d str>,
    ) -> ZooKeeperResult<Vec<Request>> {
        let mut seen = HashSet::new();
        let mut paths = Vec::new();
        for directory in directories {
            let ends = directory.match_indices('/').map(|(at, _)| at).filter(|at| *at > 0);
            let above = ends.chain([directory.len()]).map(|end| &directory[..end]);
            paths.extend(above.filter(|path| !path.is_empty() && seen.insert(*path)));
        }
        let looks: Vec<Request> = paths.iter().map(|path| Request::exists(path, false)).collect();
        if looks.is_empty() {
            return Ok(Vec::new());
        }
        let exchange = self.ask(&looks)?;
        let mut missing = Vec::new();
        for (reply, path) in exchange.replies.iter().zip(paths) {
            if !is_there(reply, path)? {
                missing.push(self.directory(path));
            }
        }
        Ok(missing)
    }

    /// A directory is a container, except the chroot, which has to stay.
    fn directory(&self, path: &str) -> Request {
        let is_chroot = self
            .chroot
            .strip_prefix(path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let mode = if is_chroot { Mode::Persistent } else { Mode::Container };
        Request::create(path, &[], self.acl, mode)
    }

    /// Makes the chroot if it is missing.
    pub(super) fn make_chroot(&self) -> ZooKeeperResult<()> {
        let missing = self.missing([&*self.chroot])?;
        if missing.is_empty() {
            return Ok(());
        }
        for reply in self.ask(&missing)?.replies {
            match reply.code {
                // Another client has made it at the same time.
                Code::OK | Code::NODE_EXISTS => {}
                code => return Err(certain(code.to_error(&self.chroot))),
            }
        }
        Ok(())
    }
}
