//! Tests on the code itself: what a review would have to look for every time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The folders, floor by floor: a file imports from its own floor and from those below.
const FLOORS: [&[&str]; 6] = [
    &["base"],
    &["store"],
    &["background"],
    &["session"],
    &["sync", "fencing"],
    &["client", "builder", "in_memory", "testing", "interop"],
];

/// Where the `redis` crate may be seen: what reads its URLs, what dials, what computes a script's hash.
const KNOW_REDIS: [&str; 4] = [
    "store/redis/script/mod.rs",
    "store/redis/wire/connector.rs",
    "store/redis/wire/stream.rs",
    "store/redis/wire/url.rs",
];

const MAX_LINES: usize = 500;

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

/// A file of `src`, as far as its own tests.
struct Source {
    /// Relative to `src`, with slashes.
    path: String,
    /// The module right under the crate that it belongs to.
    module: String,
    /// Line number and text, without comment lines.
    code: Vec<(usize, String)>,
    /// Up to the first `#[cfg(test)]`.
    lines: usize,
}

impl Source {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let path = path.strip_prefix(root().join("src")).unwrap().to_str().unwrap().replace('\\', "/");
        let is_code = |line: &&str| line.starts_with(char::is_whitespace) || !line.ends_with("mod tests {");
        let lines = text.lines().take_while(|line| line.trim() != "#[cfg(test)]").count();
        let code = (1..).zip(text.lines().take_while(is_code)).filter(|(_, line)| !line.trim_start().starts_with("//"));
        let code = code.map(|(number, line)| (number, line.to_owned())).collect();
        let module = path.split(['/', '.']).next().unwrap().to_owned();
        Self { path, module, code, lines }
    }

    fn all() -> Vec<Self> {
        let all: Vec<_> = files(&root().join("src"), "rs").iter().map(|path| Self::read(path)).collect();
        assert!(all.len() > 20, "the sources are found");
        all
    }

    /// The words that follow `mark` in the code, each with a place to name in a message.
    fn words_after<'a>(&'a self, mark: &'a str) -> impl Iterator<Item = (String, &'a str)> {
        self.code.iter().flat_map(move |(number, line)| {
            let hits = line.match_indices(mark).map(move |(at, _)| (at, &line[at + mark.len()..]));
            // Not the end of a longer path or word.
            let own = hits.filter(|(at, _)| !line[..*at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c)));
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
    for line in text.lines().filter_map(|line| line.strip_prefix("pub use ")) {
        let (path, list) = line.trim_end_matches(';').rsplit_once("::").unwrap();
        let folder = path.split("::").next().unwrap();
        for name in list.trim_matches(['{', '}']).split(',') {
            names.insert(name.trim().to_owned(), folder.to_owned());
        }
    }
    assert!(!names.is_empty(), "{file} exports something");
    names
}

#[test]
fn imports_go_down_the_floors() {
    let exported = exports("src/lib.rs");
    let floor = |module: &str| FLOORS.iter().position(|floor| floor.contains(&module));
    for file in Source::all().iter().filter(|file| file.path != "lib.rs") {
        let own = floor(&file.module).unwrap_or_else(|| panic!("src/{} stands on no floor: add it", file.path));
        for (place, word) in file.words_after("crate::") {
            // What the crate exports can also be named without its module.
            let module = exported.get(word).map_or(word, String::as_str);
            let theirs = floor(module).unwrap_or_else(|| panic!("src/{place}: which floor is {word:?} on?"));
            assert!(theirs <= own, "src/{place}: floor {own} must not know {module}, which is on floor {theirs}");
        }
        // Both would be ways around the check.
        if !file.path.contains('/') {
            file.lacks("super::");
        }
        file.lacks("super::super::");
    }
}

#[test]
fn the_lowest_floor_is_pure() {
    // What tells the time, wakes a thread, and asks which process this is.
    let not_pure = ["base/clock.rs", "base/event.rs", "base/process.rs"];
    let lowest = |file: &&Source| FLOORS[0].contains(&&*file.module) && !not_pure.contains(&&*file.path);
    for file in Source::all().iter().filter(lowest) {
        for what in ["Instant::now", "SystemTime::now", "thread::", "std::net", "std::fs", "parking_lot"] {
            file.lacks(what);
        }
    }
}

#[test]
fn few_files_know_the_redis_crate() {
    for file in Source::all() {
        let first = file.words_after("redis::").map(|(place, _)| place).next();
        assert_eq!(first.is_some(), KNOW_REDIS.contains(&&*file.path), "src/{}: {first:?}", file.path);
    }
}

/// A thread without a name cannot be told apart in a dump, and `spawn` panics where a builder can fail.
#[test]
fn threads_have_names() {
    Source::all().iter().for_each(|file| file.lacks("thread::spawn("));
}

#[test]
fn files_stay_readable() {
    for file in Source::all() {
        assert!(file.lines < MAX_LINES, "src/{} has {} lines before its tests", file.path, file.lines);
    }
}

/// What a script's header says of KEYS and ARGV is what its body uses: no number missing, none too many.
#[test]
fn script_headers_tell_all_arguments() {
    let scripts = files(&root().join("src/store/redis/lua"), "lua");
    assert!(scripts.len() >= 8);
    for path in scripts {
        let text = fs::read_to_string(&path).unwrap();
        let header = text.lines().take_while(|line| line.starts_with("--")).count();
        let (header, body): (Vec<_>, Vec<_>) = (1..).zip(text.lines()).partition(|(number, _)| *number <= header);
        for table in ["KEYS[", "ARGV["] {
            let used = |lines: &[(usize, &str)]| -> BTreeSet<String> {
                let after = lines.iter().flat_map(|(_, line)| line.split(table).skip(1));
                after.map(|rest| rest.split(']').next().unwrap().to_owned()).collect()
            };
            let (told, used) = (used(&header), used(&body));
            assert_eq!(told, used, "{}: {table}...] in header and body", path.display());
            // No gaps, except where it takes any number of them.
            let numbers: Vec<usize> = told.iter().filter_map(|index| index.parse().ok()).collect();
            let variadic = told.contains("i") && numbers.is_empty();
            assert!(
                variadic || (numbers.len() == told.len() && (1..=told.len()).all(|n| numbers.contains(&n))),
                "{told:?}"
            );
        }
    }
}

#[test]
fn the_changelog_knows_this_version() {
    let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let version = concat!("## [", env!("CARGO_PKG_VERSION"), "]");
    let known = text.lines().any(|line| line.starts_with(version) || line.starts_with("## [Unreleased]"));
    assert!(known, "CHANGELOG.md has neither {version} nor an Unreleased section");
}

/// What can go to other threads is part of the interface: a private field could take it away.
#[test]
fn send_and_sync_are_promised() {
    use leasehold::fencing::*;
    use leasehold::*;
    fn both<T: Send + Sync + 'static>() {}
    fn sync<T: Sync>() {}
    fn borrowing<T: Send + Sync>() {}

    both::<Builder>();
    both::<LockClient>();
    both::<ReentrantMutex>();
    both::<OwnedMutexGuard>();
    sync::<ReentrantMutexGuard>();
    both::<MultiLock>();
    both::<OwnedMultiLockGuard>();
    sync::<MultiLockGuard>();
    both::<FairMutex>();
    both::<OwnedFairMutexGuard>();
    sync::<FairMutexGuard>();
    both::<RwLock>();
    both::<OwnedRwLockReadGuard>();
    both::<OwnedRwLockWriteGuard>();
    sync::<RwLockReadGuard>();
    sync::<RwLockWriteGuard>();
    both::<CountDownLatch>();
    both::<Semaphore>();
    both::<SemaphorePermit>();
    both::<PermitId>();
    both::<CountingSemaphore>();
    both::<CountingPermit>();
    both::<LockHolder>();
    both::<NodeState>();
    both::<NodeStatus>();
    both::<Error>();
    both::<ErrorKind>();
    both::<Result<()>>();
    both::<FencingToken>();
    both::<FencedValue>();
    both::<ValueClaim>();
    both::<SqlFence>();
    both::<Placeholders>();
    both::<FenceGate<u8>>();
    borrowing::<Claim<'_, u8>>();

    // Its hold is its thread's. Were it Send, both impls would apply and this would not compile.
    trait NotSend<Proof> {
        fn holds() {}
    }
    struct IsSend;
    impl<T: ?Sized> NotSend<()> for T {}
    impl<T: ?Sized + Send> NotSend<IsSend> for T {}
    <ReentrantMutexGuard as NotSend<_>>::holds();
    <MultiLockGuard as NotSend<_>>::holds();
    <FairMutexGuard as NotSend<_>>::holds();
    <RwLockReadGuard as NotSend<_>>::holds();
    <RwLockWriteGuard as NotSend<_>>::holds();

    let asserted = include_str!("tidy.rs");
    for name in exports("src/lib.rs").keys().chain(exports("src/fencing/mod.rs").keys()) {
        let told = ["both", "sync", "borrowing"].iter().any(|list| {
            let mark = format!("    {list}::<{name}");
            asserted.lines().any(|line| line.strip_prefix(&*mark).is_some_and(|rest| rest.starts_with(['>', '<'])))
        });
        assert!(told, "whether {name} is Send and Sync is not asserted here");
    }
}

/// The fields of the assertion above cannot be forgotten, but a whole `pub mod` could.
#[test]
fn there_is_no_other_public_module() {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let public: Vec<_> = text.lines().filter(|line| line.starts_with("pub mod ")).collect();
    // The second has no code; whether what is in the third is Send and Sync is asserted where it is tested.
    assert_eq!(public, ["pub mod fencing;", "pub mod interop;", "pub mod testing;"]);
}
