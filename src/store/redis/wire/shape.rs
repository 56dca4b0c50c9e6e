//! The shape that a reply must have to be the answer to its request.

use super::reply::Reply;

/// The shape that a reply must have to be the answer to its request. Error replies fit every
/// request. A stray frame (of a proxy, or from a bug of the server) shifts all later replies by
/// one, and then a reply that says "granted" belongs to another lock. So a reply that does not fit
/// ends its connection before another reply is read from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Checked by the caller, on a connection that no other thread uses.
    Any,
    Number,
    /// A string, or nil.
    Text,
    /// Two numbers.
    Pair,
    /// A list that is not empty.
    List,
    /// A list of `least` to `most` values, of which the first is a number from 0 to `top` and none
    /// is a list.
    Status {
        top: u8,
        least: u8,
        most: u16,
        /// The holder is fresh, so status 2 (it has lost the lock) can only be the reply to another
        /// request.
        fresh: bool,
    },
    /// A number or an error for each of this many holds.
    Each(u32),
    /// Like `Each`, or an empty list: the master has no vote.
    EachOrNone(u32),
}

impl Shape {
    /// The reply of most scripts: a status, and one value or two.
    pub(crate) const fn status(top: u8) -> Self {
        Self::Status { top, least: 2, most: 3, fresh: false }
    }

    /// The same, for a holder that has held nothing before.
    pub(super) fn of_fresh_holder(self) -> Self {
        match self {
            Self::Status { top, least, most, .. } => Self::Status { top, least, most, fresh: true },
            other => other,
        }
    }

    fn may_have_status(self, status: i64) -> bool {
        let Self::Status { top, fresh, .. } = self else { return true };
        (0..=i64::from(top)).contains(&status) && !(fresh && status == 2)
    }

    pub(crate) fn fits(self, reply: &Reply) -> bool {
        let is_answer = |reply: &Reply| matches!(reply, Reply::Int(_) | Reply::Error(_));
        match (self, reply) {
            // An error that no server sends in reply to leasehold's requests may be a stray frame.
            (_, Reply::Error(e)) => e.is_known(),
            (Self::Any, _) => true,
            (Self::Number, reply) => matches!(reply, Reply::Int(_)),
            (Self::Text, reply) => matches!(reply, Reply::Bytes(_) | Reply::Nil),
            (Self::Pair, reply) => matches!(reply, Reply::Pair(..)),
            (Self::List, Reply::Pair(..)) => true,
            (Self::List, reply) => matches!(reply, Reply::Array(values) if !values.is_empty()),
            (Self::Status { least, most, .. }, Reply::Pair(status, _)) => {
                least <= 2 && 2 <= most && self.may_have_status(*status)
            }
            (Self::Status { least, most, .. }, Reply::Array(values)) => {
                (usize::from(least)..=usize::from(most)).contains(&values.len())
                    && reply.status().is_some_and(|status| self.may_have_status(status))
                    && !values.iter().any(|value| {
                        matches!(value, Reply::Pair(..) | Reply::Array(_) | Reply::Error(_))
                    })
            }
            (Self::Each(count) | Self::EachOrNone(count), Reply::Pair(..)) => count == 2,
            (Self::Each(count), Reply::Array(answers)) => {
                answers.len() == count as usize && answers.iter().all(is_answer)
            }
            (Self::EachOrNone(count), Reply::Array(answers)) => {
                (answers.len() == count as usize || answers.is_empty())
                    && answers.iter().all(is_answer)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reply::ServerError;
    use super::*;

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
        assert!(Shape::status(4).fits(&gone) && !Shape::status(4).of_fresh_holder().fits(&gone));
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
}
