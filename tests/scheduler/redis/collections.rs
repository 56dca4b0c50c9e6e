//! Lists and sorted sets: the queue of a fair lock.

use std::collections::{BTreeMap, VecDeque};

use super::keyspace::{Data, Entry, Keyspace, Outcome, Value, number, wrong_type};

pub(super) type List = VecDeque<Vec<u8>>;
/// The score of each member.
pub(super) type Sorted = BTreeMap<Vec<u8>, f64>;

/// The places from the first to the last of a range, of which negative ones count from the end.
fn range(length: usize, first: i64, last: i64) -> std::ops::Range<usize> {
    let length = length as i64;
    let place = |at: i64| if at < 0 { (length + at).max(0) } else { at.min(length) };
    let end = if last < 0 { length + last + 1 } else { (last + 1).min(length) };
    place(first) as usize..end.max(place(first)) as usize
}

fn score(text: &[u8]) -> Result<f64, String> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| "ERR value is not a valid float".into())
}

/// A bound that may exclude itself: `(5`.
fn is_within(score_: f64, least: &[u8], most: &[u8]) -> Result<bool, String> {
    let is_above = match least.strip_prefix(b"(") {
        Some(bound) => score_ > score(bound)?,
        None => score_ >= score(least)?,
    };
    let is_below = match most.strip_prefix(b"(") {
        Some(bound) => score_ < score(bound)?,
        None => score_ <= score(most)?,
    };
    Ok(is_above && is_below)
}

/// Members by score, and those of one score by their bytes.
fn in_order(set: &Sorted) -> Vec<(&Vec<u8>, f64)> {
    let mut members: Vec<_> = set.iter().map(|(member, score)| (member, *score)).collect();
    members.sort_by(|one, other| one.1.total_cmp(&other.1).then_with(|| one.0.cmp(other.0)));
    members
}

impl Keyspace {
    pub(super) fn list_command(&mut self, command: &str, key: &[u8], rest: &[Vec<u8>]) -> Outcome {
        let make = || Data::List(List::new());
        self.of_collection(command == "rpush", key, make, |data| match data {
            Data::List(list) => of_list(list, command, rest),
            _ => wrong_type(),
        })
    }

    pub(super) fn sorted_command(
        &mut self,
        command: &str,
        key: &[u8],
        rest: &[Vec<u8>],
    ) -> Outcome {
        let make = || Data::Sorted(Sorted::new());
        self.of_collection(command == "zadd", key, make, |data| match data {
            Data::Sorted(set) => of_sorted(set, command, rest),
            _ => wrong_type(),
        })
    }

    /// Runs a command of a collection, which exists while it has something in it.
    fn of_collection(
        &mut self,
        adds: bool,
        key: &[u8],
        make: impl Fn() -> Data,
        run: impl FnOnce(&mut Data) -> Outcome,
    ) -> Outcome {
        if adds {
            let new = Entry { data: make(), ends: None };
            self.entries.entry(key.to_vec()).or_insert(new);
        }
        let Some(entry) = self.entries.get_mut(key) else { return run(&mut make()) };
        let outcome = run(&mut entry.data);
        let is_empty = match &entry.data {
            Data::List(list) => list.is_empty(),
            Data::Sorted(set) => set.is_empty(),
            _ => false,
        };
        if is_empty {
            self.entries.remove(key);
        }
        outcome
    }
}

fn of_list(list: &mut List, command: &str, rest: &[Vec<u8>]) -> Outcome {
    let bulk = |item: Option<Vec<u8>>| item.map_or(Value::Nil, Value::Bulk);
    Ok(match command {
        "rpush" => {
            list.extend(rest.iter().cloned());
            Value::Int(list.len() as i64)
        }
        "lpop" => bulk(list.pop_front()),
        "lindex" => {
            let at = number(&rest[0])?;
            let place = if at < 0 { list.len() as i64 + at } else { at };
            bulk(usize::try_from(place).ok().and_then(|place| list.get(place)).cloned())
        }
        "lrange" => {
            let places = range(list.len(), number(&rest[0])?, number(&rest[1])?);
            Value::List(list.range(places).cloned().map(Value::Bulk).collect())
        }
        // The first of it.
        "lrem" => {
            let place = list.iter().position(|item| *item == rest[1]);
            Value::Int(place.and_then(|place| list.remove(place)).map_or(0, |_| 1))
        }
        "linsert" => match list.iter().position(|item| *item == rest[1]) {
            Some(place) => {
                list.insert(place, rest[2].clone());
                Value::Int(list.len() as i64)
            }
            None => Value::Int(-1),
        },
        _ => return Err(format!("ERR unknown command '{command}'")),
    })
}

fn of_sorted(set: &mut Sorted, command: &str, rest: &[Vec<u8>]) -> Outcome {
    let text = |score: f64| Value::text(format!("{score}"));
    Ok(match command {
        "zadd" => {
            let only_known = rest[0].eq_ignore_ascii_case(b"xx");
            let mut added = 0;
            for pair in rest[usize::from(only_known)..].chunks_exact(2) {
                let is_known = set.contains_key(&pair[1]);
                if is_known || !only_known {
                    set.insert(pair[1].clone(), score(&pair[0])?);
                    added += i64::from(!is_known);
                }
            }
            Value::Int(added)
        }
        "zrem" => {
            let removed = rest.iter().filter(|member| set.remove(*member).is_some());
            Value::Int(removed.count() as i64)
        }
        "zscore" => set.get(&rest[0]).map_or(Value::Nil, |score| text(*score)),
        "zmscore" => {
            let score = |member| set.get(member).map_or(Value::Nil, |score| text(*score));
            Value::List(rest.iter().map(score).collect())
        }
        "zcard" => Value::Int(set.len() as i64),
        "zcount" => {
            let mut count = 0;
            for score in set.values() {
                count += i64::from(is_within(*score, &rest[0], &rest[1])?);
            }
            Value::Int(count)
        }
        "zrange" => {
            let with_scores =
                rest.get(2).is_some_and(|word| word.eq_ignore_ascii_case(b"withscores"));
            let places = range(set.len(), number(&rest[0])?, number(&rest[1])?);
            let mut values = Vec::new();
            for (member, score) in &in_order(set)[places] {
                values.push(Value::Bulk(member.to_vec()));
                values.extend(with_scores.then(|| text(*score)));
            }
            Value::List(values)
        }
        // With `LIMIT 0 n` or without.
        "zrangebyscore" => {
            let most = rest.get(4).map_or(Ok(i64::MAX), |most| number(most))?;
            let mut values = Vec::new();
            for (member, score) in in_order(set) {
                if is_within(score, &rest[0], &rest[1])? && (values.len() as i64) < most {
                    values.push(Value::Bulk(member.clone()));
                }
            }
            Value::List(values)
        }
        _ => return Err(format!("ERR unknown command '{command}'")),
    })
}
