//! Messages of a service on their way: with the asker's id and the question's number before them.

use crate::failure::{Failure, Result, thalweg_status};
use crate::layout::HEADER;
use crate::types::Form;
use thalweg::codec::{Field, Schema, TypeDescription};
use thalweg::qos::Qos;

/// Bytes of the asker's id and the question's number.
const NUMBERS: usize = 16;

/// The type of questions or answers on their way.
pub(super) fn numbered(form: &Form) -> Result<TypeDescription> {
    let described = &form.description;
    let body = described.schema.as_deref().cloned().ok_or_else(|| {
        Failure::invalid(format!(
            "the type {} of a service has no structure: describe its fields, or give its .msg text",
            described.name
        ))
    })?;
    let field = |name: &str, schema| Field { name: name.to_owned(), schema };
    let fields = vec![field("asker", Schema::U64), field("number", Schema::U64), field("body", body)];
    let schema = Schema::Struct { name: "Numbered".to_owned(), fields };
    Ok(TypeDescription { name: "Numbered".to_owned(), hash: schema.hash(), schema: Some(schema.into()), ros: None })
}

/// A message with its numbers before it.
pub(super) fn with_numbers(asker: u64, number: u64, message: &[u8]) -> Result<Vec<u8>> {
    let order = u8::from(cfg!(target_endian = "little"));
    let [0, found, _, _, body @ ..] = message else {
        return Err(Failure::invalid(format!("expected CDR of version 1, which begins with 00 {order:02x} 00 00")));
    };
    if *found != order {
        return Err(Failure::invalid("the message of a service has the byte order of this machine"));
    }
    let most = Qos::default().max_message as usize;
    if message.len() + NUMBERS > most {
        let text = format!("a message of {} bytes is over those of a service, {} bytes", message.len(), most - NUMBERS);
        return Err(Failure::new(thalweg_status::THALWEG_TOO_LARGE, text));
    }
    let mut sent = Vec::with_capacity(message.len() + NUMBERS);
    sent.extend_from_slice(&message[..HEADER]);
    sent.extend_from_slice(&asker.to_ne_bytes());
    sent.extend_from_slice(&number.to_ne_bytes());
    sent.extend_from_slice(body);
    Ok(sent)
}

/// The numbers of a message, and the message without them; `None`: it is none of a service.
pub(super) fn without_numbers(sent: &[u8]) -> Option<(u64, u64, Vec<u8>)> {
    let (header, rest) = sent.split_first_chunk::<HEADER>()?;
    let (asker, rest) = rest.split_first_chunk::<8>()?;
    let (number, body) = rest.split_first_chunk::<8>()?;
    let number_of = |bytes: &[u8; 8]| match header {
        [0, 1, ..] => Some(u64::from_le_bytes(*bytes)),
        [0, 0, ..] => Some(u64::from_be_bytes(*bytes)),
        _ => None,
    };
    Some((number_of(asker)?, number_of(number)?, [header, body].concat()))
}
