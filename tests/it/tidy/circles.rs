//! No import circles: in each folder of `src`, its files and folders can be put in an order in
//! which each imports only from those before it.

use std::collections::{BTreeMap, BTreeSet};

use super::Source;

/// A module by its path from the crate: `["store", "redis", "wire"]`.
type Path = Vec<String>;

/// A module that is a file.
struct Module {
    /// The path of its folder, and its file name there, which is `mod` for a `mod.rs`.
    place: Path,
    /// Its imports, by their names in this module.
    imports: BTreeMap<String, Path>,
    given: BTreeSet<String>,
    /// All paths in its code as written, which may begin with the name of a module, and all single
    /// words.
    paths: Vec<Path>,
    words: BTreeSet<String>,
}

impl Module {
    fn read(source: &Source) -> (Path, Self) {
        let place: Path =
            source.path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        let mut module = place.clone();
        if module.last().is_some_and(|name| ["mod", "lib", "main"].contains(&&**name)) {
            module.pop();
        }
        let code: Vec<&str> = source.code.iter().map(|(_, line)| line.as_str()).collect();
        let (uses, rest) = without_uses(&code.join("\n"));
        let mut read = Self {
            place,
            imports: BTreeMap::new(),
            given: BTreeSet::new(),
            paths: Vec::new(),
            words: BTreeSet::new(),
        };
        for (public, tree) in uses {
            for (path, name) in flatten(&tree) {
                if public {
                    read.given.insert(name.clone());
                }
                read.imports.insert(name, path);
            }
        }
        for path in rest.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c)) {
            let path: Path =
                path.split("::").filter(|word| !word.is_empty()).map(str::to_owned).collect();
            read.words.extend(path.first().cloned());
            if path.len() > 1 {
                read.paths.push(path);
            }
        }
        (module, read)
    }
}

/// The `use` declarations, each with whether it has any `pub`, and the code without them.
fn without_uses(code: &str) -> (Vec<(bool, String)>, String) {
    let (mut uses, mut rest) = (Vec::new(), String::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let trimmed = line.trim_start();
        let after = match trimmed.strip_prefix("pub") {
            Some(after) if after.starts_with('(') => {
                after.split_once(") ").map_or("", |(_, after)| after)
            }
            Some(after) => after.trim_start(),
            None => trimmed,
        };
        let Some(tree) = after.strip_prefix("use ") else {
            if !after.starts_with("mod ") {
                // Without string literals.
                rest.extend(line.split('"').step_by(2));
                rest.push('\n');
            }
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.ends_with(';') {
            tree += lines.next().expect("a use declaration ends").trim();
        }
        uses.push((trimmed.starts_with("pub"), tree.trim_end_matches(';').to_owned()));
    }
    (uses, rest)
}

/// `a::{b, c::{self, d as e}}` as `a::b`, `a::c` and `a::c::d`, each with the name that it
/// introduces.
fn flatten(tree: &str) -> Vec<(Path, String)> {
    let (front, inner) = match tree.split_once('{') {
        Some((front, inner)) => {
            (front, inner.trim_end().strip_suffix('}').expect("braces in pairs"))
        }
        None => {
            let (path, name) =
                tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name)));
            let path: Path =
                path.trim().split("::").filter(|word| *word != "self").map(str::to_owned).collect();
            let name =
                name.map_or_else(|| path.last().cloned(), |name| Some(name.trim().to_owned()));
            return vec![(path, name.unwrap_or_default())];
        }
    };
    let front: Path = front
        .trim()
        .split("::")
        .filter(|word| !["", "self"].contains(word))
        .map(str::to_owned)
        .collect();
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in inner.chars() {
        match c {
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        parts.last_mut().expect("there is one").push(c);
    }
    let parts =
        parts.iter().filter(|part| !part.trim().is_empty()).flat_map(|part| flatten(part.trim()));
    let joined = parts.map(|(path, name)| {
        let path: Path = front.iter().cloned().chain(path).collect();
        let name = if name.is_empty() { path.last().cloned().unwrap_or_default() } else { name };
        (path, name)
    });
    joined.collect()
}

struct Crate(BTreeMap<Path, Module>);

impl Crate {
    fn of(sources: &[Source]) -> Self {
        Self(sources.iter().map(Module::read).collect())
    }

    /// The module whose file defines `path` in the module `from`, through any re-exports; `None`
    /// for a path to another crate or to no module.
    fn target(&self, from: &Path, path: &[String]) -> Option<&Path> {
        let (first, rest) = path.split_first()?;
        let mut at = from.clone();
        match first.as_str() {
            // The command is a crate of its own.
            "crate" => at.truncate(usize::from(at.starts_with(&["cli".to_owned()]))),
            "super" => drop(at.pop()?),
            word => {
                at.push(word.to_owned());
                if !self.0.contains_key(&at) {
                    // A module or an item that was imported under this name.
                    let import =
                        self.0[from].imports.get(word).filter(|import| **import != *path)?;
                    let whole: Path = import.iter().chain(rest).cloned().collect();
                    return self.target(from, &whole);
                }
            }
        }
        self.within(at, rest)
    }

    fn within(&self, mut at: Path, path: &[String]) -> Option<&Path> {
        for (n, word) in path.iter().enumerate() {
            if word == "super" {
                at.pop();
                continue;
            }
            let module = self.0.get(&at)?;
            let mut child = at.clone();
            child.push(word.clone());
            if self.0.contains_key(&child) {
                at = child;
            } else if module.given.contains(word) && module.imports[word] != [word.clone()] {
                let whole: Path =
                    module.imports[word].iter().chain(&path[n + 1..]).cloned().collect();
                return self.target(&at, &whole);
            } else {
                break;
            }
        }
        self.0.get_key_value(&at).map(|(path, _)| path)
    }

    /// The modules that a module needs. A `mod.rs` does not need what it only re-exports from its
    /// own folder.
    fn needs(&self, path: &Path, module: &Module) -> BTreeSet<&Path> {
        let own_folder = |target: &&Path| target.starts_with(path) && target.len() > path.len();
        let handed_on = |name: &String| module.given.contains(name) && !module.words.contains(name);
        let imported = module.imports.iter().filter_map(|(name, import)| {
            let target = self.target(path, import)?;
            (!(handed_on(name) && own_folder(&target))).then_some(target)
        });
        let named = module.paths.iter().filter_map(|words| self.target(path, words));
        imported.chain(named).filter(|target| *target != path).collect()
    }

    /// For each folder, which of its files and folders need which others.
    fn folders(&self) -> BTreeMap<Path, BTreeMap<&str, BTreeSet<&str>>> {
        let mut folders: BTreeMap<Path, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
        for (path, module) in &self.0 {
            for target in self.needs(path, module) {
                let (from, to) = (&module.place, &self.0[target].place);
                let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
                let folder = folders.entry(from[..common].to_vec()).or_default();
                folder.entry(&from[common]).or_default().insert(&to[common]);
            }
        }
        folders
    }
}

/// All nodes that can be reached from `from`.
fn reachable<'a>(graph: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        open.extend(graph.get(node).into_iter().flatten().filter(|next| found.insert(**next)));
    }
    found
}

/// Each circle, with the imports that cause it.
fn circles(sources: &[Source]) -> BTreeMap<String, Vec<String>> {
    let mut circles = BTreeMap::new();
    for (folder, graph) in Crate::of(sources).folders() {
        for node in graph.keys() {
            let mut circle = reachable(&graph, node);
            circle.retain(|other| reachable(&graph, other).contains(node));
            if circle.contains(node) {
                let names: Vec<_> = circle.iter().copied().collect();
                let prefix =
                    if folder.is_empty() { String::new() } else { folder.join("/") + ": " };
                let mut imports = Vec::new();
                for from in &circle {
                    imports.extend(
                        graph[from].intersection(&circle).map(|to| format!("{from} -> {to}")),
                    );
                }
                circles.insert(prefix + &names.join(" <-> "), imports);
            }
        }
    }
    circles
}

#[test]
fn modules_do_not_import_each_other_in_circles() {
    let circles = circles(&Source::all());
    assert!(circles.is_empty(), "import circles, and the imports that cause them: {circles:?}");
}

/// The test above would also pass if it followed no imports at all.
#[test]
fn circles_are_found_through_re_exports_and_in_parents() {
    let found = |files: &[(&str, &str)]| -> Vec<String> {
        let sources: Vec<_> =
            files.iter().map(|(path, text)| Source::parse((*path).to_owned(), text)).collect();
        circles(&sources).into_keys().collect()
    };
    let lib = ("lib.rs", "mod a;\nmod z;\npub use a::Thing;");
    let parent = (
        "a/mod.rs",
        "mod b;\nmod c;\npub(crate) use b::{self, Thing};\npub(crate) use self::c::{\n    Other as More,\n};",
    );
    // A parent does not need what it only re-exports.
    assert_eq!(
        found(&[lib, parent, ("a/b.rs", "use super::More;"), ("a/c.rs", "use crate::base;")]),
        [""; 0]
    );
    assert_eq!(
        found(&[lib, parent, ("a/b.rs", "use super::More;"), ("a/c.rs", "use crate::Thing;")]),
        ["a: b <-> c"]
    );
    let named = "fn other() -> crate::a::b::Thing {}";
    assert_eq!(
        found(&[lib, parent, ("a/b.rs", "use super::{x, c::Other};"), ("a/c.rs", named)]),
        ["a: b <-> c"]
    );
    // By the name of an imported module.
    let by_name = "use crate::a::b;\nfn other() -> b::Thing {}";
    assert_eq!(
        found(&[lib, parent, ("a/b.rs", "use super::More;"), ("a/c.rs", by_name)]),
        ["a: b <-> c"]
    );
    let needed = ("a/mod.rs", "mod b;\nuse b::Thing;\nstruct Own(Thing);");
    assert_eq!(found(&[lib, needed, ("a/b.rs", "use super::Own;")]), ["a: b <-> mod"]);
    let program = [
        ("cli/main.rs", "mod b;\nmod c;\nuse b::Thing;"),
        ("cli/b.rs", "use crate::c::Other;"),
        ("cli/c.rs", "use crate::b::Thing;\nuse a::OfTheLibrary;"),
    ];
    assert_eq!(found(&program), ["cli: b <-> c"]);
    let above = [
        lib,
        parent,
        ("a/b.rs", "use crate::z::Z;"),
        ("a/c.rs", ""),
        ("z.rs", "use crate::Thing;"),
    ];
    assert_eq!(found(&above), ["a <-> z"]);
    let tests = "use super::More;\n// use crate::Thing;";
    assert_eq!(
        found(&[
            lib,
            parent,
            ("a/b.rs", tests),
            ("a/c.rs", "mod tests {\n    use super::super::b;")
        ]),
        [""; 0]
    );
}
