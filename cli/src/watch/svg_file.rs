//! The file for the picture: created at the start, moved to its place at the end.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, status};

pub(super) struct SvgFile {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
}

impl SvgFile {
    /// Creates a temporary file in the same folder, which becomes the file once it is complete.
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(name) = name.filter(|_| !path.is_dir()) else {
            return Err(Failure::new(
                status::USAGE,
                format!("--svg {}: this is not a file name", path.display()),
            ));
        };
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        // In a folder of several users the name may be a link of somebody else, which is not to be
        // followed; or it was left by a process that had this id and was killed.
        let _ = fs::remove_file(&temporary);
        let file = File::create_new(&temporary)
            .map_err(|e| Failure::new(status::USAGE, format!("--svg {}: {e}", path.display())))?;
        Ok(Self { path: path.to_owned(), temporary, file })
    }

    pub(super) fn write(mut self, picture: &str) -> Result<(), Failure> {
        let written = self.put(picture.as_bytes());
        let failed = |e| {
            Failure::new(status::UNAVAILABLE, format!("cannot write {}: {e}", self.path.display()))
        };
        written.map_err(failed)
    }

    fn put(&mut self, picture: &[u8]) -> io::Result<()> {
        self.file.write_all(picture)?;
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)
    }
}

impl Drop for SvgFile {
    fn drop(&mut self) {
        // Fails if all went well: the file has another name by then.
        let _ = fs::remove_file(&self.temporary);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_place_of_the_temporary_file_is_not_followed() {
        let dir = std::env::temp_dir().join(format!("leasehold-svg-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (path, other) = (dir.join("job.svg"), dir.join("other"));
        fs::write(&other, "of somebody else").unwrap();
        let temporary = format!(".job.svg.{}.tmp", std::process::id());
        std::os::unix::fs::symlink(&other, dir.join(temporary)).unwrap();
        SvgFile::create(&path).unwrap().write("<svg/>").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "<svg/>");
        assert_eq!(fs::read_to_string(&other).unwrap(), "of somebody else");
        fs::remove_dir_all(&dir).unwrap();
    }
}
