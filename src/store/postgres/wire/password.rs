//! The sources of passwords, in the order of libpq: the URL, `PGPASSWORD`, the password file.

use std::path::{Path, PathBuf};

use crate::base::log;
use crate::store::net::Address;
use crate::store::postgres::url::PostgresUrl;

/// Looked up for each connection: the file may have changed.
pub(super) fn password_for(url: &PostgresUrl, address: &Address) -> Option<String> {
    if let Some(password) = &url.password {
        return Some(password.clone());
    }
    if let Some(password) = std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty())
    {
        return Some(password);
    }
    let file = password_file(url)?;
    if others_may_read(&file) {
        log::warn!(
            "the password file {} is ignored, because others may read it; set its mode to 0600",
            file.display()
        );
        return None;
    }
    let text = std::fs::read_to_string(&file).ok()?;
    let (host, port) = match address {
        Address::Tcp { host, port } => (host.clone(), port.to_string()),
        #[cfg(unix)]
        Address::Unix(path) => {
            let directory =
                path.parent().map(|directory| directory.display().to_string()).unwrap_or_default();
            let port = path
                .extension()
                .map(|port| port.to_string_lossy().into_owned())
                .unwrap_or_default();
            // The usual directory on most systems is listed in the file as `localhost`.
            let is_usual = ["/var/run/postgresql", "/tmp"].contains(&&*directory);
            let found = find(&text, [&directory, &port, &url.database, &url.user]);
            return found.or_else(|| {
                find(&text, ["localhost", &port, &url.database, &url.user]).filter(|_| is_usual)
            });
        }
    };
    find(&text, [&host, &port, &url.database, &url.user])
}

fn password_file(url: &PostgresUrl) -> Option<PathBuf> {
    let file =
        url.more.passfile.clone().or_else(|| std::env::var_os("PGPASSFILE").map(PathBuf::from));
    file.or_else(usual_file)
}

#[cfg(unix)]
fn usual_file() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass"))
}

#[cfg(not(unix))]
fn usual_file() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("APPDATA")?).join("postgresql").join("pgpass.conf"))
}

/// A password file that exists but is ignored, because others may read it.
pub(super) fn ignored_file(url: &PostgresUrl) -> Option<PathBuf> {
    password_file(url).filter(|file| others_may_read(file))
}

#[cfg(unix)]
fn others_may_read(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

/// The usual place is in the user's own profile. libpq does not look at the rights either.
#[cfg(not(unix))]
fn others_may_read(_file: &Path) -> bool {
    false
}

/// The first line `host:port:database:user:password` that fits; `*` fits anything.
fn find(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line).into_iter();
        let fits = wanted
            .iter()
            .all(|wanted| fields.next().is_some_and(|field| field == "*" || field == *wanted));
        fields.next().filter(|_| fits)
    })
}

/// A backslash escapes a colon and itself.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(c) = characters.next() {
        match c {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut().expect("there is one").extend(characters.next()),
            c => fields.last_mut().expect("there is one").push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_counts() {
        let text = "# db:1:d:u:no\nother:*:*:*:no\ndb:1:d\\:x:u:p\\:a\\\\b\n*:*:*:u:last:one";
        assert_eq!(find(text, ["db", "1", "d:x", "u"]).as_deref(), Some("p:a\\b"));
        assert_eq!(find(text, ["db", "2", "d", "u"]).as_deref(), Some("last:one"));
        assert_eq!(find(text, ["db", "2", "d", "v"]), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_ignored() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("lh-pgpass-{}", std::process::id()));
        std::fs::write(&path, "h:5432:d:u:secret\n").unwrap();
        let url =
            PostgresUrl::parse(&format!("postgres://u@h/d?passfile={}", path.display())).unwrap();
        let found = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            password_for(&url, &url.hosts[0])
        };
        if std::env::var_os("PGPASSWORD").is_none() {
            assert_eq!(found(0o600).as_deref(), Some("secret"));
            assert_eq!(ignored_file(&url), None);
            assert_eq!(found(0o644), None);
            assert_eq!(ignored_file(&url).as_ref(), Some(&path), "and the error says so");
        }
        std::fs::remove_file(path).unwrap();
    }
}
