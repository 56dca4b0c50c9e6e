use super::*;

fn shown(url: &str) -> String {
    match Url::split(url, &[], "FORM").and_then(|url| Ok((url.hosts()?, url))) {
        Ok((hosts, url)) => {
            let hosts: Vec<_> = hosts.iter().map(|host| (host.name, host.port)).collect();
            format!("{:?} {hosts:?} {:?} {:?}", url.log_in, url.path, url.query)
        }
        Err(e) => e.message().to_owned(),
    }
}

#[test]
fn a_url_is_split_as_it_is_written() {
    if !cfg!(all(feature = "redis", feature = "zookeeper")) {
        return;
    }
    for (url, parts) in [
        ("redis://h", r#"None [("h", None)] "" None"#),
        (" REDIS://u:p%40@h:7/3?db=1\n", r#"Some("u:p%40") [("h", Some(7))] "3" Some("db=1")"#),
        (
            "redis+sentinel://@a:,[::1]:7/m/3",
            r#"Some("") [("a", None), ("::1", Some(7))] "m/3" None"#,
        ),
        ("zookeeper://u:p@ss@h?", r#"Some("u:p@ss") [("h", None)] "" Some("")"#),
    ] {
        assert_eq!(shown(url), parts, "{url}");
    }
}

#[test]
fn an_error_names_the_part_and_how_to_encode_a_password() {
    if !cfg!(feature = "redis") {
        return;
    }
    let encoded = "is written %2F, %3F, %23 or %40";
    for (url, says, is_broken) in [
        ("redis", "scheme", false),
        ("redis:h", "://", false),
        ("redis://h:x", "port", false),
        ("redis://h:99999", "the port 99999", false),
        ("redis://a,redis://b", "a comma joins two URLs", false),
        ("redis://::1", "brackets", false),
        ("redis://[::1", "[address]", false),
        ("redis://[::1]x", "[address]", false),
        ("redis://", "host is missing", false),
        ("redis://a,,b", "host is missing", false),
        ("redis://h/\t3", "control character", false),
        ("redis://h#f", "'#'", false),
        ("redis://u:1#p@h", "'#'", true),
        ("redis://u:1/p@h", "'@'", true),
        ("redis://u:p/w@h", "'@'", true),
        ("redis://u:p?w@h", "port", true),
    ] {
        let shown = shown(url);
        assert!(shown.contains(says), "{shown}");
        assert_eq!(shown.contains(encoded), is_broken, "{shown}");
    }
}

#[cfg(any(feature = "postgres", feature = "mysql", feature = "zookeeper"))]
#[test]
fn escapes_are_decoded_or_refused() {
    if !cfg!(feature = "redis") {
        return;
    }
    let url = Url::split("redis://h", &[], "FORM").unwrap();
    let decode = |text: &str| url.decode("user", text).map_err(|e| e.message().to_owned());
    assert_eq!(decode("a%40%2Fb"), Ok("a@/b".to_owned()));
    assert_eq!(decode("%c3%A4+"), Ok("ä+".to_owned()));
    assert_eq!(decode(""), Ok(String::new()));
    for text in ["%", "a%4", "%4g", "%+1", "%%40", "ä%ä1"] {
        let wrong = decode(text).unwrap_err();
        assert!(wrong.contains("the user in the URL has a '%' without"), "{text}: {wrong}");
    }
    for text in ["%00", "%ff"] {
        let wrong = decode(text).unwrap_err();
        assert!(wrong.contains("zero byte, or is not UTF-8"), "{text}: {wrong}");
    }
}

#[test]
fn ports_are_from_1_to_65535() {
    if !cfg!(feature = "redis") {
        return;
    }
    for port in ["0", "65536", "99999"] {
        let wrong = shown(&format!("redis://h:{port}"));
        assert!(wrong.contains(&format!("the port {port} in the URL")), "{wrong}");
    }
    // Anything else may be a part of a password, and is not shown.
    for port in ["s3c", "123456", "-1"] {
        let wrong = shown(&format!("redis://h:{port}"));
        assert!(wrong.contains("a port in the URL") && !wrong.contains(port), "{wrong}");
    }
    assert_eq!(
        shown("redis://h:1,i:65535"),
        r#"None [("h", Some(1)), ("i", Some(65535))] "" None"#
    );
}

#[test]
fn a_unix_socket_has_a_path_and_no_host() {
    if !cfg!(all(feature = "redis", unix)) {
        return;
    }
    for url in ["redis+unix:///tmp/s", "redis+unix:/tmp/s"] {
        let split = Url::split(url, &[], "FORM").unwrap();
        assert!(split.is_unix());
        assert!(split.hosts().unwrap()[0].name.is_empty());
    }
    assert!(!Url::split("redis://h", &[], "FORM").unwrap().is_unix());
    // The host is missing because the URL of a socket was written for that of a server.
    assert!(shown("redis:///tmp/s").contains("begins with redis+unix:///"));
    assert!(!shown("redis://").contains("redis+unix"));
    assert!(!shown("redis://a,,b/3").contains("redis+unix"));
}
