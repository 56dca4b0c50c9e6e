//! What the crate promises its users in addition to its functions.

use std::fs;
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::{exports, root};

#[test]
fn the_changelog_knows_this_version() {
    let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let version = concat!("## [", env!("CARGO_PKG_VERSION"), "]");
    let known =
        text.lines().any(|line| line.starts_with(version) || line.starts_with("## [Unreleased]"));
    assert!(known, "CHANGELOG.md has neither {version} nor an Unreleased section");
}

/// Whether a type can move to other threads, and into `catch_unwind`, is part of the interface: a
/// private field could change it. A panic leaves nothing of this crate half done.
#[test]
fn send_and_sync_are_promised() {
    use leasehold::fencing::*;
    use leasehold::observe::*;
    use leasehold::*;
    fn both<T: Send + Sync + UnwindSafe + RefUnwindSafe + 'static>() {}
    // They have user code in them.
    fn settings<T: Send + Sync + 'static>() {}
    fn sync<T: Sync + UnwindSafe + RefUnwindSafe>() {}
    fn borrowing<T: Send + Sync>() {}
    fn borrowed<T: Sync>() {}

    both::<Advice>();
    settings::<Builder>();
    both::<LockClient>();
    both::<CancelToken>();
    settings::<Credentials>();
    settings::<Box<dyn CredentialsProvider>>();
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
    both::<RateLimiter>();
    both::<ScheduledJob>();
    both::<Occurrence>();
    both::<Every>();
    both::<Once<(), ()>>();
    both::<Settled>();
    sync::<JobRun>();
    both::<DoneStatement>();
    both::<HolderOwner>();
    both::<LockHolder>();
    both::<LastHolder>();
    both::<Election>();
    both::<Term>();
    both::<Leader>();
    both::<LeaderWatch>();
    both::<AnnouncedLocks>();
    both::<LockSummary>();
    both::<LockReport>();
    both::<LockWaiter>();
    settings::<Box<dyn Listener>>();
    borrowing::<LockInfo<'_>>();
    both::<Primitive>();
    both::<Stats>();
    both::<NameStats>();
    both::<JobStats>();
    both::<ElectionStats>();
    settings::<Redis>();
    settings::<Sentinel>();
    settings::<Cluster>();
    settings::<Redlock>();
    #[cfg(feature = "mysql")]
    settings::<Mysql>();
    #[cfg(feature = "postgres")]
    settings::<Postgres>();
    #[cfg(feature = "zookeeper")]
    settings::<ZooKeeper>();
    both::<Figures>();
    both::<Histogram>();
    #[cfg(feature = "prometheus-client")]
    settings::<Collector>();
    both::<Snapshot>();
    both::<HoldInfo>();
    both::<WaitInfo>();
    both::<ThreadInfo>();
    both::<Blocker>();
    both::<Deadlock>();
    both::<NodeState>();
    both::<NodeStatus>();
    both::<Diagnosis>();
    both::<Finding>();
    both::<Check>();
    both::<Severity>();
    borrowed::<Box<dyn Held>>();
    both::<Loss>();
    both::<LossReason>();
    both::<LossWait>();
    both::<RenewalFailure>();
    both::<SetPermits>();
    both::<Error>();
    both::<ErrorKind>();
    both::<Result<()>>();
    #[cfg(feature = "tls")]
    settings::<Tls>();
    both::<FencingToken>();
    both::<FencedValue>();
    both::<ValueClaim>();
    both::<SqlFence>();
    both::<TransactionFence>();
    both::<Placeholders>();
    settings::<FenceGate<u8>>();
    borrowing::<Claim<'_, u8>>();

    // A hold belongs to its thread. If the guard were Send, both impls would apply and this would
    // not compile.
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

    let asserted = include_str!("interface.rs");
    let modules = ["src/lib.rs", "src/fencing/mod.rs", "src/observe/mod.rs"];
    let all = modules.into_iter().flat_map(|file| exports(file).into_keys());
    let is_type = |name: &String| {
        name.starts_with(|c: char| c.is_ascii_uppercase()) && name.contains(char::is_lowercase)
    };
    for name in all.filter(is_type) {
        let listed = ["both", "settings", "sync", "borrowing", "borrowed"].iter().any(|list| {
            // The second mark is for traits.
            let marks = [format!("    {list}::<{name}"), format!("    {list}::<Box<dyn {name}")];
            let after = |line: &str| {
                marks.iter().find_map(|mark| line.strip_prefix(&**mark).map(str::to_owned))
            };
            asserted.lines().filter_map(after).any(|rest| rest.starts_with(['>', '<']))
        });
        assert!(listed, "whether {name} is Send and Sync is not asserted here");
    }
}

/// The fields of the assertion above cannot be forgotten, but a whole `pub mod` could.
#[test]
fn there_is_no_other_public_module() {
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let public: Vec<_> = text.lines().filter(|line| line.starts_with("pub mod ")).collect();
    // The guide has no code; `os` is public in a build for the scheduler only; the test of `testing`
    // asserts what of it is Send and Sync.
    let expected = [
        "pub mod fencing;",
        "pub mod guide;",
        "pub mod observe;",
        "pub mod os;",
        "pub mod testing;",
    ];
    assert_eq!(public, expected);
    assert!(text.contains("#[cfg(shuttle)]\n#[doc(hidden)]\n#[allow("), "`os` is hidden");
}
