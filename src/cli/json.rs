//! `--json`: what the bus returned, as JSON, one object a line.
//!
//! Keys and values are the bus's own; nothing is renamed, rounded or left out.

use serde_json::{Map, Number, Value};
use zbus::Variant;

use crate::bus::proxy::Row;

/// A row as a JSON object, sorted by key.
pub fn object(row: &Row) -> Map<String, Value> {
    row.iter().map(|(key, value)| (key.clone(), value_of(value))).collect()
}

/// A value of the bus as JSON. A file descriptor has no form there and becomes null.
pub fn value_of(variant: &Variant<'_>) -> Value {
    match variant {
        Variant::U8(number) => Value::from(*number),
        Variant::Bool(flag) => Value::from(*flag),
        Variant::I16(number) => Value::from(*number),
        Variant::U16(number) => Value::from(*number),
        Variant::I32(number) => Value::from(*number),
        Variant::U32(number) => Value::from(*number),
        Variant::I64(number) => Value::from(*number),
        Variant::U64(number) => Value::from(*number),
        Variant::F64(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        Variant::Str(text) => Value::from(text.as_str()),
        Variant::Signature(signature) => Value::from(signature.to_string()),
        Variant::ObjectPath(path) => Value::from(path.as_str()),
        Variant::Variant(inner) => value_of(inner),
        Variant::Array(array) => array.inner().iter().map(value_of).collect(),
        Variant::Structure(structure) => structure.fields().iter().map(value_of).collect(),
        Variant::Dict(dict) => {
            Value::Object(dict.iter().map(|(key, value)| (key_of(key), value_of(value))).collect())
        }
        Variant::Fd(_) => Value::Null,
    }
}

fn key_of(key: &Variant<'_>) -> String {
    match value_of(key) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn json(value: impl Into<Variant<'static>>) -> String {
        value_of(&value.into()).to_string()
    }

    #[test]
    fn every_type_of_the_interface_has_its_form() {
        assert_eq!(json(u64::MAX), "18446744073709551615");
        assert_eq!(json(i64::MIN), "-9223372036854775808");
        assert_eq!(json(-5_i32), "-5");
        assert_eq!(json(true), "true");
        assert_eq!(json("a\u{1b}\"b"), r#""a\u001b\"b""#);
        assert_eq!(json(vec!["a", "b"]), r#"["a","b"]"#);
        assert_eq!(json(vec![1_u64, 2]), "[1,2]");
        assert_eq!(json(vec![(3_u64, 15_i32)]), "[[3,15]]");
        assert_eq!(json(BTreeMap::from([("gpu", 2_u32)])), r#"{"gpu":2}"#);
        assert_eq!(json(BTreeMap::from([(7_u64, "x")])), r#"{"7":"x"}"#);
        assert_eq!(json(f64::NAN), "null");
        assert_eq!(json(Variant::Variant(Box::new(Variant::from(4_u8)))), "4");
    }

    #[test]
    fn an_object_is_one_line_whatever_it_holds() {
        let row: Row = [("Text", "a\nb\r\u{2028}c"), ("Author", "uid:0")]
            .into_iter()
            .map(|(key, text)| (key.to_owned(), Variant::from(text).try_into_owned().unwrap()))
            .collect();
        let line = Value::Object(object(&row)).to_string();
        assert!(!line.contains('\n') && !line.contains('\r'), "{line}");
        assert!(line.starts_with(r#"{"Author":"#), "{line}");
    }
}
