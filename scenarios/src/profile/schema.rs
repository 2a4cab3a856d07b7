//! JSON schema of profile files.

use serde_json::{Map, Value as Json, json};

use super::{Confidence, GROUPS, PARAMETERS};

/// The schema of a profile file, for editors.
pub fn profile_schema() -> Json {
    let words: Vec<&str> = Confidence::WORDS.iter().map(|(word, _)| *word).collect();
    let mut properties = Map::new();
    properties.insert("title".to_owned(), json!({ "type": "string" }));
    properties.insert("base".to_owned(), json!({ "type": "string" }));
    for (group, doc) in GROUPS {
        let mut members = Map::new();
        for parameter in PARAMETERS {
            let Some((_, name)) = parameter.path.split_once('.').filter(|(g, _)| g == group) else {
                continue;
            };
            let schema = json!({
                "type": "object",
                "description": parameter.doc.trim(),
                "properties": {
                    "value": (parameter.schema)(),
                    "source": { "type": "string" },
                    "confidence": { "enum": words },
                },
                "required": ["value", "source"],
                "additionalProperties": false,
            });
            members.insert(name.to_owned(), schema);
        }
        let schema = json!({
            "type": "object",
            "description": doc.trim(),
            "properties": members,
            "additionalProperties": false,
        });
        properties.insert((*group).to_owned(), schema);
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "doorbell hardware profile",
        "type": "object",
        "properties": properties,
        "required": ["title"],
        "additionalProperties": false,
    })
}
