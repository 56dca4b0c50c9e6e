use super::*;

fn name(name: &str, kind: Kind) -> LockName {
    LockName::new("", name, kind).unwrap()
}

#[test]
fn a_tag_tells_the_name() {
    for (tag, name) in
        [("{foo}", Some("foo")), ("a{b}c", Some("a{b}c")), ("{a}", Some("a")), ("foo", None)]
    {
        assert_eq!(untagged(tag), name, "{tag}");
    }
    assert_eq!(untagged("{x}{y}"), Some("{x}{y}"));
}

#[test]
fn names_follow_redisson() {
    let foo = name("foo", Kind::Mutex);
    let plain = RedisKeys::of(&foo);
    assert_eq!(plain.channel, "redisson_lock__channel:{foo}");
    assert_eq!(plain.token, "redisson_lock_token:{foo}");
    let braces = name("a{b}c", Kind::Mutex);
    let tagged = RedisKeys::of(&braces);
    assert_eq!(tagged.channel, "redisson_lock__channel:a{b}c");
    let app = LockName::new("app:", "x", Kind::Mutex).unwrap();
    let mapped = RedisKeys::of(&app);
    assert_eq!(mapped.lock, "app:x");
    assert_eq!(mapped.token, "redisson_lock_token:{app:x}");
}

#[test]
fn every_kind_has_its_own_names() {
    for (name, tag, latch) in [
        ("foo", "{foo}", "redisson_countdownlatch__channel__{foo}"),
        ("a{b}c", "a{b}c", "redisson_countdownlatch__channel__{a{b}c}"),
    ] {
        let [fair, read, semaphore, of_latch] =
            [Kind::Fair, Kind::Read, Kind::Semaphore, Kind::Latch]
                .map(|kind| self::name(name, kind));
        let fair = RedisKeys::of(&fair);
        assert_eq!(channel_of_waiter(name, "u:1"), format!("redisson_lock__channel:{tag}:u:1"));
        assert_eq!(fair.queue(), format!("redisson_lock_queue:{tag}"));
        assert_eq!(fair.deadlines(), format!("redisson_lock_timeout:{tag}"));
        assert_eq!(RedisKeys::of(&read).channel, format!("redisson_rwlock:{tag}"));
        assert_eq!(RedisKeys::of(&semaphore).channel, format!("redisson_sc:{tag}"));
        assert_eq!(RedisKeys::of(&semaphore).leases(), format!("{tag}:timeout"));
        assert_eq!(RedisKeys::of(&of_latch).channel, latch);
    }
}

#[test]
fn no_name_is_a_key_that_another_lock_has_beside_its_own() {
    for name in ["x", "a{b}c"] {
        let fair = self::name(name, Kind::Fair);
        let keys = RedisKeys::of(&fair);
        let hold_count = format!("{}:u:1:rwlock_timeout:1", keys.tag);
        let latch = format!("redisson_unlock_latch:{}:0", keys.tag);
        let [free, taken] = keys.rate();
        let beside = [
            keys.queue(),
            keys.deadlines(),
            keys.marker(),
            keys.data(),
            keys.leases(),
            free,
            taken,
            keys.idempotency_key("u:1"),
            client_key("u"),
            hold_count,
            latch,
        ];
        for key in beside.iter().map(String::as_str).chain([
            keys.token,
            NODE_KEY,
            "leasehold:probe",
            "p:leasehold:probe",
        ]) {
            assert_eq!(
                check_name(&self::name(key, Kind::Latch)).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{key}"
            );
            // The key causes the clash, not the name.
            let (prefix, name) = key.split_at(7);
            assert_eq!(
                check_name(&LockName::new(prefix, name, Kind::Read).unwrap()).unwrap_err().name(),
                Some(name),
                "{key}"
            );
        }
    }
    assert!(check_name(&LockName::new("app:", NODE_KEY, Kind::Mutex).unwrap()).is_ok());
    for free in
        ["redisson_lock_token:x", "leasehold_once", "leasehold:nodes", "job:timeout", "timeout:{x}"]
    {
        assert!(check_name(&name(free, Kind::Mutex)).is_ok(), "{free}");
    }
}

#[test]
fn only_names_with_one_hash_tag_are_accepted() {
    for good in ["foo", "a{b}c", "{x}", "a{b}{c}", "}a{b}", "löck-東京", "with space", "line\nfeed"]
    {
        assert!(check_name(&name(good, Kind::Fair)).is_ok(), "{good}");
    }
    for bad in ["a{b", "a{}b", "a}b", "{", "}"] {
        assert_eq!(
            check_name(&name(bad, Kind::Latch)).unwrap_err().kind(),
            ErrorKind::InvalidInput,
            "{bad}"
        );
    }
}
