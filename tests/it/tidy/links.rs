//! The READMEs of the packages are shown by the registry, which knows no other file and no address
//! of a repository: their links are addresses, and those into the package name files that are there.

use std::fs;

use super::root;

const IN_THE_PACKAGE: &str = "https://docs.rs/crate/leasehold/latest/source/";
const IN_THE_DOCUMENTATION: &str = "https://docs.rs/leasehold/latest/leasehold/";

/// What is between `](` and `)`, with what a link means in a line of code left out.
fn links(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut prose = String::new();
    for line in text.lines() {
        in_code ^= line.starts_with("```");
        if !in_code {
            prose.push_str(line);
            prose.push(' ');
        }
    }
    prose.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().to_owned()).collect()
}

/// Why nobody who reads the page of the registry can follow this link, if nobody can.
fn broken(link: &str) -> Option<String> {
    if let Some(file) = link.strip_prefix(IN_THE_PACKAGE) {
        let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
        let folder = file.split_once('/').map_or("", |(folder, _)| folder);
        let included = match folder {
            "" => "\"/*.md\"",
            "src" => "\"/src\"",
            _ => "\"/examples/README.md\"",
        };
        let packaged = matches!(folder, "" | "src" | "examples") && manifest.contains(included);
        (!packaged || !root().join(file).is_file()).then(|| format!("the package has no {file}"))
    } else if let Some(page) = link.strip_prefix(IN_THE_DOCUMENTATION) {
        let page = page.trim_end_matches('/');
        let source = root().join("src").join(page);
        let known = source.with_extension("rs").is_file() || source.join("mod.rs").is_file();
        (!known).then(|| format!("the documentation has no {page}"))
    } else {
        (!link.starts_with("https://")).then(|| format!("{link} is a path in the repository"))
    }
}

#[test]
fn the_registry_can_show_all_links_of_the_readmes() {
    for readme in ["README.md", "cli/README.md"] {
        let all = links(&fs::read_to_string(root().join(readme)).unwrap());
        assert!(!all.is_empty(), "the links of {readme} are found");
        let broken: Vec<_> = all.iter().filter_map(|link| broken(link)).collect();
        assert!(broken.is_empty(), "{readme}: {broken:?}");
    }
}

#[test]
fn a_broken_link_is_found() {
    assert_eq!(
        links("see [a](b.md), [c\nd](https://e/f)\n```\n[x](y)\n```\n[g](h)"),
        ["b.md", "https://e/f", "h"]
    );
    let package = |file: &str| broken(&format!("{IN_THE_PACKAGE}{file}"));
    assert_eq!((package("CHANGELOG.md"), package("examples/README.md")), (None, None));
    assert!(package("MISSING.md").is_some() && package("packaging/README.md").is_some());
    let page = |page: &str| broken(&format!("{IN_THE_DOCUMENTATION}{page}"));
    assert_eq!((page("guide/fencing/"), page("guide/")), (None, None));
    assert!(page("guide/fences/").is_some() && broken("BENCHMARKS.md").is_some());
}

/// What a build without a feature links to instead. With all features these are links into the
/// documentation itself, which rustdoc checks.
#[test]
fn links_to_features_that_are_off_lead_to_the_same_pages() {
    let files = fs::read_dir(root().join("src/links")).unwrap();
    for file in files.map(|file| file.unwrap().path()) {
        let text = fs::read_to_string(&file).unwrap();
        // rustdoc drops an empty line at the beginning, and a paragraph may be above it.
        let lines = text.strip_prefix("\n\n").expect("two empty lines").lines();
        for line in lines {
            let (label, page) = line.strip_prefix('[').unwrap().split_once("]: ").unwrap();
            let item = label.trim_matches('`').trim_start_matches("crate::");
            let item = item.replace("Self::", "Builder::");
            let (kind, method) = item.split_once("::").unwrap_or((&item, ""));
            let a = if kind.ends_with("Provider") { "trait" } else { "struct" };
            let anchor =
                if method.is_empty() { String::new() } else { format!("#method.{method}") };
            assert_eq!(page, format!("{IN_THE_DOCUMENTATION}{a}.{kind}.html{anchor}"), "{file:?}");
        }
    }
}
