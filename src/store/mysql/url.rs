//! Parses URLs of databases, with the parameters of MySQL's own programs.

use std::path::PathBuf;

use crate::base::error::{Result, invalid};
use crate::store::database::{DatabaseUrl, Ssl, SslMode, address, check_tls, log_in};
use crate::store::net::{Parameters, Url};
use crate::store::schemes::UrlKind;

const PORT: u16 = 3306;

const FORM: &str = "mysql://user[:password]@host[:port][,host[:port]..]/database[?parameter=..&..], where a unix socket \
                    is a host that is its path, with %2F for each '/'";

const PARAMETERS: &str = "ssl-mode, ssl-ca";

pub(crate) type MysqlUrl = DatabaseUrl<()>;

impl MysqlUrl {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let url = Url::split(url, &[UrlKind::Mysql], FORM)?;
        let mut said = Parameters::of(&url, PARAMETERS);
        said.add_query()?;
        let (user, password) = log_in(&url);
        if user.is_empty() {
            return Err(url.wrong("the URL names no user"));
        }
        if url.path.is_empty() || url.path.contains('/') {
            return Err(
                url.wrong("the URL names no database, or one with a '/', which is written %2F")
            );
        }
        let hosts = url.hosts()?.into_iter().map(|host| {
            let name = url.decode("host", host.name)?;
            address(&url, &name, host.port.unwrap_or(PORT), || PathBuf::from(&name))
        });
        Ok(Self {
            hosts: hosts.collect::<Result<_>>()?,
            user: url.decode("user", user)?,
            password: password.map(|password| url.decode("password", password)).transpose()?,
            database: url.decode("database", url.path)?,
            ssl: ssl(&said)?,
            more: (),
        })
    }
}

fn ssl(said: &Parameters<'_>) -> Result<Ssl> {
    let root = said.get("ssl-ca").map(PathBuf::from);
    let mode = match said.get("ssl-mode").map(str::to_ascii_lowercase).as_deref() {
        None if root.is_some() => SslMode::VerifyFull,
        None | Some("preferred") => SslMode::Prefer,
        Some("disabled") => SslMode::Disable,
        Some("required") => SslMode::Require,
        Some("verify_identity") => SslMode::VerifyFull,
        Some(_) => {
            return Err(invalid(
                "ssl-mode is one of disabled, preferred, required and verify_identity",
            ));
        }
    };
    check_tls(matches!(mode, SslMode::Require | SslMode::VerifyFull))?;
    if root.is_some() && mode != SslMode::VerifyFull {
        return Err(invalid(
            "ssl-ca is for ssl-mode=verify_identity; with the other modes no certificate is checked",
        ));
    }
    Ok(Ssl { mode, said: said.get("ssl-mode").is_some(), root, identity: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        match MysqlUrl::parse(url) {
            Ok(url) => format!("{url:?} {} {:?} {}", url.user, url.password, url.database),
            Err(error) => error.message().to_owned(),
        }
    }

    #[test]
    fn each_part_is_understood_or_refused() {
        for (url, says) in [
            ("mysql://app:p%40w@h/d", "h:3306 app Some(\"p@w\") d"),
            ("mariadb://app@a:7,[::1]/d", "a:7,[::1]:3306 app None d"),
            ("mysql://app@%2Frun%2Fmysqld%2Fmysqld.sock/d", "/run/mysqld/mysqld.sock app None d"),
            ("mysql://h/d", "names no user"),
            ("mysql://app@h", "names no database"),
            ("mysql://app@h/d?ssl-mode=x", "ssl-mode is one of"),
            ("mysql://app@h/d?sslmode=x", "unknown parameter"),
            ("mysql://app@h/d?ssl-mode=disabled&ssl-ca=x", "ssl-ca is for"),
        ] {
            assert!(shown(url).contains(says), "{url}: {}", shown(url));
        }
    }
}
