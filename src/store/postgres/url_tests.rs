use super::*;
use crate::base::error::ErrorKind;

fn hosts_of(url: &str) -> String {
    format!("{:?}", PostgresUrl::parse(url).unwrap())
}

#[test]
fn urls_are_those_of_libpq() {
    let full = "postgresql://us%40er:p%3Aw%2F@db1:6000,[::1]:6001,%2Ftmp%2Fpg/my%20db?application_name=jobs\
                &connect_timeout=3&target_session_attrs=read-write&options=-c%20work_mem%3D1MB";
    let url = PostgresUrl::parse(full).unwrap();
    assert_eq!(format!("{url:?}"), "db1:6000,[::1]:6001,/tmp/pg/.s.PGSQL.5432");
    assert_eq!(
        (&*url.user, url.password.as_deref(), &*url.database),
        ("us@er", Some("p:w/"), "my db")
    );
    assert_eq!(url.more.connect_timeout, Some(Duration::from_secs(3)));
    assert_eq!(url.more.options.as_deref(), Some("-c work_mem=1MB"));
    assert_eq!(hosts_of("postgres://u@h"), "h:5432");
    assert_eq!(hosts_of("postgres:///d?user=u&host=/s,h&port=7"), "/s/.s.PGSQL.7,h:7");
    assert_eq!(hosts_of("postgres:///d?user=u&host=a,b&port=7,8"), "a:7,b:8");
    assert_eq!(PostgresUrl::parse("postgres://u@h").unwrap().database, "u");
}

#[cfg(feature = "tls-core")]
#[test]
fn an_authority_that_is_named_is_asked() {
    let mode = |parameters: &str| {
        PostgresUrl::parse(&format!("postgres://u@h/d?{parameters}")).unwrap().ssl.mode
    };
    assert_eq!(mode(""), SslMode::Prefer);
    assert_eq!(mode("sslmode=allow"), SslMode::Allow);
    assert_eq!(mode("sslmode=require"), SslMode::Require);
    assert_eq!(mode("sslmode=require&sslrootcert=c"), SslMode::VerifyCa);
    assert_eq!(mode("sslmode=verify-ca&sslrootcert=c"), SslMode::VerifyCa);
    assert_eq!(mode("sslmode=verify-full&sslrootcert=system"), SslMode::VerifyFull);
}

#[test]
fn an_unknown_parameter_is_named_unless_it_may_be_a_part_of_a_password() {
    let said =
        PostgresUrl::parse("postgres://u:secret@h/d?sslmod=require").unwrap_err().to_string();
    assert!(said.contains("\"sslmod\"") && said.contains("sslmode"), "{said}");
}

#[test]
fn what_is_not_understood_is_refused_without_quoting_it() {
    for url in [
        "postgres://u:secret@h/d?sslmod=require",
        "postgres://u:secret@h/d?sslmode=verify-ca",
        "postgres://u:secret@h/d?sslmode=verify-ca&sslrootcert=system",
        "postgres://u:secret@h/d?sslmode=require&sslrootcert=system",
        "postgres://u:secret@h/d?sslmode=allow&sslrootcert=c",
        "postgres://u:secret@h/d?sslmode=on",
        "postgres://u:secret@h/d?target_session_attrs=standby",
        "postgres://u:secret@h/d#x",
        "postgres://u:secret@h/d?user=v",
        "postgres://u:secret@h/d?host=i",
        "postgres://u:secret@h:0/d",
        "postgres://u:secret@h:x/d",
        "postgres://u:secret@/d",
        "postgres://h/d?password=secret",
        "postgres://u:sec/ret@h/secret",
        "postgres://u:secret%zz@h/d",
        "postgres://u:secret@h/d?sslcert=c",
        "postgres://u:secret@h/d?sslrootcert=c",
        "postgres://u:secret%00@h/d",
        "postgres:///d?user=u&host=a,b&port=1,2,3&password=secret",
        "postgres:///d?user=u&host=a&password=not&secret=1",
        "postgres://u:not?secret=1@h/d",
    ] {
        let error = PostgresUrl::parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}");
        assert!(!error.to_string().contains("secret"), "{url}: {error}");
    }
}
