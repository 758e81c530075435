use super::*;
use crate::codec::samples::*;
use crate::codec::{TypeDescription, to_cdr, to_json};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;

/// The JSON of the fields by the slow way and of those read in place, which must agree.
fn read(schema: &Schema, bytes: &[u8], paths: &[&str]) -> Result<Vec<Option<String>>, CodecError> {
    let paths: Vec<String> = paths.iter().map(|p| (*p).to_owned()).collect();
    let fields = Fields::find(schema, &paths).unwrap();
    let mut found = vec![None; fields.count()];
    fields.read(schema, bytes, &mut |place, value| {
        found[place] = Some(match value {
            Value::Bool(v) => v.to_string(),
            Value::Integer(v) => v.to_string(),
            Value::Float(v) => json!(v).to_string(),
            Value::Text(v) => json!(v).to_string(),
        });
    })?;
    Ok(found)
}

fn schema<T: serde::de::DeserializeOwned>() -> Arc<Schema> {
    TypeDescription::of::<T>().schema.unwrap()
}

proptest! {
    #[test]
    fn fields_are_what_the_whole_value_says(header in header()) {
        let (schema, bytes) = (schema::<Header>(), to_cdr(&header).unwrap());
        let whole = to_json(&schema, &bytes).unwrap();
        let found = read(&schema, &bytes, &["frame_id", "stamp.nanosec", "stamp.sec", "frame_id"]).unwrap();
        let expected = ["/frame_id", "/stamp/nanosec", "/stamp/sec", "/frame_id"];
        prop_assert_eq!(found, expected.map(|at| Some(whole.pointer(at).unwrap().to_string())));
    }
    /// Reading over everything that serde knows ends exactly at its end.
    #[test]
    fn unused_fields_are_skipped(everything in everything()) {
        let bytes = to_cdr(&(everything, 7_u8)).unwrap();
        let schema = schema::<(Everything, u8)>();
        let mut reader = Reader::new(&bytes).unwrap();
        skip(&mut reader, &schema, &mut Steps::of(&bytes)).unwrap();
        reader.finish().unwrap();
        prop_assert!(bytes.len() - reader.at() < 4);
    }
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut message = vec![0, 1, 0, 0];
        message.extend(bytes);
        let _ = skip(&mut Reader::new(&message).unwrap(), &schema::<Everything>(), &mut Steps::of(&message));
        let _ = read(&schema::<Header>(), &message, &["frame_id"]);
    }
}

#[test]
fn options_and_enums_are_looked_into() {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Part {
        time: Option<Time>,
        mode: Command,
        after: f32,
    }
    let paths = ["time.sec", "mode", "after"];
    let part = |time, mode| to_cdr(&Part { time, mode, after: 1.5 }).unwrap();
    let found = |bytes: &[u8]| read(&schema::<Part>(), bytes, &paths).unwrap();
    let text = |t: &str| Some(t.to_owned());
    assert_eq!(found(&part(None, Command::Stop)), [None, text("\"Stop\""), text("1.5")]);
    let said = part(Some(Time { sec: 3, nanosec: 4 }), Command::Say { text: "a".into(), loud: true });
    assert_eq!(found(&said), [text("3"), text("\"Say\""), text("1.5")]);
}

#[test]
fn paths_that_lead_nowhere_are_named() {
    for (path, says) in [
        ("frame", "Header has no frame, it has stamp, frame_id"),
        ("stamp", "no single number"),
        ("frame_id.x", "nothing has a field x"),
        ("stamp.sec.x", "nothing has a field x"),
    ] {
        let wrong = Fields::find(&schema::<Header>(), &[path.to_owned()]).unwrap_err().to_string();
        assert!(wrong.contains(says) && wrong.contains(path), "{wrong}");
    }
}

#[test]
fn lies_about_how_many_parts_there_are_end_soon() {
    let nothing = Schema::Array { len: u32::MAX, element: Box::new(Schema::Unit) };
    let nested = Schema::Sequence(Box::new(Schema::Array { len: u32::MAX, element: Box::new(nothing) }));
    let message = [0, 1, 0, 0, 2, 0, 0, 0];
    assert!(skip(&mut Reader::new(&message).unwrap(), &nested, &mut Steps::of(&message)).is_ok());
}

/// A type as a stranger may send it: each element has thousands of parts, and one byte.
#[test]
fn parts_without_a_byte_end_at_a_budget_of_steps() {
    let parts = |count: usize| {
        let mut parts = vec![Schema::Unit; count];
        parts.push(Schema::U8);
        let field = |name: &str, schema| super::super::schema::Field { name: name.to_owned(), schema };
        let many = Schema::Sequence(Box::new(Schema::Tuple(parts)));
        Schema::Struct { name: "Bomb".into(), fields: vec![field("many", many), field("id", Schema::U8)] }
    };
    let message = |elements: u32| {
        let head = [&[0, 1, 0, 0][..], &elements.to_le_bytes()[..]].concat();
        [head, vec![7; elements as usize + 1]].concat()
    };
    let bomb = parts(4000);
    bomb.check().unwrap();
    let wrong = read(&bomb, &message(100_000), &["id"]).unwrap_err();
    assert!(wrong.problem.contains("4 per byte") && wrong.offset < 1000, "{wrong:?}");
    assert_eq!(read(&bomb, &message(2), &["id"]).unwrap(), [Some("7".to_owned())]);
    assert_eq!(read(&parts(2), &message(100_000), &["id"]).unwrap(), [Some("7".to_owned())]);
}

type Part = (String, u32);

#[derive(serde::Serialize, serde::Deserialize)]
struct Arm {
    name: String,
    joint: u8,
    angle: f64,
}

fn policy_fields(key: &[&str], filter: &str) -> PolicyFields {
    let schema = TypeDescription::of::<Arm>().schema;
    let key: Vec<String> = key.iter().map(|k| (*k).to_owned()).collect();
    let filter = Filter { expression: filter.into(), parameters: Vec::new() };
    PolicyFields::find(schema.as_deref(), &key, Some(&filter)).unwrap()
}

fn arm(name: &str, joint: u8, angle: f64) -> Vec<u8> {
    to_cdr(&Arm { name: name.into(), joint, angle }).unwrap()
}

#[test]
fn instances_are_told_apart_by_their_key_fields_alone() {
    let policy_fields = policy_fields(&["joint", "name"], "angle = 0");
    let of = |name, joint, angle| policy_fields.instance(&arm(name, joint, angle)).unwrap();
    assert_eq!(of("left", 1, 0.0), of("left", 1, 2.0));
    let others = [of("left", 1, 0.0), of("left", 2, 0.0), of("right", 1, 0.0), of("", 1, 0.0)];
    assert_eq!(others.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    assert_eq!(policy_fields.instance(&[0, 1, 0, 0, 9]), None);
    let names = ["joint".to_owned(), "name".to_owned()];
    assert_eq!(policy_fields.key_text(&arm("left", 1, 0.0), &names), "joint = 1, name = left");
    assert!(policy_fields.key_text(&[0, 1, 0, 0, 9], &names).is_empty());
}

#[test]
fn a_filter_looks_at_the_message() {
    let policy_fields = policy_fields(&[], "angle > 1.5 AND name LIKE 'l%'");
    assert!(policy_fields.holds(&arm("left", 1, 2.0)) && !policy_fields.holds(&arm("left", 1, 1.0)));
    assert!(!policy_fields.holds(&arm("right", 1, 2.0)) && !policy_fields.holds(&[1, 2, 3]));
    assert_eq!(policy_fields.instance(&arm("left", 1, 2.0)), Some(WHOLE_TOPIC));
}

#[test]
fn missing_fields_are_named() {
    let find = |schema: Option<Arc<Schema>>, key: &str| {
        PolicyFields::find(schema.as_deref(), &[key.to_owned()], None).unwrap_err().to_string()
    };
    assert!(find(None, "id").contains("not known"));
    assert!(find(TypeDescription::of::<Arm>().schema, "id").contains("Arm has no id, it has name, joint, angle"));
    assert!(find(TypeDescription::of::<Part>().schema, "id").contains("nothing has a field id"));
}
