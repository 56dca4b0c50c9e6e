//! The data of a server, and the commands that the scripts of locks use: strings and hashes with an
//! end. Lists and sorted sets are in [`collections`](super::collections).

use std::collections::BTreeMap;
use std::time::Duration;

use super::collections::{List, Sorted};

/// A reply, as the server makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    Int(i64),
    Status(&'static str),
    Bulk(Vec<u8>),
    List(Vec<Self>),
    Error(String),
}

impl Value {
    pub(crate) fn text(text: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(text.into())
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nil => out.extend(b"$-1\r\n"),
            Self::Int(number) => out.extend(format!(":{number}\r\n").bytes()),
            Self::Status(text) => out.extend(format!("+{text}\r\n").bytes()),
            Self::Error(text) => out.extend(format!("-{text}\r\n").bytes()),
            Self::Bulk(bytes) => {
                out.extend(format!("${}\r\n", bytes.len()).bytes());
                out.extend(bytes);
                out.extend(b"\r\n");
            }
            Self::List(values) => {
                out.extend(format!("*{}\r\n", values.len()).bytes());
                for value in values {
                    value.write(out);
                }
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Keyspace {
    pub(super) entries: BTreeMap<Vec<u8>, Entry>,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) data: Data,
    /// When it ends, by the server's clock.
    pub(super) ends: Option<Duration>,
}

/// The fields of a hash.
type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug)]
pub(super) enum Data {
    Text(Vec<u8>),
    Hash(Fields),
    List(List),
    Sorted(Sorted),
}

pub(crate) type Outcome = Result<Value, String>;

pub(super) fn wrong_type<T>() -> Result<T, String> {
    Err("WRONGTYPE Operation against a key holding the wrong kind of value".into())
}

pub(super) fn number(text: &[u8]) -> Result<i64, String> {
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| "ERR value is not an integer or out of range".into())
}

fn millis(text: &[u8]) -> Result<Duration, String> {
    number(text).map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
}

impl Keyspace {
    /// The keys that have not ended, without those in `except`.
    pub(crate) fn keys(&mut self, now: Duration, except: &[&str]) -> Vec<String> {
        self.entries.retain(|_, entry| entry.ends.is_none_or(|ends| ends > now));
        let names = self.entries.keys().map(|key| String::from_utf8_lossy(key).into_owned());
        names.filter(|key| !except.iter().any(|prefix| key.starts_with(prefix))).collect()
    }

    pub(crate) fn flush(&mut self) {
        self.entries.clear();
    }

    fn hash(&mut self, key: &[u8]) -> Result<Option<&mut Fields>, String> {
        match self.entries.get_mut(key) {
            None => Ok(None),
            Some(Entry { data: Data::Hash(fields), .. }) => Ok(Some(fields)),
            Some(_) => wrong_type(),
        }
    }

    fn text(&self, key: &[u8]) -> Result<Option<&Vec<u8>>, String> {
        match self.entries.get(key) {
            None => Ok(None),
            Some(Entry { data: Data::Text(text), .. }) => Ok(Some(text)),
            Some(_) => wrong_type(),
        }
    }

    fn add(&mut self, key: &[u8], more: i64) -> Outcome {
        let sum = self.text(key)?.map_or(Ok(0), |text| number(text))? + more;
        let entry = self
            .entries
            .entry(key.to_vec())
            .or_insert(Entry { data: Data::Text(Vec::new()), ends: None });
        entry.data = Data::Text(sum.to_string().into_bytes());
        Ok(Value::Int(sum))
    }

    /// `SET` with the options `PX`, `XX`, `NX` and `KEEPTTL`.
    fn set(&mut self, key: &[u8], text: &[u8], options: &[Vec<u8>], now: Duration) -> Outcome {
        let has = |option: &str| {
            options.iter().position(|other| other.eq_ignore_ascii_case(option.as_bytes()))
        };
        let old = self.entries.get(key);
        if has("xx").is_some() && old.is_none() || has("nx").is_some() && old.is_some() {
            return Ok(Value::Nil);
        }
        let kept = old.and_then(|old| old.ends).filter(|_| has("keepttl").is_some());
        let ends = match has("px") {
            Some(at) => Some(now + millis(&options[at + 1])?),
            None => kept,
        };
        self.entries.insert(key.to_vec(), Entry { data: Data::Text(text.to_vec()), ends });
        Ok(Value::Status("OK"))
    }

    fn hash_command(&mut self, command: &str, key: &[u8], rest: &[Vec<u8>]) -> Outcome {
        if command == "hset" {
            let new = Entry { data: Data::Hash(BTreeMap::new()), ends: None };
            self.entries.entry(key.to_vec()).or_insert(new);
        }
        let mut none = BTreeMap::new();
        let fields = self.hash(key)?.unwrap_or(&mut none);
        let get = |field: &Vec<u8>| fields.get(field).cloned().map_or(Value::Nil, Value::Bulk);
        let answer = match command {
            "hget" => get(&rest[0]),
            "hmget" => Value::List(rest.iter().map(get).collect()),
            "hexists" => Value::Int(i64::from(fields.contains_key(&rest[0]))),
            "hlen" => Value::Int(fields.len() as i64),
            "hkeys" => Value::List(fields.keys().cloned().map(Value::Bulk).collect()),
            "hgetall" => {
                let pairs = fields.iter().flat_map(|(field, value)| [field, value]);
                Value::List(pairs.cloned().map(Value::Bulk).collect())
            }
            "hset" => {
                let pairs = rest.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
                Value::Int(
                    pairs
                        .filter_map(|(field, value)| {
                            fields.insert(field, value).is_none().then_some(1)
                        })
                        .sum(),
                )
            }
            "hdel" => Value::Int(
                rest.iter().filter(|field| fields.remove(*field).is_some()).count() as i64,
            ),
            _ => return Err(format!("ERR unknown command '{command}'")),
        };
        // An empty hash does not exist.
        if command == "hdel" && self.hash(key)?.is_some_and(|fields| fields.is_empty()) {
            self.entries.remove(key);
        }
        Ok(answer)
    }

    fn set_end(&mut self, key: &[u8], ends: Option<Duration>) -> Outcome {
        let entry = self.entries.get_mut(key);
        Ok(Value::Int(i64::from(entry.map(|entry| entry.ends = ends).is_some())))
    }

    /// Runs one command; `now` is the server's clock.
    pub(crate) fn run(&mut self, command: &[Vec<u8>], now: Duration) -> Outcome {
        self.entries.retain(|_, entry| entry.ends.is_none_or(|ends| ends > now));
        let name = String::from_utf8_lossy(&command[0]).to_lowercase();
        let Some(key) = command.get(1) else { return Err(format!("ERR unknown command '{name}'")) };
        let rest = &command[2..];
        match &*name {
            "get" => Ok(self.text(key)?.cloned().map_or(Value::Nil, Value::Bulk)),
            "set" => self.set(key, &rest[0], &rest[1..], now),
            "incr" => self.add(key, 1),
            "incrby" => self.add(key, number(&rest[0])?),
            "decrby" => self.add(key, -number(&rest[0])?),
            "del" => Ok(Value::Int(
                command[1..].iter().filter(|key| self.entries.remove(*key).is_some()).count()
                    as i64,
            )),
            "exists" => Ok(Value::Int(i64::from(self.entries.contains_key(key)))),
            "pttl" => Ok(Value::Int(match self.entries.get(key).map(|entry| entry.ends) {
                None => -2,
                Some(None) => -1,
                Some(Some(ends)) => (ends - now).as_millis() as i64,
            })),
            "pexpire" => self.set_end(key, Some(now + millis(&rest[0])?)),
            "pexpireat" => self.set_end(key, Some(millis(&rest[0])?)),
            "persist" => self.set_end(key, None),
            name if name.starts_with('z') => self.sorted_command(name, key, rest),
            name if name.starts_with(['l', 'r']) => self.list_command(name, key, rest),
            name => self.hash_command(name, key, rest),
        }
    }
}
