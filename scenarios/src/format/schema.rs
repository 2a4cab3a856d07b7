//! JSON schema of scenario files, for editors.

use schemars::schema_for;
use serde_json::Value as Json;

use super::Scenario;

/// The schema of a scenario file.
pub fn scenario_schema() -> Json {
    let mut schema: Json = schema_for!(Scenario).into();
    schema["title"] = "doorbell scenario".into();
    schema
}
