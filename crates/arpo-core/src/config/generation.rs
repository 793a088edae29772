//! `osworld.generation`: one of OSWorld's generations, or `"task"` for the one that each task file was written for.
//!
//! In the program this is `Option<Generation>`; here is how it is written and read, and its schema.

use crate::generation::Generation;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// How `None` is written.
const OF_THE_TASK: &str = "task";

/// For `#[serde(with)]`.
#[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref, reason = "serde passes the field like this")]
pub(super) fn serialize<S: Serializer>(
    generation: &Option<Generation>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match generation {
        None => serializer.serialize_str(OF_THE_TASK),
        Some(generation) => generation.serialize(serializer),
    }
}

/// For `#[serde(with)]`.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Generation>, D::Error> {
    let name = String::deserialize(deserializer)?;
    if name == OF_THE_TASK {
        return Ok(None);
    }
    let name = IntoDeserializer::<D::Error>::into_deserializer(name);
    Generation::deserialize(name).map(Some)
}

/// The schema of the generations, with the further choice in front.
pub(super) fn schema(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = Generation::json_schema(generator);
    if let Some(choices) = schema.get_mut("oneOf").and_then(Value::as_array_mut) {
        let of_the_task = json_schema!({
            "description": "The version of each task file.",
            "type": "string",
            "const": OF_THE_TASK
        });
        choices.insert(0, of_the_task.to_value());
    }
    schema
}
