//! Types of peers, and messages read by them.

use super::codec::Everything;
use crate::codec::{self, Schema, Sought, TypeDescription};
use crate::control::limits::check_type;
use qos::Filter;
use qos::expression::{Expression, Value};

/// A type, lines of a filter with its parameters, and a message, each ended by a byte 0. A type that passes the check
/// is used to read the message as JSON, for a key and for the filter, and this ends soon; JSON that is read is
/// written as a message of this type.
pub fn types(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0);
    let (told, filter, message) = (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let filter = filter_of(&String::from_utf8_lossy(filter));
    expression(&filter);
    let Ok(told) = serde_json::from_slice::<TypeDescription>(told.unwrap_or_default()) else { return };
    if check_type(&told).is_err() {
        return;
    }
    let again = serde_json::from_slice::<TypeDescription>(&serde_json::to_vec(&told).unwrap_or_default());
    assert_eq!(again.ok().as_ref(), Some(&told), "a type survives the way");
    let Some(schema) = &told.schema else { return };
    if let Ok(json) = codec::to_json(schema, message) {
        let _ = codec::from_json(schema, &json);
    }
    let key = first_fields(schema);
    for filter in [None, Some(&filter)] {
        let Ok(sought) = Sought::find(Some(schema), &key, filter) else { continue };
        let _ = (sought.instance(message), sought.key_text(message, &key), sought.holds(message));
    }
}

/// Some fields of a struct, in the notation of a key.
fn first_fields(schema: &Schema) -> Vec<String> {
    let Schema::Struct { fields, .. } = schema else { return Vec::new() };
    fields.iter().take(2).map(|field| field.name.clone()).collect()
}

fn filter_of(text: &str) -> Filter {
    let mut lines = text.lines().map(str::to_owned);
    Filter { expression: lines.next().unwrap_or_default(), parameters: lines.take(100).collect() }
}

/// A filter is refused with the position, or gives an answer for any fields.
fn expression(filter: &Filter) {
    match Expression::parse(filter) {
        Err(wrong) => assert!(wrong.at <= filter.expression.len() && !wrong.problem.is_empty()),
        Ok(expression) => {
            let values = [
                None,
                Some(Value::Bool(true)),
                Some(Value::Integer(i128::MIN)),
                Some(Value::Float(f64::NAN)),
                Some(Value::Text(&filter.expression)),
            ];
            for shift in 0..values.len() {
                let all: Vec<_> =
                    (0..expression.fields().len()).map(|at| values[(at + shift) % values.len()]).collect();
                let _ = expression.holds(&all);
            }
        }
    }
}

/// A type with a field of each kind, filters, and messages of it.
pub(super) fn read() -> Vec<Vec<u8>> {
    let told = serde_json::to_vec(&TypeDescription::of::<Everything>()).unwrap_or_default();
    let filters = [
        "number > 3 AND text LIKE 'th%' OR NOT flag = %0\nTRUE",
        "ratio BETWEEN -1 AND %1 AND (choice <> 'One' OR wide <= 7)\n1\n2.5",
    ];
    let messages = super::codec::messages();
    filters
        .iter()
        .zip(&messages)
        .map(|(filter, message)| [&told, &[0][..], filter.as_bytes(), &[0], message].concat())
        .collect()
}
