use super::*;

const TOKEN: FencingToken = FencingToken::new(34);

fn fence() -> SqlFence {
    SqlFence::new("shop.account", "id", "fence").unwrap()
}

#[test]
fn every_style_has_the_same_places() {
    let styles = [
        (Placeholders::Question, ["?", "?", "?", "?", "?"]),
        (Placeholders::Numbered, ["?1", "?2", "?3", "?4", "?5"]),
        (Placeholders::Dollar, ["$1", "$2", "$3", "$4", "$5"]),
    ];
    for (style, [a, b, c, d, e]) in styles {
        let fence = fence().placeholders(style);
        assert_eq!(
            fence.claim(),
            format!("UPDATE shop.account SET fence = {a} WHERE id = {b} AND fence <= {c}")
        );
        assert_eq!(
            fence.write(&["x", "y"]).unwrap(),
            format!("UPDATE shop.account SET x = {a}, y = {b} WHERE id = {c} AND fence = {d}")
        );
        assert_eq!(
            fence.write_unclaimed(&["x", "y"]).unwrap(),
            format!(
                "UPDATE shop.account SET x = {a}, y = {b}, fence = {c} \
                 WHERE id = {d} AND fence <= {e}"
            )
        );
    }
}

#[test]
fn names_are_plain_or_refused() {
    for good in ["t", "_t", "T9", "a_b", "main.t", "db.dbo.t"] {
        assert!(SqlFence::new(good, "id", "fence").is_ok(), "{good}");
    }
    for bad in [
        "", ".", "t.", ".t", "a..b", "9t", "a.9t", "a b", "a-b", "a;", "a'", "\"a\"", "`a`", "tä",
        "a\0", "a\n", "$1",
    ] {
        let e = SqlFence::new(bad, "id", "fence").unwrap_err();
        assert_eq!((e.kind(), e.name()), (ErrorKind::InvalidInput, Some(bad)));
    }
    for bad in ["", "a.b", "9", "a=a OR 1", "x--"] {
        assert!(SqlFence::new("t", bad, "fence").is_err(), "{bad}");
        assert!(SqlFence::new("t", "id", bad).is_err(), "{bad}");
        assert!(fence().write(&[bad]).is_err(), "{bad}");
        assert!(fence().write_unclaimed(&["x", bad]).is_err(), "{bad}");
    }
    assert!(SqlFence::new("t", "ID", "id").is_err());
}

#[test]
fn a_write_cannot_touch_what_the_fence_stands_on() {
    for bad in [&[] as &[&str], &["fence"], &["x", "FENCE"], &["Id"], &["x", "y", "X"]] {
        for refused in [fence().write(bad), fence().write_unclaimed(bad)] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput, "{bad:?}");
        }
    }
}

#[test]
fn affected_rows_of_any_integer_type() {
    let fence = fence();
    assert!(fence.expect_one(1_usize, TOKEN).is_ok() && fence.expect_one(1_u64, TOKEN).is_ok());
    assert!(fence.expect_one(1_i32, TOKEN).is_ok() && fence.expect_one(1_u8, TOKEN).is_ok());
    let kind = |result: Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(fence.expect_one(0, TOKEN)), ErrorKind::Stale);
    assert_eq!(kind(fence.expect_one(2, TOKEN)), ErrorKind::InvalidInput);
    assert_eq!(kind(fence.expect_one(-1, TOKEN)), ErrorKind::InvalidInput);
}

#[test]
fn refusals_name_the_table_and_the_token() {
    assert_eq!(
        fence().expect_one(0, TOKEN).unwrap_err().to_string(),
        "\"shop.account\": fencing token 34 was refused: a newer holder has claimed the row, \
         or there is no such row"
    );
    assert_eq!(
        fence().expect_one(3, TOKEN).unwrap_err().to_string(),
        "\"shop.account\": fencing token 34 changed 3 rows: the column \"id\" is not unique"
    );
}
