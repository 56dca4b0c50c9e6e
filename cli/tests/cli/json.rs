//! The output of `--json`, checked against the schema that `leasehold schema` prints.

use std::process::Command;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::program::{path, run};

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let output = Command::new(path()).arg("schema").env_remove("LEASEHOLD_URL").output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
});

pub(crate) fn validator_of(definition: &str) -> Validator {
    assert!(SCHEMA["$defs"].get(definition).is_some(), "{definition}");
    let schema = json!({ "$ref": format!("#/$defs/{definition}"), "$defs": SCHEMA["$defs"] });
    jsonschema::draft202012::new(&schema).unwrap()
}

/// The parsed line, which must match the schema.
#[track_caller]
pub(crate) fn checked(definition: &str, line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
    let errors: Vec<String> =
        validator_of(definition).iter_errors(&value).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}: {line}");
    value
}

/// Runs the command to its end; returns its status and its only line.
#[track_caller]
pub(crate) fn json_of(definition: &str, mut command: Command) -> (i32, Value) {
    command.arg("--json");
    let (status, out, err) = run(command);
    assert_eq!(out.lines().count(), 1, "{out:?} {err:?}");
    (status.unwrap(), checked(definition, &out))
}

#[test]
fn the_schema_refuses_what_is_not_as_it_says() {
    let lock = json!({
        "name": "job", "kind": "mutex", "holders": [], "unlisted": 0, "remaining_ms": null, "waiting": null,
        "permits": null, "left_to_count": null, "masters": null, "last_token": null
    });
    assert!(validator_of("lock").is_valid(&lock));
    for (key, wrong) in [
        ("kind", json!("lock")),
        ("remaining_ms", json!(-1)),
        ("more", json!(1)),
        ("holders", json!(0)),
    ] {
        let mut changed = lock.clone();
        changed[key] = wrong;
        assert!(!validator_of("lock").is_valid(&changed), "{key}");
    }
    let mut less = lock;
    less.as_object_mut().unwrap().remove("name");
    assert!(!validator_of("lock").is_valid(&less));
}
