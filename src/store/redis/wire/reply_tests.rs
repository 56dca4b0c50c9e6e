use super::*;

fn read_all(bytes: &[u8]) -> Parsed<Vec<Reply>> {
    let mut reader = ReplyReader { buffer: bytes.to_vec(), start: 0, end: bytes.len() };
    std::iter::from_fn(|| reader.next().transpose()).collect()
}

#[test]
fn every_type_of_resp2_is_read() {
    let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
    let replies = read_all(
        b":-7\r\n+OK\r\n$-1\r\n*-1\r\n$0\r\n\r\n$4\r\na\r\nb\r\n*2\r\n:1\r\n*1\r\n$1\r\nx\r\n",
    )
    .unwrap();
    let list = Reply::Array(vec![Reply::Int(1), Reply::Array(vec![text("x")])]);
    assert_eq!(
        replies,
        [Reply::Int(-7), text("OK"), Reply::Nil, Reply::Nil, text(""), text("a\r\nb"), list]
    );
    assert_eq!(read_all(b"*2\r\n:1\r\n:-9\r\n").unwrap(), [Reply::Pair(1, -9)]);
    for n in [i64::MIN, -1, 0, 1_763_700_000_000_001, i64::MAX] {
        assert_eq!(read_all(format!(":{n}\r\n").as_bytes()).unwrap(), [Reply::Int(n)]);
    }
    assert_eq!(read_all(b":+7\r\n").unwrap(), [Reply::Int(7)]);
    let mixed = Reply::Array(vec![Reply::Int(1), Reply::Nil]);
    assert_eq!(read_all(b"*2\r\n:1\r\n$-1\r\n*0\r\n").unwrap(), [mixed, Reply::Array(Vec::new())]);
    let [Reply::Error(error)] = &read_all(b"-WRONGTYPE Operation against\r\n").unwrap()[..] else {
        panic!()
    };
    assert_eq!((&*error.code, &*error.text), ("WRONGTYPE", "WRONGTYPE Operation against"));
}

#[test]
fn what_is_not_resp2_is_refused() {
    for bad in [
        "(123\r\n",
        ",1.5\r\n",
        "#t\r\n",
        "_\r\n",
        "%1\r\n",
        ">1\r\n",
        "HTTP/1.1",
        ":x\r\n",
        ":1\n",
        ":\r\n",
        ":-\r\n",
        ":9223372036854775808\r\n",
        ":-9223372036854775809\r\n",
        "$-2\r\n",
        "\r\n",
    ] {
        assert_eq!(read_all(bad.as_bytes()), Err(Malformed), "{bad:?}");
    }
    for bad in [
        "$1\r\nabc\r\n",
        "*1000000000\r\n",
        "$600000000\r\n",
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
    ] {
        assert_eq!(read_all(bad.as_bytes()), Err(Malformed), "{bad:?}");
    }
}

#[test]
fn a_reply_that_comes_byte_by_byte_is_whole_only_at_its_end() {
    let mut reader = ReplyReader::default();
    for whole in [&b"*3\r\n:1\r\n$2\r\nab\r\n-ERR x\r\n"[..], b"*2\r\n:1\r\n:1763700000000001\r\n"]
    {
        for (at, byte) in whole.iter().enumerate() {
            reader.fill(&mut &[*byte][..]).unwrap();
            assert!(!reader.is_empty());
            assert_eq!(reader.next().unwrap().is_some(), at + 1 == whole.len(), "after byte {at}");
        }
        assert!(reader.is_empty());
    }
    reader.fill(&mut &b":1\r\n:2\r\n"[..]).unwrap();
    assert_eq!(reader.next(), Ok(Some(Reply::Int(1))));
    assert!(!reader.is_empty(), "what was read beyond a reply is known");
    assert_eq!(reader.unread(), b":2\r\n");
    assert_eq!(reader.fill(&mut io::empty()).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(reader.next(), Ok(Some(Reply::Int(2))), "and stays after an error");
}

#[test]
fn what_does_not_fit_its_request_is_seen() {
    let text = |text: &str| Reply::Bytes(text.as_bytes().to_vec());
    let list = |numbers: &[i64]| Reply::list(numbers.iter().map(|n| Reply::Int(*n)).collect());
    let error = |text: &str| Reply::Error(ServerError::from(text));
    let stray = [Reply::Int(7), text("OK"), Reply::Nil, error("ERR x"), list(&[])];
    for shape in [
        Shape::status(4),
        Shape::Status { top: 3, least: 2, most: 1001, fresh: true },
        Shape::Each(1),
    ] {
        assert!(stray.iter().all(|reply| !shape.fits(reply)), "{shape:?}");
        assert!(shape.fits(&error("WRONGTYPE Operation")), "{shape:?}");
    }
    assert!(Shape::status(4).fits(&list(&[4, 0])) && Shape::status(4).fits(&list(&[0, 1, 2])));
    for other in [&[5, 0][..], &[-1, 0], &[1], &[1, 2, 3, 4]] {
        assert!(!Shape::status(4).fits(&list(other)), "{other:?}");
    }
    let nested = Reply::Array(vec![Reply::Int(1), list(&[1, 2])]);
    assert!(
        !Shape::status(4).fits(&nested)
            && Shape::List.fits(&list(&[1, 2]))
            && Shape::Pair.fits(&list(&[1, 2]))
    );
    let longer = Shape::Status { top: 4, least: 3, most: 3, fresh: false };
    assert!(!longer.fits(&list(&[1, 2])) && longer.fits(&list(&[1, 2, 3])));
    assert!(Shape::Each(2).fits(&list(&[1, 0])) && !Shape::Each(3).fits(&list(&[1, 0])));
    let gone = list(&[2, 0]);
    let fresh = Shape::Status { top: 4, least: 2, most: 3, fresh: true };
    assert!(Shape::status(4).fits(&gone) && !fresh.fits(&gone));
    let mixed = Reply::Array(vec![Reply::Int(1), error("ERR of one lock")]);
    assert!(
        Shape::Each(2).fits(&mixed)
            && !Shape::Each(3).fits(&mixed)
            && !Shape::status(4).fits(&mixed)
    );
    assert!(Shape::EachOrNone(2).fits(&list(&[])) && !Shape::EachOrNone(2).fits(&list(&[1])));
    assert!(Shape::Number.fits(&Reply::Int(0)) && !Shape::Number.fits(&Reply::Nil));
    assert!(Shape::Text.fits(&Reply::Nil) && !Shape::Text.fits(&Reply::Int(0)));
}

#[test]
fn a_server_that_sends_what_none_sends_is_no_reason_to_panic() {
    let time = |seconds: &str| {
        server_time(Reply::Array([seconds, "1"].map(|text| Reply::Bytes(text.into())).into()))
    };
    assert_eq!(time("1763700000").unwrap(), 1_763_700_000_000_001);
    for seconds in ["9007199255", "18446744073709", "18446744073709551615", "-1"] {
        assert_eq!(time(seconds).unwrap_err().kind(), ErrorKind::Protocol, "{seconds}");
    }
}
