use super::*;
use crate::base::error::ErrorKind;
use crate::base::fuzz_tests::{Dice, fuzz};

fn owner(label: &str) -> Result<HolderOwner> {
    HolderOwner::of_this_process(Some(label))
}

#[test]
fn labels_are_checked() {
    for good in ["billing-7", "x", "Rechnung Nr. 7 (Köln)", "=", &"é".repeat(LONGEST_LABEL)] {
        assert_eq!(owner(good).unwrap().label(), good);
    }
    for bad in ["", "a\nb", "\u{7f}", "tab\t", &"x".repeat(LONGEST_LABEL + 1)] {
        assert_eq!(owner(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
    }
}

#[test]
fn without_a_label_it_is_the_program() {
    let owner = HolderOwner::of_this_process(None).unwrap();
    assert!(owner.label().starts_with("leasehold"), "{owner}");
    assert_eq!(owner.pid(), std::process::id());
    assert!(!owner.host().is_empty());
    assert_eq!(owner.to_string(), format!("{} (pid {} on {})", owner.label, owner.pid, owner.host));
    assert_eq!(plain("\n", "otherwise"), "otherwise");
    assert_eq!(plain("a\nb", "otherwise"), "ab");
}

#[test]
fn what_is_written_is_read() {
    for ages in [
        vec![],
        vec![(1, Duration::from_millis(12_000))],
        vec![(7, Duration::ZERO), (u64::MAX, Duration::MAX)],
    ] {
        let ages: Vec<_> = ages
            .into_iter()
            .map(|(n, age)| (n, age.min(Duration::from_millis(u64::MAX))))
            .collect();
        let one = Announcement::new(
            owner("a=b c").unwrap(),
            Duration::from_secs(30),
            ages,
            std::iter::empty(),
        );
        assert_eq!(Announcement::parse(&one.to_text()), Some(one.clone()));
        assert_eq!(Announcement::parse(&format!("new=1\n{}\nmore=2", one.to_text())), Some(one));
    }
}

#[test]
fn what_nobody_writes_is_not_believed() {
    let text = "label=a\npid=1\nhost=h\nttl_ms=30000\nheld_ms=1:5";
    assert!(Announcement::parse(text).is_some());
    for (part, other) in [
        ("label=a", "label="),
        ("pid=1", "pid=x"),
        ("host=h", "host=a\u{1b}[2J"),
        ("ttl_ms=30000", ""),
    ] {
        assert_eq!(Announcement::parse(&text.replace(part, other)), None, "{part}");
    }
    assert_eq!(Announcement::parse(""), None);
    assert_eq!(
        Announcement::parse(&text.replace("1:5", "x:y 1 2:3")).unwrap().ages,
        [(2, Duration::from_millis(3))]
    );
}

#[test]
fn an_age_grows_with_the_age_of_what_says_it() {
    let seconds = Duration::from_secs;
    let hold = NamedHold { id: "7".to_owned(), age: seconds(2), key: "job".to_owned() };
    let one = Announcement::new(
        owner("a").unwrap(),
        seconds(30),
        vec![(3, seconds(12))],
        std::iter::once(hold),
    );
    assert_eq!(one.age_of(7, seconds(29)), Some(seconds(3)), "by its name alone");
    assert_eq!(one.age_of(3, seconds(30)), Some(seconds(12)));
    assert_eq!(one.age_of(3, seconds(21)), Some(seconds(21)));
    assert_eq!(one.age_of(3, seconds(31)), Some(seconds(12)), "a reply that was long under way");
    assert_eq!(one.age_of(4, seconds(30)), None);
}

#[test]
fn names_are_written_and_read_whatever_is_in_them() {
    let hold = |id: &str, key: &str| NamedHold {
        id: id.to_owned(),
        age: Duration::from_secs(1),
        key: key.to_owned(),
    };
    let holds = vec![
        hold("1", "app:job"),
        hold("2", "a b\nlabel=x\r100%0A%25"),
        hold(&"0f".repeat(12), "löck"),
    ];
    let one = Announcement::new(
        owner("a").unwrap(),
        Duration::from_secs(30),
        vec![(1, Duration::ZERO)],
        holds.into_iter(),
    );
    assert_eq!(Announcement::parse(&one.to_text()), Some(one));
}

#[test]
fn the_text_does_not_grow_with_the_number_of_holds() {
    let hold = |n: u64| NamedHold {
        id: n.to_string(),
        age: Duration::from_secs(1),
        key: format!("job:{n}"),
    };
    let text = |count| {
        let holds: Vec<_> = (0..count).map(hold).collect();
        Announcement::new(
            owner("a").unwrap(),
            Duration::from_secs(30),
            Vec::new(),
            holds.into_iter(),
        )
        .to_text()
    };
    let read = |text: &str| Announcement::parse(text).unwrap();
    assert_eq!((read(&text(100)).holds.len(), read(&text(100)).unlisted), (100, 0));
    let many = text(10_000);
    assert!(many.len() < MOST_NAMES_BYTES + 300, "{}", many.len());
    let many = read(&many);
    assert_eq!(many.holds.len() as u64 + many.unlisted, 10_000);
    assert!(many.holds.len() > 500 && many.holds[0] == hold(0), "the oldest come first");
}

#[test]
fn fuzzed_announcements_come_back_and_others_are_read() {
    fuzz(
        |dice| {
            let hold = |dice: &mut Dice| NamedHold {
                id: dice.below(99).to_string(),
                age: Duration::from_millis(dice.number().unsigned_abs()),
                key: dice.text(),
            };
            let holds: Vec<NamedHold> = (0..dice.below(4)).map(|_| hold(dice)).collect();
            let ages = vec![(
                dice.number().unsigned_abs(),
                Duration::from_millis(dice.number().unsigned_abs()),
            )];
            let ttl = Duration::from_millis(dice.number().unsigned_abs());
            let said = Announcement::new(owner("a=b c").unwrap(), ttl, ages, holds.into_iter());
            let text = said.to_text();
            assert_eq!(Announcement::parse(&text), Some(said));
            text.into_bytes()
        },
        |bytes, _| {
            let Some(read) = Announcement::parse(&String::from_utf8_lossy(bytes)) else {
                return;
            };
            for left in [Duration::ZERO, Duration::from_millis(u64::MAX)] {
                let _ = (read.age_of(7, left), read.age_of_hold("7", left));
            }
        },
    );
}
