//! Runs the library's own scripts, in the Lua that Redis has.

use std::cell::RefCell;
use std::collections::HashMap;

use mlua::{Function, Lua, Table, Variadic};

use super::keyspace::{Outcome, Value};

/// The interpreter of a system thread, on which all servers of an execution run. A script is
/// compiled once; it keeps nothing from one run to the next.
struct Interpreter {
    lua: Lua,
    compiled: HashMap<String, Function>,
    /// By source.
    hashes: HashMap<String, String>,
}

thread_local! {
    static INTERPRETER: RefCell<Interpreter> = RefCell::new(Interpreter::new());
}

/// The hash by which a script is called.
pub(crate) fn sha_of(source: &str) -> String {
    INTERPRETER.with_borrow_mut(|interpreter| {
        let known = interpreter.hashes.get(source).cloned();
        known.unwrap_or_else(|| {
            let sha = redis::Script::new(source).get_hash().to_owned();
            interpreter.hashes.insert(source.to_owned(), sha.clone());
            sha
        })
    })
}

/// Runs a script in one step. `call` runs a command of it.
pub(crate) fn run(
    sha: &str,
    source: &str,
    keys: &[Vec<u8>],
    args: &[Vec<u8>],
    call: impl FnMut(&[Vec<u8>]) -> Outcome,
) -> Value {
    INTERPRETER.with_borrow_mut(|interpreter| {
        interpreter
            .run(sha, source, keys, args, call)
            .unwrap_or_else(|error| Value::Error(of_script(&error)))
    })
}

/// The text of an error that the script has raised, without where.
fn of_script(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => of_script(cause),
        mlua::Error::ExternalError(cause) => cause.to_string(),
        other => format!("ERR {other}").replace(['\r', '\n'], " "),
    }
}

impl Interpreter {
    fn new() -> Self {
        Self { lua: Lua::new(), compiled: HashMap::new(), hashes: HashMap::new() }
    }

    fn run(
        &mut self,
        sha: &str,
        source: &str,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
        call: impl FnMut(&[Vec<u8>]) -> Outcome,
    ) -> mlua::Result<Value> {
        let lua = &self.lua;
        let script = match self.compiled.get(sha) {
            Some(script) => script.clone(),
            None => {
                let script = lua.load(source).into_function()?;
                self.compiled.insert(sha.to_owned(), script.clone());
                script
            }
        };
        let texts = |texts: &[Vec<u8>]| {
            lua.create_sequence_from(
                texts
                    .iter()
                    .map(|text| lua.create_string(text))
                    .collect::<mlua::Result<Vec<_>>>()?,
            )
        };
        lua.globals().set("KEYS", texts(keys)?)?;
        lua.globals().set("ARGV", texts(args)?)?;
        let call = RefCell::new(call);
        let command = |lua: &Lua, words: Variadic<mlua::Value>, raises: bool| {
            let words: Vec<Vec<u8>> = words.iter().map(word).collect();
            match call.borrow_mut()(&words) {
                Err(error) if raises => Err(mlua::Error::external(error)),
                Err(error) => to_lua(lua, &Value::Error(error)),
                Ok(value) => to_lua(lua, &value),
            }
        };
        lua.scope(|scope| {
            let redis = lua.create_table()?;
            redis.set("call", scope.create_function(|lua, words| command(lua, words, true))?)?;
            redis.set("pcall", scope.create_function(|lua, words| command(lua, words, false))?)?;
            redis.set(
                "error_reply",
                scope.create_function(|lua, text: mlua::LuaString| {
                    to_lua(lua, &Value::Error(text.to_string_lossy()))
                })?,
            )?;
            lua.globals().set("redis", redis)?;
            script.call::<mlua::Value>(()).map(|answer| from_lua(&answer))
        })
    }
}

fn word(value: &mlua::Value) -> Vec<u8> {
    match value {
        mlua::Value::String(text) => text.as_bytes().to_vec(),
        mlua::Value::Integer(number) => number.to_string().into_bytes(),
        // As Redis writes a number of a script.
        mlua::Value::Number(number) => format!("{number}").into_bytes(),
        other => panic!("a script calls a command with {other:?}"),
    }
}

fn to_lua(lua: &Lua, value: &Value) -> mlua::Result<mlua::Value> {
    let with = |field: &str, text: &str| {
        let table = lua.create_table()?;
        table.set(field, text)?;
        Ok(mlua::Value::Table(table))
    };
    match value {
        Value::Nil => Ok(mlua::Value::Boolean(false)),
        Value::Int(number) => Ok(mlua::Value::Number(*number as f64)),
        Value::Bulk(bytes) => lua.create_string(bytes).map(mlua::Value::String),
        Value::Status(text) => with("ok", text),
        Value::Error(text) => with("err", text),
        Value::List(values) => {
            let values =
                values.iter().map(|value| to_lua(lua, value)).collect::<mlua::Result<Vec<_>>>()?;
            lua.create_sequence_from(values).map(mlua::Value::Table)
        }
    }
}

fn from_lua(value: &mlua::Value) -> Value {
    match value {
        mlua::Value::Integer(number) => Value::Int(*number),
        mlua::Value::Number(number) => Value::Int(*number as i64),
        mlua::Value::String(text) => Value::Bulk(text.as_bytes().to_vec()),
        mlua::Value::Boolean(true) => Value::Int(1),
        mlua::Value::Table(table) => from_table(table),
        _ => Value::Nil,
    }
}

fn from_table(table: &Table) -> Value {
    if let Ok(mlua::Value::String(text)) = table.raw_get("err") {
        return Value::Error(text.to_string_lossy());
    }
    if let Ok(mlua::Value::String(_)) = table.raw_get("ok") {
        return Value::Status("OK");
    }
    // A list ends with its first nil.
    let elements =
        (1..).map_while(|at| table.raw_get::<mlua::Value>(at).ok().filter(|value| !value.is_nil()));
    Value::List(elements.map(|value| from_lua(&value)).collect())
}
