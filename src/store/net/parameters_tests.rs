use super::*;

/// What these parameters of a URL say, or what is wrong with them.
fn said(query: &str) -> std::result::Result<Vec<(String, String)>, String> {
    let text = format!("redis://h/{query}");
    let url = Url::split(&text, &[], "FORM").unwrap();
    let mut parameters = Parameters::of(&url, "user, password, sslmode, sslcert");
    let added = parameters.add_query();
    added.map(|()| parameters.said).map_err(|e| e.message().to_owned())
}

#[test]
fn each_parameter_is_known_and_said_once() {
    let pairs = |pairs: &[(&str, &str)]| {
        Ok(pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
    };
    assert_eq!(said(""), pairs(&[]));
    assert_eq!(said("?"), pairs(&[]));
    let two = pairs(&[("user", "a&b"), ("sslmode", "")]);
    assert_eq!(said("?user=a%26b&&sslmode="), two);
    let wrong = |query: &str| said(query).unwrap_err();
    assert!(wrong("?user").contains("has no value"));
    assert!(wrong("?user=%").contains("two hexadecimal digits"));
    assert!(wrong("?user=a&user=b").contains("sets user twice"));
    let near = wrong("?sslfoo=1");
    assert!(near.contains("\"sslfoo\"; known are sslmode, sslcert;"), "{near}");
    let none = wrong("?timeout=1");
    assert!(none.contains("\"timeout\"; known are user, password, sslmode"), "{none}");
}

/// With a '&' that was not encoded, what follows may be a part of a password.
#[test]
fn no_error_shows_a_part_of_a_password() {
    for query in ["?password=s3c&ret=7", "?user=a&s3cret=1@b"] {
        let wrong = said(query).unwrap_err();
        assert!(wrong.contains("an unknown parameter; known are user"), "{wrong}");
        assert!(!wrong.contains("ret"), "{wrong}");
    }
}

#[test]
fn a_parameter_is_read_by_its_name() {
    let url = Url::split("redis://h", &[], "FORM").unwrap();
    let mut parameters = Parameters::of(&url, "user, db");
    parameters.add("db", "3".to_owned()).unwrap();
    assert_eq!((parameters.get("db"), parameters.get("user")), (Some("3"), None));
    assert_eq!((parameters.own("db"), parameters.own("user")), (Some("3".to_owned()), None));
    assert!(parameters.add("d", "3".to_owned()).is_err(), "not by a part of it");
}
