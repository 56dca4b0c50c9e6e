//! The messages of the library name its methods and the chapters of its guide. A user of the
//! command has options and subcommands instead.

/// What the library says, and what the command says instead; applied in this order.
const WORDS: [(&str, &str); 27] = [
    ("the crate docs have the ACL rule, in guide::operations", "`leasehold doctor --acl` prints the ACL rule"),
    ("the crate docs have the rule, in guide::operations", "`leasehold doctor --acl` prints the rule"),
    ("the other rules in guide::operations", "the other rules that `leasehold doctor --acl` prints"),
    ("the keys and channels of guide::operations", "the keys and channels that `leasehold doctor --acl` prints"),
    (" (the crate docs list them, in guide::operations)", ""),
    (
        "run leasehold::POSTGRES_SCHEMA, and grant the rights of guide::postgres",
        "run what `leasehold schema --postgres` prints, with the rights at its end",
    ),
    (
        "run leasehold::POSTGRES_SCHEMA and grant the rights of the chapter guide::postgres",
        "run what `leasehold schema --postgres` prints, with the rights at its end",
    ),
    (
        "the chapter guide::postgres has the rights that a role needs",
        "the output of `leasehold schema --postgres` ends with the rights that a role needs",
    ),
    ("leasehold::POSTGRES_SCHEMA", "what `leasehold schema --postgres` prints"),
    (", see Builder::outage_timeout", ""),
    ("use Builder::cluster", "use redis+cluster://host"),
    ("use Builder::redis", "use redis://host"),
    ("use Builder::sentinel", "use redis+sentinel://host,../master"),
    ("(of the URL, or of the settings credentials or password_file)", "(of the URL or --password-file)"),
    (
        "set it as in redis://user:password@host, or by the setting credentials",
        "set it in LEASEHOLD_URL, or by --password-file",
    ),
    ("the URL and Builder::tls both", "the URL and --ca-file, --cert-file or --key-file both"),
    ("Builder::tls", "--ca-file, --cert-file or --key-file"),
    ("Redlock::admit_fresh_nodes", "--admit-fresh-nodes"),
    ("Redlock::longest_lease", "--longest-lease"),
    ("Builder::lease", "--lease"),
    ("longest_lease", "--longest-lease"),
    ("admit_fresh_nodes", "--admit-fresh-nodes"),
    ("a key_prefix", "a --key-prefix"),
    ("another key_prefix", "another --key-prefix"),
    ("min_hold", "--min-hold"),
    ("max_hold", "--max-hold"),
    ("or ask for one lock by its name with inspect", "or ask for one lock by its name with `leasehold show`"),
];

/// The types of the library that have settings.
const SETTINGS: [&str; 7] =
    ["Builder::", "Cluster::", "Postgres::", "Redis::", "Redlock::", "Sentinel::", "ZooKeeper::"];

/// Replaces the library's words by those of the command. What only a program can set becomes a
/// setting of the user's programs.
pub(crate) fn in_words_of_the_command(text: &str) -> String {
    let mut said = WORDS.iter().fold(text.to_owned(), |text, (library, command)| text.replace(library, command));
    said = said.replace("----", "--");
    for settings in SETTINGS {
        while let Some((front, name, rest)) = named(&said, settings) {
            said = format!("{front}the setting {name} of your programs{rest}");
        }
    }
    while let Some((front, name, rest)) = named(&said, "guide::") {
        said = format!("{front}the chapter {name} of the crate's guide{rest}");
    }
    said
}

/// The text before the marker, the name after it, and the rest.
fn named(text: &str, marker: &str) -> Option<(String, String, String)> {
    let (front, behind) = text.split_once(marker)?;
    let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
    Some((front.to_owned(), behind[..end].to_owned(), behind[end..].to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_become_options() {
        for (library, command) in [
            (
                "a lease of 9 ms is longer than the longest lease of this Redlock, 3s (Redlock::longest_lease)",
                "(--longest-lease)",
            ),
            (
                "0 replicas of the 1 that must acknowledge each grant (Redis::replicas)",
                "(the setting replicas of your programs)",
            ),
            ("a role needs; run leasehold::POSTGRES_SCHEMA", "`leasehold schema --postgres`"),
            ("choose another name or another key_prefix", "another --key-prefix"),
            (
                "below 200 ms a thread that waits for a core can cost the lock; see guide::choosing_a_lease",
                "the chapter choosing_a_lease",
            ),
            ("raise max_connections, or lower Builder::connections", "lower the setting connections of your programs"),
        ] {
            let said = in_words_of_the_command(library);
            assert!(said.contains(command) && !said.contains("::"), "{said}");
        }
    }

    /// Every message that names the library's interface is replaced.
    #[test]
    fn no_text_of_the_library_keeps_its_names() {
        fn sources(folder: &std::path::Path, all: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                match entry.is_dir() {
                    true if entry.ends_with("guide") => {}
                    true => sources(&entry, all),
                    false => all.push(std::fs::read_to_string(entry).unwrap()),
                }
            }
        }
        let mut all = Vec::new();
        sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../src"), &mut all);
        let is_text = |line: &&str| !line.trim_start().starts_with("//") && line.contains('"');
        let lines = all.iter().flat_map(|source| source.lines().filter(is_text));
        let texts = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
        let mut count = 0;
        let names_of_ours =
            |text: &str| SETTINGS.iter().chain(&["guide::", "POSTGRES_SCHEMA"]).any(|name| text.contains(name));
        for text in texts.filter(|text| names_of_ours(text)) {
            let said = in_words_of_the_command(text);
            assert!(!names_of_ours(&said), "{said}");
            count += 1;
        }
        assert!(count > 20, "{count}");
    }
}
