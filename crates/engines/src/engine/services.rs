//! Services of Thalweg as the topics that they are: questions on a topic, answers on `TOPIC/reply`, each with its asker and number
//! (`thalweg::Client`, `thalweg::Server`).

#[cfg(feature = "rtps")]
use thalweg::codec::Field;
use thalweg::codec::{Schema, TypeDescription};

/// The name of the type of a question or an answer.
const NUMBERED: &str = "Numbered";
/// What the topic of answers has behind that of questions.
const REPLY: &str = "/reply";

/// The type of a question or an answer with this body; `None` if nobody knows its structure.
#[cfg(feature = "rtps")]
pub(crate) fn numbered(body: &TypeDescription) -> Option<TypeDescription> {
    let field = |name: &str, schema| Field { name: name.to_owned(), schema };
    let fields =
        vec![field("asker", Schema::U64), field("number", Schema::U64), field("body", body.schema.as_deref()?.clone())];
    let schema = Schema::Struct { name: NUMBERED.to_owned(), fields };
    Some(TypeDescription { name: NUMBERED.to_owned(), hash: schema.hash(), schema: Some(schema.into()), ros: None })
}

/// `true` for the type of a question or an answer.
pub(crate) fn is_numbered(message: &TypeDescription) -> bool {
    let Some(Schema::Struct { name, fields }) = message.schema.as_deref() else { return false };
    let names = fields.iter().map(|field| &field.name[..]);
    name == NUMBERED && names.eq(["asker", "number", "body"])
}

/// The topic of questions that belongs to one of answers.
pub(crate) fn asked(topic: &str) -> Option<&str> {
    topic.strip_suffix(REPLY)
}

/// The topic of answers that belongs to one of questions.
#[cfg(feature = "rtps")]
pub(crate) fn answered(topic: &str) -> String {
    format!("{topic}{REPLY}")
}

#[cfg(all(test, feature = "rtps"))]
mod tests {
    use super::*;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize)]
    struct Ask {
        a: i64,
    }

    #[derive(Serialize, Deserialize)]
    struct Numbered<T> {
        asker: u64,
        number: u64,
        body: T,
    }

    #[test]
    fn a_question_has_an_asker_a_number_and_a_body() {
        let ask = TypeDescription::of::<Ask>();
        let question = numbered(&ask).unwrap();
        assert_eq!(question, TypeDescription::of::<Numbered<Ask>>());
        assert!(is_numbered(&question) && !is_numbered(&ask) && numbered(&TypeDescription::opaque("Ask")).is_none());
        assert_eq!(
            (answered("/add"), asked("/add/reply"), asked("/add")),
            ("/add/reply".to_owned(), Some("/add"), None)
        );
    }
}
