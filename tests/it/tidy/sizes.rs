//! The sizes of the kernel's parts, and the first line of each source file.

use super::{Source, files, root};

/// The kernel: the folders whose files, functions and types are kept small.
const KERNEL: [&str; 3] = ["lease", "wait", "hold"];
const MOST_LINES: usize = 400;
const MOST_OF_A_FUNCTION: usize = 60;
const MOST_FIELDS: usize = 12;

/// `cargo test --all-features --test it -- tidy::sizes::first_lines --nocapture` prints them.
#[test]
fn first_lines() {
    let mut folder = String::new();
    for path in ["src", "cli/src"].iter().flat_map(|folder| files(&root().join(folder), "rs")) {
        let path_in_src = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
        let text = std::fs::read_to_string(&path).unwrap();
        let told: Vec<_> =
            text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
        let sentence = told.join(" ");
        let sentence = sentence.split(". ").next().unwrap_or_default().trim_end_matches('.');
        let is_test = path_in_src.ends_with("_tests.rs");
        assert!(is_test || sentence.len() > 5, "{path_in_src} does not say what is in it");
        let (own, file) = path_in_src.rsplit_once('/').unwrap_or(("", &path_in_src));
        if own != folder {
            println!("\n{own}/");
            own.clone_into(&mut folder);
        }
        println!("  {file:<24} {sentence}");
    }
}

#[test]
fn the_kernel_is_in_small_parts() {
    for file in Source::all().iter().filter(|file| KERNEL.contains(&&*file.module)) {
        assert!(
            file.lines <= MOST_LINES,
            "src/{} has {} lines before its tests",
            file.path,
            file.lines
        );
        for (at, (number, line)) in file.code.iter().enumerate() {
            let indent = &line[..line.len() - line.trim_start().len()];
            let words: Vec<_> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            let end = |text: &str| {
                let end = format!("{indent}{text}");
                file.code[at..].iter().find(|(_, line)| *line == end).map(|(end, _)| *end)
            };
            if words.contains(&"fn")
                && line.ends_with(['{', '('])
                && let Some(last) = end("}")
            {
                let lines = last - number + 1;
                assert!(
                    lines <= MOST_OF_A_FUNCTION,
                    "src/{}:{number}: a function of {lines} lines",
                    file.path
                );
            }
            if words.contains(&"struct")
                && line.ends_with('{')
                && let Some(last) = end("}")
            {
                let fields = file.code[at + 1..].iter().take_while(|(at, _)| *at < last);
                let is_field = |line: &str| {
                    let depth = line.len() - line.trim_start().len();
                    depth == indent.len() + 4
                        && line.contains(": ")
                        && !line.trim_start().starts_with('#')
                };
                let fields = fields.filter(|(_, line)| is_field(line)).count();
                assert!(
                    fields <= MOST_FIELDS,
                    "src/{}:{number}: a type of {fields} fields",
                    file.path
                );
            }
        }
    }
}
