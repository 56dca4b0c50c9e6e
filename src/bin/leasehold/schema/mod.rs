//! `leasehold schema`: what `--json` prints, as a JSON Schema.

use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::output::write_json;

/// Each is an object of definitions: that of the subcommand, and those that it refers to.
const PARTS: [&str; 8] = [
    include_str!("common.json"),
    include_str!("bench.json"),
    include_str!("doctor.json"),
    include_str!("ls.json"),
    include_str!("show.json"),
    include_str!("top.json"),
    include_str!("unlock.json"),
    include_str!("watch.json"),
];

pub(crate) fn print() -> Result<u8, Failure> {
    let _ = write_json(&schema())?;
    Ok(0)
}

fn schema() -> Value {
    let part = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
    let definitions: Map<String, Value> = PARTS.into_iter().flat_map(part).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What `leasehold SUBCOMMAND --json` prints is $defs/SUBCOMMAND",
        "$defs": definitions,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_an_object_and_every_reference_is_defined() {
        for part in PARTS {
            serde_json::from_str::<Map<String, Value>>(part).unwrap();
        }
        let schema = schema();
        let text = schema.to_string();
        for reference in text.split("\"#/$defs/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schema["$defs"].get(name).is_some(), "{name}");
        }
    }
}
