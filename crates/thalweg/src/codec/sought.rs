//! Key fields and filters: the instance to which a sample belongs, and whether a filter holds for it.

use crate::codec::{FieldError, Fields, Schema};
use qos::Filter;
use qos::expression::{Expression, Value};

/// Different fields that a key or a filter looks at, at most.
const MOST_FIELDS: usize = 64;
/// Letters of a key's text that are shown.
const LONGEST_SHOWN: usize = 64;
/// The only instance of a topic without a key.
pub(crate) const WHOLE_TOPIC: u64 = 0;

/// Fields of a type that policies look at.
#[derive(Clone, Debug)]
pub(crate) struct Sought {
    schema: Option<Schema>,
    key: Option<Fields>,
    filter: Option<(Expression, Fields)>,
}

impl Sought {
    /// Finds the fields of a key and a filter in a type.
    ///
    /// # Errors
    /// [`FieldError`]: the structure of the type is not known, or has no such field.
    pub(crate) fn find(schema: Option<&Schema>, key: &[String], filter: Option<&Filter>) -> Result<Self, FieldError> {
        let expression = filter.map(Expression::parse).transpose().map_err(FieldError::Filter)?;
        if key.is_empty() && expression.is_none() {
            return Ok(Self { schema: None, key: None, filter: None });
        }
        let schema = schema.ok_or(FieldError::Unknown)?;
        let key = (!key.is_empty()).then(|| Fields::find(schema, key)).transpose()?;
        let found = expression.map(|e| Fields::find(schema, e.fields()).map(|fields| (e, fields)));
        Ok(Self { schema: Some(schema.clone()), key, filter: found.transpose()? })
    }

    /// `true` if no field is sought.
    pub(crate) fn is_nothing(&self) -> bool {
        self.key.is_none() && self.filter.is_none()
    }

    /// The instance of a message; `None`: it is no value of the type.
    pub(crate) fn instance(&self, bytes: &[u8]) -> Option<u64> {
        let (Some(schema), Some(key)) = (&self.schema, &self.key) else { return Some(WHOLE_TOPIC) };
        let mut values = [None; MOST_FIELDS];
        read(key, schema, bytes, &mut values)?;
        // In the order of the key, not of the message. 64-bit FNV-1a: equal keys of different publishers agree.
        let hash = values.iter().take(key.count()).fold(0xcbf2_9ce4_8422_2325, |hash, value| match value {
            None => fold(hash, &[0]),
            Some(Value::Bool(value)) => fold(hash, &[1, u8::from(*value)]),
            Some(Value::Integer(value)) => fold(fold(hash, &[2]), &value.to_le_bytes()),
            Some(Value::Float(value)) => fold(fold(hash, &[3]), &value.to_le_bytes()),
            Some(Value::Text(value)) => fold(fold(fold(hash, &[4]), value.as_bytes()), &[0]),
        });
        Some(hash)
    }

    /// The key of a message, as people read it; empty where there is none.
    pub(crate) fn key_text(&self, bytes: &[u8], names: &[String]) -> String {
        let (Some(schema), Some(key)) = (&self.schema, &self.key) else { return String::new() };
        let mut values = [None; MOST_FIELDS];
        if read(key, schema, bytes, &mut values).is_none() {
            return String::new();
        }
        let one = |(name, value): (&String, &Option<Value<'_>>)| match value {
            None => format!("{name} = none"),
            Some(Value::Bool(value)) => format!("{name} = {value}"),
            Some(Value::Integer(value)) => format!("{name} = {value}"),
            Some(Value::Float(value)) => format!("{name} = {value}"),
            Some(Value::Text(value)) => format!("{name} = {}", value.chars().take(LONGEST_SHOWN).collect::<String>()),
        };
        names.iter().zip(&values).map(one).collect::<Vec<_>>().join(", ")
    }

    /// `true` if the filter holds. It does not hold for a message that is no value of the type.
    pub(crate) fn holds(&self, bytes: &[u8]) -> bool {
        let (Some(schema), Some((expression, fields))) = (&self.schema, &self.filter) else { return true };
        let mut values = [None; MOST_FIELDS];
        read(fields, schema, bytes, &mut values).is_some() && expression.holds(&values)
    }
}

fn read<'v>(
    fields: &Fields,
    schema: &'v Schema,
    bytes: &'v [u8],
    values: &mut [Option<Value<'v>>; MOST_FIELDS],
) -> Option<()> {
    let mut note = |place: usize, value| {
        if let Some(slot) = values.get_mut(place) {
            *slot = Some(value);
        }
    };
    fields.read(schema, bytes, &mut note).ok()
}

/// A number for a topic: instances of different topics differ, even for a subscriber of several.
pub(crate) fn topic_number(topic: &str) -> u64 {
    fold(0xcbf2_9ce4_8422_2325, topic.as_bytes())
}

fn fold(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{TypeDescription, to_cdr};

    type Part = (String, u32);

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Arm {
        name: String,
        joint: u8,
        angle: f64,
    }

    fn sought(key: &[&str], filter: &str) -> Sought {
        let schema = TypeDescription::of::<Arm>().schema;
        let key: Vec<String> = key.iter().map(|k| (*k).to_owned()).collect();
        let filter = Filter { expression: filter.into(), parameters: Vec::new() };
        Sought::find(schema.as_ref(), &key, Some(&filter)).unwrap()
    }

    fn arm(name: &str, joint: u8, angle: f64) -> Vec<u8> {
        to_cdr(&Arm { name: name.into(), joint, angle }).unwrap()
    }

    #[test]
    fn instances_are_told_apart_by_their_key_fields_alone() {
        let sought = sought(&["joint", "name"], "angle = 0");
        let of = |name, joint, angle| sought.instance(&arm(name, joint, angle)).unwrap();
        assert_eq!(of("left", 1, 0.0), of("left", 1, 2.0));
        let others = [of("left", 1, 0.0), of("left", 2, 0.0), of("right", 1, 0.0), of("", 1, 0.0)];
        assert_eq!(others.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
        assert_eq!(sought.instance(&[0, 1, 0, 0, 9]), None);
        let names = ["joint".to_owned(), "name".to_owned()];
        assert_eq!(sought.key_text(&arm("left", 1, 0.0), &names), "joint = 1, name = left");
        assert!(sought.key_text(&[0, 1, 0, 0, 9], &names).is_empty());
    }

    #[test]
    fn a_filter_looks_at_the_message() {
        let sought = sought(&[], "angle > 1.5 AND name LIKE 'l%'");
        assert!(sought.holds(&arm("left", 1, 2.0)) && !sought.holds(&arm("left", 1, 1.0)));
        assert!(!sought.holds(&arm("right", 1, 2.0)) && !sought.holds(&[1, 2, 3]));
        assert_eq!(sought.instance(&arm("left", 1, 2.0)), Some(WHOLE_TOPIC));
    }

    #[test]
    fn missing_fields_are_named() {
        let find = |schema: Option<Schema>, key: &str| {
            Sought::find(schema.as_ref(), &[key.to_owned()], None).unwrap_err().to_string()
        };
        assert!(find(None, "id").contains("not known"));
        assert!(find(TypeDescription::of::<Arm>().schema, "id").contains("Arm has no id, it has name, joint, angle"));
        assert!(find(TypeDescription::of::<Part>().schema, "id").contains("nothing has a field id"));
    }
}
