//! Requests and answers as they go over the wire.
//!
//! Answers are written from these types; requests are read by [`super::fields`] and described here for the OpenAPI document.
//! A test holds the two lists of names together.

pub mod audit;
pub mod dead_letter;
pub mod detail;
pub mod key;
pub mod message;
pub mod publish;
pub mod queue;
pub mod receive;
pub mod redrive;
pub mod redrive_request;
pub mod settle;
pub mod values;

use quita_storage::model::Millis;
use serde::{Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

/// A point in time, written as RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Millis);

impl Time {
    /// Appends the written form.
    pub fn write(self, out: &mut Vec<u8>) {
        use jiff::fmt::temporal::DateTimePrinter;
        const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
        let at = jiff::Timestamp::from_millisecond(self.0).unwrap_or_default();
        // Writing to a vector cannot fail.
        let _ = PRINTER.print_timestamp(&at, out);
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = Vec::with_capacity(24);
        self.write(&mut text);
        serializer.serialize_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("A point in time: RFC 3339, UTC, milliseconds"))
            .examples([serde_json::json!("2026-11-30T15:04:05.123Z")])
            .into()
    }
}

impl ToSchema for Time {}

/// A length of time, written as a number of seconds: whole where it is, else with up to three decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub Millis);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 % 1000 == 0 {
            serializer.serialize_i64(self.0 / 1000)
        } else {
            serializer.serialize_f64(self.0 as f64 / 1000.0)
        }
    }
}

impl PartialSchema for Seconds {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Number)
            .description(Some("A number of seconds; decimals are allowed"))
            .examples([serde_json::json!(30)])
            .into()
    }
}

impl ToSchema for Seconds {}

/// The description of something of which every part may be missing: what a client changes of a policy, or what a batch
/// answers about an entry that was refused.
macro_rules! partial {
    ($(#[$doc:meta])* $name:ident of $whole:ty) => {
        $(#[$doc])*
        pub struct $name;

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                crate::http::wire::nothing_required(<$whole>::schema())
            }
        }

        impl utoipa::ToSchema for $name {
            fn schemas(
                schemas: &mut Vec<(
                    String,
                    utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>,
                )>,
            ) {
                <$whole>::schemas(schemas);
            }
        }
    };
}
pub(crate) use partial;

fn nothing_required(mut schema: RefOr<Schema>) -> RefOr<Schema> {
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        object.required.clear();
    }
    schema
}

/// A part of an answer that is JSON text already.
pub(crate) fn raw_json(text: &str) -> Option<Box<serde_json::value::RawValue>> {
    serde_json::value::RawValue::from_string(text.to_owned()).ok()
}

/// Writes a text as a JSON string.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    let plain = text.bytes().all(|b| b >= 0x20 && b != b'"' && b != b'\\');
    if plain {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // Writing a text to a vector cannot fail.
        let _ = serde_json::to_writer(out, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds_and_lengths_are_numbers() {
        let json = |value: &dyn erased::Json| value.json();
        assert_eq!(
            json(&Time(1_796_051_045_000)),
            "\"2026-11-30T15:04:05.000Z\""
        );
        assert_eq!(
            json(&Time(1_796_051_045_120)),
            "\"2026-11-30T15:04:05.120Z\""
        );
        assert_eq!(json(&Time(0)), "\"1970-01-01T00:00:00.000Z\"");
        assert_eq!(json(&Seconds(30_000)), "30");
        assert_eq!(json(&Seconds(1_500)), "1.5");
    }

    mod erased {
        pub(super) trait Json {
            fn json(&self) -> String;
        }
        impl<T: serde::Serialize> Json for T {
            fn json(&self) -> String {
                serde_json::to_string(self).unwrap()
            }
        }
    }

    #[test]
    fn strings_are_escaped_as_json_wants_it() {
        for text in ["plain", "a\"b", "a\\b", "a\nb", "\u{0}", "ä\u{2028}"] {
            let mut out = Vec::new();
            write_string(text, &mut out);
            assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }
}
