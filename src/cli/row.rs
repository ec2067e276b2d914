//! Reading rows of the bus (`a{sv}`) by key, for people's eyes: what is absent or of another type reads as
//! nothing, because a daemon of another version may say less or more.

use std::collections::BTreeMap;

use zbus::Variant;

use crate::bus::proxy::Row;

/// Reads fields of a row.
pub trait Fields {
    /// The value of a key.
    fn field(&self, key: &str) -> Option<&Variant<'_>>;

    /// A text; empty where there is none.
    fn text(&self, key: &str) -> &str {
        match self.field(key) {
            Some(Variant::Str(text)) => text.as_str(),
            _ => "",
        }
    }

    /// A text, where there is one that is not empty.
    fn text_if_any(&self, key: &str) -> Option<&str> {
        Some(self.text(key)).filter(|text| !text.is_empty())
    }

    /// A number that is not negative; 0 where there is none.
    fn number(&self, key: &str) -> u64 {
        u64::try_from(self.signed(key)).unwrap_or(0)
    }

    /// A number, where there is one that is not 0.
    fn number_if_any(&self, key: &str) -> Option<u64> {
        Some(self.number(key)).filter(|number| *number != 0)
    }

    /// A number; 0 where there is none.
    fn signed(&self, key: &str) -> i64 {
        self.field(key).and_then(whole).unwrap_or(0)
    }

    /// A flag; false where there is none.
    fn flag(&self, key: &str) -> bool {
        matches!(self.field(key), Some(Variant::Bool(true)))
    }

    /// Texts of an array.
    fn texts(&self, key: &str) -> Vec<&str> {
        self.items(key)
            .iter()
            .filter_map(|item| match item {
                Variant::Str(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    /// Numbers of an array.
    fn numbers(&self, key: &str) -> Vec<u64> {
        self.items(key).iter().filter_map(whole).filter_map(|number| u64::try_from(number).ok()).collect()
    }

    /// Items of an array.
    fn items(&self, key: &str) -> &[Variant<'_>] {
        match self.field(key) {
            Some(Variant::Array(array)) => array.inner(),
            _ => &[],
        }
    }

    /// Names with their numbers (`a{su}`).
    fn counts(&self, key: &str) -> BTreeMap<String, u64> {
        let Some(Variant::Dict(dict)) = self.field(key) else { return BTreeMap::new() };
        dict.iter()
            .filter_map(|(key, value)| match key {
                Variant::Str(text) => Some((text.as_str().to_owned(), u64::try_from(whole(value)?).ok()?)),
                _ => None,
            })
            .collect()
    }
}

impl Fields for Row {
    fn field(&self, key: &str) -> Option<&Variant<'_>> {
        self.get(key).map(|value| &**value)
    }
}

/// A whole number of any width; one that does not fit reads as the largest.
pub fn whole(variant: &Variant<'_>) -> Option<i64> {
    match variant {
        Variant::U8(number) => Some(i64::from(*number)),
        Variant::I16(number) => Some(i64::from(*number)),
        Variant::U16(number) => Some(i64::from(*number)),
        Variant::I32(number) => Some(i64::from(*number)),
        Variant::U32(number) => Some(i64::from(*number)),
        Variant::I64(number) => Some(*number),
        Variant::U64(number) => Some(i64::try_from(*number).unwrap_or(i64::MAX)),
        Variant::Variant(inner) => whole(inner),
        _ => None,
    }
}

/// Makes rows for tests.
#[cfg(test)]
pub fn row_of<const N: usize>(fields: [(&str, Variant<'static>); N]) -> Row {
    fields.into_iter().map(|(key, value)| (key.to_owned(), value.try_into_owned().unwrap())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_or_of_another_type_reads_as_nothing() {
        let row = row_of([
            ("Title", "x".into()),
            ("Task", 7_u64.into()),
            ("ExitCode", (-1_i32).into()),
            ("Parents", vec![1_u64, 2].into()),
            ("Slots", BTreeMap::from([("gpu", 2_u32)]).into()),
        ]);
        assert_eq!((row.text("Title"), row.text("Task"), row.text("Nothing")), ("x", "", ""));
        assert_eq!((row.number("Task"), row.number("Title"), row.number("ExitCode")), (7, 0, 0));
        assert_eq!(row.signed("ExitCode"), -1);
        assert_eq!(row.numbers("Parents"), [1, 2]);
        assert_eq!(row.counts("Slots"), BTreeMap::from([("gpu".to_owned(), 2)]));
        assert!(row.texts("Parents").is_empty() && row.number_if_any("Nothing").is_none());
    }
}
