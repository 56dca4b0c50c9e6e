//! How many permits a semaphore has. It is a row that a holder has who cannot be one, for ever, so
//! whoever asks for another kind of lock under the name finds it taken.
//!
//! A change leaves its id as a share of no permits, so that a repeat after a lost answer finds that
//! it was made.

use super::requests::{PERMITS, hex, insert, micros, number, unexpected};
use super::shares::{Seen, begin, lock_fence, look, may_pass, move_fence};
use super::wire::{Request, Set};
use super::{MysqlStore, STEPS};
use crate::base::error::{Error, ErrorKind, Result};
use crate::base::limits::{IDEMPOTENCY_TTL, MOST_PERMITS};
use crate::base::lock_name::{Kind, LockName};
use crate::store::database::another_kind;
use crate::store::{Count, CountAnswer, CountStore, UnknownOutcomes, out_of_range};

/// After all times that leases have.
const NEVER: i64 = 1 << 62;

/// Changes the number of permits, or makes a semaphore of a free row, or frees it again.
/// `is_fenced`: the name has a fence, which then gets a new token, as from any holder.
///
/// Answers (the last two statements) whether this request, or an earlier one with its id, has made
/// the change, and what [`look`] sees. Repeat-safe as long as the id is remembered.
fn change(name: &LockName, change: Count, id: &str, is_fenced: bool) -> Request {
    let (key, own, permits) = (hex(&name.key), hex(id), hex(PERMITS));
    let is_free = format!("(@holder IS NULL OR @ends<=@now) AND {}", may_pass(is_fenced));
    let begun = format!("token=GREATEST(token+1,@now),tokens=1,holder={permits},ends={NEVER}");
    let before = format!("IF(@holder={permits},@level,0)");
    let (to, when) = match change {
        Count::Set(number) => (format!("{begun},level={number}"), is_free),
        Count::Add(more) => (
            format!("{begun},level={before}+{more}"),
            format!(
                "(@holder={permits} OR {is_free}) AND ABS({before}-@used+{more})<={MOST_PERMITS}"
            ),
        ),
        Count::Delete => {
            ("token=token+1,holder=NULL,level=0,ends=0".to_owned(), format!("@holder={permits}"))
        }
        Count::Down => unreachable!("latches are refused"),
    };
    let decide = [
        format!(
            "SELECT COALESCE(SUM(IF(level>0,level,0)),0),COALESCE(SUM(holder={own}),0) INTO @used,@done \
             FROM leasehold_share WHERE name={key}"
        ),
        format!("UPDATE leasehold_lock SET {to} WHERE name={key} AND @done=0 AND {when}"),
        "SET @changed=ROW_COUNT()".to_owned(),
    ];
    let permits_end = (change == Count::Delete).then(|| {
        format!("DELETE FROM leasehold_share WHERE name={key} AND level>0 AND @changed>0")
    });
    let end = [
        format!(
            "INSERT INTO leasehold_share (name,holder,level,ends) SELECT {key},{own},-1,@now+{} FROM DUAL \
             WHERE @changed>0",
            micros(IDEMPOTENCY_TTL)
        ),
        "SELECT @done+@changed>0".to_owned(),
        look(name, id),
    ];
    let fence = |statement: fn(&LockName) -> String| is_fenced.then(|| statement(name));
    let all = begin(name).into_iter().chain(fence(lock_fence)).chain(decide).chain(permits_end);
    Request::transaction(all.chain(fence(move_fence)).chain(end))
}

/// What a change knows after an answer.
enum Changed {
    /// The row is missing.
    Insert,
    /// It was free, and has a fence.
    Fenced,
    Done(CountAnswer),
}

fn change_answer(sets: &[Set], change: Count) -> Result<Changed> {
    let [.., done, seen, _] = sets else { return Err(unexpected("a count")) };
    let done = done.rows.first().and_then(|row| number(row, 0)) == Some(1);
    let seen = seen.rows.first().map(Seen::read).transpose()?;
    let value = seen.as_ref().map_or(0, Seen::free);
    let answer = Ok(Changed::Done(CountAnswer { done, value }));
    match seen.as_ref().map(Seen::kind) {
        _ if done => answer,
        Some(Some(Kind::Semaphore)) if matches!(change, Count::Add(_)) => Err(out_of_range(value)),
        Some(Some(Kind::Semaphore)) => answer,
        Some(Some(_)) => Err(another_kind()),
        _ if change == Count::Delete => answer,
        Some(None) => Ok(Changed::Fenced),
        None => Ok(Changed::Insert),
    }
}

impl CountStore for MysqlStore {
    fn count(
        &self,
        name: &LockName,
        count: Count,
        id: &str,
        unknowns: &mut UnknownOutcomes,
    ) -> Result<CountAnswer> {
        let mut is_fenced = false;
        for _ in 0..STEPS {
            let answer = self.server.ask(&change(name, count, id, is_fenced), unknowns)?;
            match change_answer(&answer.all()?, count)? {
                Changed::Insert => {
                    self.server.ask_freely(&insert(name))?.all()?;
                }
                Changed::Fenced if is_fenced => {
                    let why = "a transaction is fenced by a lock that had this name: call it again when that has ended";
                    return Err(Error::new(ErrorKind::NotReady, why));
                }
                Changed::Fenced => is_fenced = true,
                Changed::Done(answer) => {
                    unknowns.clear();
                    return Ok(answer);
                }
            }
        }
        let why = "others have used the name between all requests of this call; call it again";
        Err(Error::new(ErrorKind::NotReady, why))
    }

    fn counted(&self, name: &LockName) -> Result<(i64, i64)> {
        let set = self.server.ask_freely(&Request::new(look(name, "")))?.last()?;
        let Some(row) = set.rows.first() else { return Ok((0, 0)) };
        let seen = Seen::read(row)?;
        match seen.kind() {
            Some(Kind::Semaphore) => Ok((seen.free(), seen.used)),
            None => Ok((0, 0)),
            Some(_) => Err(another_kind()),
        }
    }
}
