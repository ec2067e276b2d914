//! An entry of the log in values of its own, so that another thread can write it later.
//!
//! Owns nothing but the entry; what becomes of it is for whatever subscriber the writing thread has.

use std::fmt;

use tracing::field::{DisplayValue, Field, Visit, display};
use tracing::{Event, Metadata, Value};

/// More than any entry has; what is above is left out.
const FIELDS: usize = 32;

/// See the module.
#[derive(Debug)]
pub struct Entry {
    metadata: &'static Metadata<'static>,
    fields: Vec<(Field, Owned)>,
}

/// Text is told from what was only formatted, since that is how the plain log tells what to put in quotes.
#[derive(Debug)]
enum Owned {
    Text(String),
    Formatted(DisplayValue<String>),
}

impl Owned {
    fn as_value(&self) -> &dyn Value {
        match self {
            Self::Text(text) => text,
            Self::Formatted(formatted) => formatted,
        }
    }
}

impl Entry {
    /// What the event says.
    pub fn of(event: &Event<'_>) -> Self {
        let mut fields = Fields(Vec::new());
        event.record(&mut fields);
        Self { metadata: event.metadata(), fields: fields.0 }
    }

    /// Gives it to the subscriber of the thread that calls.
    pub fn write(&self) {
        let Some((first, _)) = self.fields.first() else { return };
        let values: [(&Field, Option<&dyn Value>); FIELDS] = std::array::from_fn(|at| {
            self.fields.get(at).map_or((first, None), |(field, value)| (field, Some(value.as_value())))
        });
        let values = self.metadata.fields().value_set(&values);
        tracing::dispatcher::get_default(|to| to.event(&Event::new(self.metadata, &values)));
    }
}

struct Fields(Vec<(Field, Owned)>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.clone(), Owned::Text(value.to_owned())));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.clone(), Owned::Formatted(display(format!("{value:?}")))));
    }
}
