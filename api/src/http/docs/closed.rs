//! Requests are closed: what their descriptions do not name is refused, and the descriptions say so.
//!
//! Answers stay open, so that a later version may add to them.

use utoipa::openapi::schema::AdditionalProperties;
use utoipa::openapi::{RefOr, Schema};

/// Forbids members without a name in every object of a schema that names its members. References are left alone.
pub(crate) fn close(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => {
            if !object.properties.is_empty() && object.additional_properties.is_none() {
                let none = AdditionalProperties::FreeForm(false);
                object.additional_properties = Some(Box::new(none));
            }
            object.properties.values_mut().for_each(close);
        }
        Schema::OneOf(one) => one.items.iter_mut().for_each(close),
        Schema::AnyOf(any) => any.items.iter_mut().for_each(close),
        Schema::AllOf(all) => all.items.iter_mut().for_each(close),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_with_named_members_are_closed_and_maps_are_not() {
        let mut schema: RefOr<Schema> =
            serde_json::from_value(json!({"type": "object", "properties": {
                "inner": {"type": "object", "properties": {"a": {"type": "string"}}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "any": {"type": "object"},
            }}))
            .unwrap();
        close(&mut schema);
        let json = serde_json::to_value(schema).unwrap();
        assert_eq!(json["additionalProperties"], false);
        assert_eq!(json["properties"]["inner"]["additionalProperties"], false);
        assert_eq!(
            json["properties"]["map"]["additionalProperties"],
            json!({"type": "string"})
        );
        assert!(json["properties"]["any"]["additionalProperties"].is_null());
    }
}
