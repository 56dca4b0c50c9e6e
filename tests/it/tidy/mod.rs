//! Tests on the code itself: what a reviewer would otherwise have to check every time.

mod circles;
mod claims;
mod floors;
mod interface;
mod links;
mod planted;
mod sizes;
mod style;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// A file of the library or of the command, up to its own tests.
struct Source {
    /// The path relative to `src`, with slashes; for the command `cli/`, and the path relative to
    /// `cli/src`.
    path: String,
    /// The top-level module to which it belongs.
    module: String,
    /// Line number and text, without comment lines.
    code: Vec<(usize, String)>,
    /// The comment lines.
    comments: Vec<(usize, String)>,
    /// The number of lines up to the first `#[cfg(test)]`.
    lines: usize,
}

impl Source {
    fn read(path: &Path) -> Self {
        let name = match path.strip_prefix(root().join("cli/src")) {
            Ok(of_the_command) => Path::new("cli").join(of_the_command),
            Err(_) => path.strip_prefix(root().join("src")).unwrap().to_owned(),
        };
        Self::parse(name.to_str().unwrap().replace('\\', "/"), &fs::read_to_string(path).unwrap())
    }

    fn parse(path: String, text: &str) -> Self {
        let is_code =
            |line: &&str| line.starts_with(char::is_whitespace) || !line.ends_with("mod tests {");
        let lines = text.lines().take_while(|line| line.trim() != "#[cfg(test)]").count();
        let all = (1..)
            .zip(text.lines().take_while(is_code))
            .map(|(number, line)| (number, line.to_owned()));
        let (comments, code) = all.partition(|(_, line)| line.trim_start().starts_with("//"));
        let module = path.split(['/', '.']).next().unwrap().to_owned();
        Self { path, module, code, comments, lines }
    }

    fn all() -> Vec<Self> {
        // The tests of a module may have a file of their own.
        let is_source = |path: &&std::path::PathBuf| !path.to_str().unwrap().ends_with("_tests.rs");
        let all: Vec<_> = ["src", "cli/src"]
            .iter()
            .flat_map(|folder| files(&root().join(folder), "rs"))
            .collect();
        let all: Vec<_> = all.iter().filter(is_source).map(|path| Self::read(path)).collect();
        assert!(all.len() > 20, "the sources are found");
        all
    }

    /// The words that follow `mark` in the code, each with its position for a message.
    fn words_after<'a>(&'a self, mark: &'a str) -> impl Iterator<Item = (String, &'a str)> {
        self.code.iter().flat_map(move |(number, line)| {
            let hits = line.match_indices(mark).map(move |(at, _)| (at, &line[at + mark.len()..]));
            // Not the end of a longer path or word.
            let own = hits.filter(|(at, _)| {
                !line[..*at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c))
            });
            own.map(move |(_, rest)| (format!("{}:{number}", self.path), first_word(rest)))
        })
    }

    fn lacks(&self, what: &str) {
        if let Some((number, line)) = self.code.iter().find(|(_, line)| line.contains(what)) {
            panic!("src/{}:{number}: {what} does not belong here: {}", self.path, line.trim());
        }
    }
}

fn first_word(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap()
}

/// `pub use module::{A, B};` of a file: each name with its module.
fn exports(file: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let mut names = BTreeMap::new();
    // Items of other crates have no path here.
    for line in text
        .lines()
        .filter_map(|line| line.strip_prefix("pub use "))
        .filter(|line| line.contains("::"))
    {
        let (path, list) = line.trim_end_matches(';').rsplit_once("::").unwrap();
        let folder = path.split("::").next().unwrap();
        for name in list.trim_matches(['{', '}']).split(',') {
            names.insert(name.trim().to_owned(), folder.to_owned());
        }
    }
    assert!(!names.is_empty(), "{file} exports something");
    names
}
