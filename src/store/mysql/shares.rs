//! Readers, writers and permits: what several may have at once.
//!
//! Each holder has a row in `leasehold_share`. The row of the name says with a holder that nobody
//! can be ([`READERS`], [`PERMITS`]) that there are such, and until when: so a plain lock finds it
//! taken, and a writer takes it as a plain lock is taken. **Whoever writes a share has locked the
//! row of its name before**, in the same transaction, and whoever decides reads the shares by a
//! statement of its own afterwards: one that waited for the row would see them as they were before.
//!
//! `@now` is read once, at the start: what one statement finds ended, no other finds alive.

use std::time::Duration;

use super::requests::{
    NOW, PERMITS, READERS, Step, Stepped, WRITER, busy, hex, in_row, kind_of, micros, number, span,
    take, take_fenced, text, unexpected,
};
use super::wire::{Request, Row};
use crate::base::error::Result;
use crate::base::holder::Holder;
use crate::base::lock_name::{Kind, LockName};
use crate::store::database::another_kind;
use crate::store::{Acquire, Acquired, Release, Renewal, Waiting};

/// Locks the row of the name, reads it, and removes shares that have ended.
pub(super) fn begin(name: &LockName) -> Vec<String> {
    let name = hex(&name.key);
    vec![
        format!("SET @now={NOW},@holder=NULL,@ends=0,@level=0"),
        format!(
            "SELECT holder,ends,level INTO @holder,@ends,@level FROM leasehold_lock WHERE name={name} FOR UPDATE"
        ),
        format!("DELETE FROM leasehold_share WHERE name={name} AND ends<=@now"),
    ]
}

/// Locks the row of the fence, if nobody has: otherwise `@fence` is null, and nothing may be taken.
/// Sent behind what locks the row of the name, as everything else that locks this one for a client,
/// so it is locked only while a transaction is fenced.
pub(super) fn lock_fence(name: &LockName) -> String {
    format!(
        "SET @fence=NULL;SELECT name INTO @fence FROM leasehold_fence WHERE name={} FOR UPDATE SKIP LOCKED",
        hex(&name.key)
    )
}

/// [`take_fenced`], and before it what it needs.
pub(super) fn pass_fence(acquire: &Acquire<'_>) -> [String; 3] {
    let name = hex(&acquire.name.key);
    let lock =
        format!("SELECT holder INTO @holder FROM leasehold_lock WHERE name={name} FOR UPDATE");
    [lock, lock_fence(acquire.name), take_fenced(acquire)]
}

/// Whether the row of the name says that it has a fence, and that is [locked](lock_fence) for this
/// request; or that it has none.
pub(super) fn may_pass(is_fenced: bool) -> &'static str {
    if is_fenced { "fenced=1 AND @fence IS NOT NULL" } else { "fenced=0" }
}

/// Gives the fence the token of the name, so that fences of holders before fail. Without `@fence`
/// it does nothing, and waits for nobody.
pub(super) fn move_fence(name: &LockName) -> String {
    format!(
        "UPDATE leasehold_fence SET tokens=1,token=(SELECT token FROM leasehold_lock WHERE name={0}) \
         WHERE name=IF(@fence IS NULL,NULL,{0})",
        hex(&name.key)
    )
}

/// A read hold: the name must be free or read, and no writer must wait, unless the holder reads
/// already. `is_fenced`: the name has a fence.
///
/// Answers (the last statement) 1 row or more; 0: look why. Repeat-safe: the share of the holder is
/// found, and only its end moves.
pub(super) fn read(acquire: &Acquire<'_>, is_fenced: bool) -> Request {
    let Acquire { name, holder, lease, .. } = *acquire;
    let (key, own, lease) = (hex(&name.key), hex(holder.as_str()), micros(lease));
    let readers = hex(READERS);
    let decide = [
        format!(
            "SELECT COALESCE(MAX(level>0 AND holder={own}),0),COALESCE(MAX(level=0),0) INTO @own,@barred \
             FROM leasehold_share WHERE name={key}"
        ),
        format!(
            "UPDATE leasehold_lock SET token=GREATEST(token+1,@now),tokens=1,holder={readers},level=0,\
             ends=GREATEST(IF(@holder={readers},@ends,0),@now+{lease}) WHERE name={key} AND {} \
             AND (@holder IS NULL OR @ends<=@now OR @holder={readers}) AND (@own=1 OR @barred=0)",
            may_pass(is_fenced)
        ),
        "SET @taken=ROW_COUNT()".to_owned(),
    ];
    let share = format!(
        "INSERT INTO leasehold_share (name,holder,level,ends) SELECT {key},{own},1,@now+{lease} FROM DUAL \
         WHERE @taken>0 ON DUPLICATE KEY UPDATE ends=GREATEST(ends,@now+{lease})"
    );
    let fence = |statement: fn(&LockName) -> String| is_fenced.then(|| statement(name));
    let all = begin(name).into_iter().chain(fence(lock_fence)).chain(decide);
    Request::transaction(all.chain(fence(move_fence)).chain([share]))
}

/// The write hold: as a plain lock is taken, because readers have the row until the last of them
/// ends. Nobody waits any more then, so what kept readers out goes with what is left of them.
///
/// Answers (the last statement) the token; no row: look why. Repeat-safe as the plain lock.
pub(super) fn write(acquire: &Acquire<'_>, is_fenced: bool) -> Request {
    let key = hex(&acquire.name.key);
    let take = if is_fenced { pass_fence(acquire).to_vec() } else { vec![take(acquire)] };
    let all = [
        "SET @taken=ROW_COUNT()".to_owned(),
        format!("DELETE FROM leasehold_share WHERE name={key} AND @taken>0"),
        format!("SELECT token FROM leasehold_lock WHERE name={key} AND @taken>0"),
    ];
    Request::transaction(take.into_iter().chain(all))
}

/// Keeps new readers out for a while, if some read now: otherwise writers would starve readers.
///
/// Answers nothing that decides. Repeat-safe: a writer has one such row, which goes when a writer
/// is granted the lock, when this one gives up, or with its time.
pub(super) fn bar(acquire: &Acquire<'_>, time: Duration) -> String {
    let Acquire { name, holder, .. } = *acquire;
    let time = micros(time);
    format!(
        "INSERT INTO leasehold_share (name,holder,level,ends) SELECT name,{},0,{NOW}+{time} FROM leasehold_lock \
         WHERE name={} AND holder={} AND ends>{NOW} FOR UPDATE ON DUPLICATE KEY UPDATE ends={NOW}+{time}",
        hex(holder.as_str()),
        hex(&name.key),
        hex(READERS)
    )
}

/// Permits with leases, as many as there are at most.
///
/// Answers (the last statement) 1 row or more; 0: look why. Repeat-safe: permits that the holder
/// has are found, and only their end moves.
pub(super) fn permits(acquire: &Acquire<'_>) -> Request {
    let Acquire { name, holder, permits, lease, .. } = *acquire;
    let (key, own, lease) = (hex(&name.key), hex(holder.as_str()), micros(lease));
    let decide = [
        format!(
            "SELECT COALESCE(SUM(level),0),COALESCE(SUM(holder={own}),0) INTO @used,@own FROM leasehold_share \
             WHERE name={key} AND level>0"
        ),
        format!(
            "INSERT INTO leasehold_share (name,holder,level,ends) SELECT {key},{own},{permits},@now+{lease} FROM DUAL \
             WHERE @holder={} AND (@own>0 OR @used+{permits}<=@level) \
             ON DUPLICATE KEY UPDATE ends=GREATEST(ends,@now+{lease})",
            hex(PERMITS)
        ),
    ];
    Request::transaction(begin(name).into_iter().chain(decide))
}

/// The row of a name and what its shares come to. Locks nothing.
///
/// Answers holder, what is left of its time, whether it has a fence, its level; then of the shares:
/// the sum of their levels, what is left until the first of them ends, what is left until new
/// readers are let in, whether the holder has one.
pub(super) fn look(name: &LockName, holder: &str) -> String {
    format!(
        "SELECT l.holder,l.ends-{NOW},l.fenced,l.level,COALESCE(SUM(IF(s.level>0,s.level,0)),0),\
         MIN(IF(s.level>0,s.ends,NULL))-{NOW},MAX(IF(s.level=0,s.ends,NULL))-{NOW},\
         COALESCE(MAX(s.level>0 AND s.holder={}),0) \
         FROM leasehold_lock l LEFT JOIN leasehold_share s ON s.name=l.name AND s.ends>{NOW} \
         WHERE l.name={} GROUP BY l.name",
        hex(holder),
        hex(&name.key)
    )
}

/// What [`look`] has seen.
pub(super) struct Seen<'r> {
    /// Who has it, in the spelling of the row; `None`: it is free.
    holder: Option<&'r str>,
    left: Duration,
    is_fenced: bool,
    level: i64,
    pub(super) used: i64,
    first: Duration,
    barred: Option<Duration>,
    is_own: bool,
}

impl<'r> Seen<'r> {
    pub(super) fn read(row: &'r Row) -> Result<Self> {
        let bad = || unexpected("a look");
        let left = number(row, 1).ok_or_else(bad)?;
        Ok(Self {
            holder: text(row, 0).filter(|_| left > 0),
            left: span(left),
            is_fenced: text(row, 2) != Some("0"),
            level: number(row, 3).ok_or_else(bad)?,
            used: number(row, 4).ok_or_else(bad)?,
            first: span(number(row, 5).unwrap_or(0)),
            barred: number(row, 6).map(span),
            is_own: text(row, 7) == Some("1"),
        })
    }

    /// How many permits of a semaphore are free.
    pub(super) fn free(&self) -> i64 {
        if self.kind() == Some(Kind::Semaphore) { self.level - self.used } else { 0 }
    }

    /// What it is used for; `None`: it is free.
    pub(super) fn kind(&self) -> Option<Kind> {
        self.holder.map(kind_of)
    }
}

/// What follows for an acquire from a look.
pub(super) fn look_answer(row: Option<&Row>, request: &Acquire<'_>) -> Result<Stepped> {
    let kind = request.name.kind;
    let seen = row.map(Seen::read).transpose()?;
    let take =
        |seen: &Seen<'_>| Stepped::Next(if seen.is_fenced { Step::TakeFenced } else { Step::Take });
    let none = || Stepped::Done(Acquired::TooFew { permits: 0 });
    let Some(seen) = seen else {
        return Ok(if kind == Kind::Semaphore { none() } else { Stepped::Next(Step::Insert) });
    };
    Ok(match (kind, seen.kind()) {
        (Kind::Semaphore, None) => none(),
        // Also if the last reader has left meanwhile, and the writer has not come yet.
        (Kind::Read, None | Some(Kind::Read)) => match seen.barred {
            Some(left) if !seen.is_own => busy(left),
            _ => take(&seen),
        },
        (_, None) => take(&seen),
        (Kind::Semaphore, Some(Kind::Semaphore)) => permits_seen(&seen, request.permits.into()),
        (Kind::Read | Kind::Write, Some(Kind::Write)) => {
            let is_own = seen.holder == Some(&*in_row(kind, request.holder.as_str()));
            if is_own { take(&seen) } else { busy(seen.left) }
        }
        (Kind::Write, Some(Kind::Read)) if request.waiting == Waiting::No => busy(seen.left),
        (Kind::Write, Some(Kind::Read)) => Stepped::Next(Step::Bar(seen.left)),
        _ => return Err(another_kind()),
    })
}

fn permits_seen(seen: &Seen<'_>, wanted: i64) -> Stepped {
    if seen.is_own || seen.used + wanted <= seen.level {
        Stepped::Next(Step::Take)
    } else if seen.level < wanted {
        let permits = u64::try_from(seen.level).unwrap_or(0);
        Stepped::Done(Acquired::TooFew { permits })
    } else {
        busy(seen.first)
    }
}

/// The row of a name with the share of a holder. A hold of a read-write lock is found as that of a
/// reader and as that of a writer: the holder may not know which, while a downgrade is under way.
fn with_share(name: &LockName, holder: &Holder) -> (String, String) {
    let (key, own) = (hex(&name.key), hex(holder.as_str()));
    let marker = if name.kind == Kind::Semaphore { PERMITS } else { READERS };
    let tables = format!(
        "leasehold_lock l LEFT JOIN leasehold_share s ON s.name=l.name AND s.holder={own} AND s.level>0 AND s.ends>{NOW}"
    );
    let is_held = format!(
        "l.name={key} AND l.ends>{NOW} AND (l.holder={} OR l.holder={} AND s.holder IS NOT NULL)",
        hex(&in_row(Kind::Write, holder.as_str())),
        hex(marker)
    );
    (tables, is_held)
}

/// As the renewal of a plain lock. The row of the name is locked first, because the other table is
/// joined to it, and it lasts as long as its longest share.
pub(super) fn renew(hold: &Renewal) -> String {
    let (tables, is_held) = with_share(&hold.name, &hold.holder);
    let end = format!("{NOW}+{}", micros(hold.lease));
    format!(
        "UPDATE {tables} SET l.ends=GREATEST(l.ends,{end}),s.ends=GREATEST(s.ends,{end}) WHERE {is_held}"
    )
}

/// Enters a read hold once more. Answers rows, or 0: it is gone. Repeat-safe: the level is set.
pub(super) fn reenter(acquire: &Acquire<'_>) -> String {
    let Acquire { name, holder, lease, held, .. } = *acquire;
    let (tables, is_held) = with_share(name, holder);
    let end = format!("{NOW}+{}", micros(lease));
    format!(
        "UPDATE {tables} SET l.ends=GREATEST(l.ends,{end}),s.ends=GREATEST(s.ends,{end}),s.level={} WHERE {is_held};\
         SELECT 0",
        held + 1
    )
}

/// Leaves a holder of a read-write lock no write level, and as many read levels as the request
/// says: a release, a downgrade, or the end of a writer that only waited. It states what stays.
///
/// Answers (the last statement) whether it was held, and whether others may try now. Repeat-safe:
/// what is gone is not found.
pub(super) fn leave(release: &Release<'_>) -> Request {
    let Release { name, holder, left, .. } = *release;
    let (key, own) = (hex(&name.key), hex(holder.as_str()));
    let (readers, writer) = (hex(READERS), hex(&in_row(Kind::Write, holder.as_str())));
    let reads = left.reads;
    let rest = if reads == 0 {
        format!("DELETE FROM leasehold_share WHERE name={key} AND holder={own}")
    } else {
        format!(
            "INSERT INTO leasehold_share (name,holder,level,ends) SELECT {key},{own},{reads},@ends FROM DUAL \
             WHERE @reads>0 OR @holder={writer} \
             ON DUPLICATE KEY UPDATE level={reads},ends=GREATEST(ends,IF(@holder={writer},@ends,0))"
        )
    };
    let all = [
        format!(
            "SELECT COUNT(*) INTO @reads FROM leasehold_share WHERE name={key} AND holder={own} AND level>0"
        ),
        rest,
        format!("SELECT MAX(ends) INTO @last FROM leasehold_share WHERE name={key} AND level>0"),
        format!(
            "UPDATE leasehold_lock SET holder={readers},level=0,ends=COALESCE(@last,0),token=token+1 \
             WHERE name={key} AND @holder IN ({readers},{writer})"
        ),
        format!(
            "SELECT @reads>0 OR COALESCE(@holder={writer},0),{}",
            if reads == 0 { "@last IS NULL".to_owned() } else { format!("@holder={writer}") }
        ),
    ];
    Request::transaction(begin(name).into_iter().chain(all))
}

/// Gives permits back. Answers (the last statement) 1 row; 0: there were none, or they have ended.
/// Repeat-safe: the holder is gone after the first run.
pub(super) fn give_back(release: &Release<'_>) -> Request {
    let key = hex(&release.name.key);
    let all = [
        format!(
            "UPDATE leasehold_lock SET token=token+1 WHERE name={key} AND @holder={}",
            hex(PERMITS)
        ),
        format!(
            "DELETE FROM leasehold_share WHERE name={key} AND holder={} AND level>0",
            hex(release.holder.as_str())
        ),
    ];
    Request::transaction(begin(release.name).into_iter().chain(all))
}

/// Frees a read-write lock, whoever has it. Not repeat-safe.
pub(super) fn force(name: &LockName) -> Request {
    let key = hex(&name.key);
    let all = [
        format!("DELETE FROM leasehold_share WHERE name={key} AND @holder={}", hex(READERS)),
        format!(
            "UPDATE leasehold_lock SET holder=NULL,level=0,token=token+1 WHERE name={key} AND @ends>@now \
             AND (@holder={} OR RIGHT(@holder,6)={})",
            hex(READERS),
            hex(WRITER)
        ),
    ];
    Request::transaction(begin(name).into_iter().chain(all))
}
