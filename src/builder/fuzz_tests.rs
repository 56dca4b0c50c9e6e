//! URLs that are broken in any way: each is refused as invalid input, and nothing shows a password.

use std::fmt::Debug;

use super::cluster::Cluster;
use super::mysql::Mysql;
use super::postgres::Postgres;
use super::redis::Redis;
use super::sentinel::Sentinel;
use super::zookeeper::ZooKeeper;
use crate::base::error::{ErrorKind, Result};
use crate::base::escape::{escape_name, unescape_name};
use crate::base::fuzz_tests::{Dice, fuzz};
use crate::base::glob::Glob;
use crate::store::mysql::url::MysqlUrl;
use crate::store::postgres::url::PostgresUrl;
use crate::store::redis::sentinel::{Providers, SentinelUrls};
use crate::store::redis::wire::Endpoint;
use crate::store::zookeeper::url::ZooKeeperUrl;

const SECRET: &str = "S3cr3t";

/// Hosts, a path and parameters behind the password.
fn url(dice: &mut Dice) -> Vec<u8> {
    let schemes = [
        "redis",
        "rediss",
        "redis+sentinel",
        "rediss+cluster",
        "redis+cluster",
        "redis+unix",
        "postgres",
        "mysql",
        "zookeeper",
        "zookeeper+tls",
    ];
    let scheme = dice.choose(&schemes);
    let hosts = *dice.choose(&["h", "h:7000,[::1]:7001,b", "[::1]", "%2Ftmp%2Fpg", ""]);
    let path = *dice.choose(&["", "/", "/3", "/master/3", "/my%20db", "/a/b"]);
    let parameters = [
        "",
        "?db=3",
        "?protocol=2",
        "?sslmode=require&connect_timeout=3",
        "?host=/s,h&port=7",
        "?user=u",
        "?ssl-mode=required&ssl-ca=x",
    ];
    format!("{scheme}://user:{SECRET}@{hosts}{path}{}", dice.choose(&parameters)).into_bytes()
}

/// Neither the error nor the settings quote the password, as long as the URL has it at its place.
fn judge(url: &str, outcome: Result<impl Sized>, settings: &dyn Debug) {
    // Otherwise it is a part of the path of a unix socket.
    let is_scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
    let front =
        url.split_once("://").filter(|(scheme, _)| is_scheme(scheme)).map_or("", |(_, rest)| rest);
    let has_password =
        front.starts_with(&format!("user:{SECRET}@")) && front.matches(SECRET).count() == 1;
    let mut said = vec![format!("{settings:?}")];
    if let Err(error) = outcome {
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url:?}: {error:?}");
        said.extend([error.to_string(), format!("{error:?}"), error.chain().to_string()]);
    }
    assert!(!has_password || !said.iter().any(|text| text.contains(SECRET)), "{url:?}: {said:?}");
}

#[test]
fn fuzzed_urls_are_understood_or_refused_without_their_passwords() {
    fuzz(url, |bytes, _| {
        let url = &*String::from_utf8_lossy(bytes);
        let nobody = Providers { of_servers: None, of_sentinels: None };
        judge(url, Endpoint::parse(url), &Redis::new(url));
        judge(url, SentinelUrls::of_one(url, nobody), &Sentinel::from(url));
        judge(
            url,
            SentinelUrls::of_each(&[url.to_owned()], "master", nobody),
            &Sentinel::new([url], "master"),
        );
        judge(url, Cluster::new([url]).nodes(), &Cluster::new([url]));
        judge(url, PostgresUrl::parse(url), &Postgres::new(url));
        judge(url, MysqlUrl::parse(url), &Mysql::new(url));
        judge(url, ZooKeeperUrl::parse(url), &ZooKeeper::new(url));
    });
}

#[test]
fn fuzzed_bytes_come_back_from_the_names_they_make() {
    fuzz(
        |dice| dice.text().into_bytes(),
        |bytes, _| {
            assert_eq!(unescape_name(&escape_name(bytes)).as_deref(), Some(bytes));
            let _ = unescape_name(&String::from_utf8_lossy(bytes));
        },
    );
}

#[test]
fn fuzzed_patterns_match_or_not_and_soon() {
    fuzz(
        |dice| {
            let parts: Vec<String> = (0..dice.below(30))
                .map(|_| format!("*{}", dice.choose(&["a", "?", "[a-c]", "\\a"])))
                .collect();
            format!("{}\n{}", parts.concat(), "a".repeat(dice.below(200))).into_bytes()
        },
        |bytes, _| {
            let text = String::from_utf8_lossy(bytes);
            let (pattern, name) = text.split_once('\n').unwrap_or((&text, ""));
            match Glob::parse(pattern) {
                Ok(glob) => {
                    let _ = (glob.matches(name), glob.widened(|c| c.to_string()));
                    assert!(glob.only().is_none_or(|only| glob.matches(&only)), "{pattern:?}");
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput, "{pattern:?}"),
            }
        },
    );
}
