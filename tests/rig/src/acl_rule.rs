//! The ACL rule of the docs, word for word. Only this file knows where it is in the docs.

const DOCS: &str = include_str!("../../../src/guide/operations.rs");
/// The sentence that the rule follows, and the heading after the section on ACLs.
const BEGIN: &str = "A user with an ACL needs these";
const END: &str = "# Keys and channels";

fn section() -> String {
    let docs =
        DOCS.lines().filter_map(|line| line.strip_prefix("//!")).collect::<Vec<_>>().join(" ");
    let (_, section) = docs.split_once(BEGIN).expect("the docs have the section on ACLs");
    let (section, _) = section.split_once(END).expect("the section on ACLs ends");
    section.to_owned()
}

/// The rule for one server, for locks with these names.
pub fn acl_rule(names: &[&str]) -> Vec<String> {
    let section = section();
    let (_, rule) = section.split_once(" `~<names>").unwrap();
    let rule = format!("~<names>{rule}");
    let (rule, _) = rule.split_once('`').unwrap();
    let with_names = |word: &str| {
        if word.contains("<names>") {
            names.iter().map(|name| word.replace("<names>", name)).collect()
        } else {
            vec![word.to_owned()]
        }
    };
    rule.split_whitespace().flat_map(with_names).collect()
}

/// Everything the section permits outside of clusters, including what only some settings need, but
/// without the names of locks.
pub fn acl_words() -> Vec<String> {
    let section = section();
    // Redis 6.2 does not know the commands of sharded channels.
    let (section, _) = section.split_once("[`Builder::cluster`]").expect("clusters come last");
    let words = section.split(|c: char| c.is_whitespace() || "`.,();".contains(c));
    let permits = |word: &&str| {
        word.starts_with(['+', '&']) || word.starts_with("~re") || word.starts_with("~le")
    };
    words.filter(permits).map(str::to_owned).collect()
}

/// The rights that a role needs in a database with the schema, as the guide says.
pub fn role_grants() -> String {
    grants_in(include_str!("../../../src/guide/postgres.rs"))
}

/// The rights that a user needs in a MySQL database with the tables, one statement each.
pub fn mysql_grants() -> Vec<String> {
    let grants = grants_in(include_str!("../../../src/guide/mysql.rs"));
    grants.split_terminator(';').map(str::to_owned).collect()
}

fn grants_in(chapter: &str) -> String {
    let lines = chapter.lines().map(|line| line.trim_start_matches("//!").trim());
    let grants: String = lines
        .skip_while(|line| *line != "```sql")
        .skip(1)
        .take_while(|line| *line != "```")
        .collect();
    assert!(grants.contains("GRANT"), "{grants}");
    grants
}
