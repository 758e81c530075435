//! CDR bytes of a known structure as JSON.
use super::{CodecError, Schema};
/// x
pub fn to_json(_schema: &Schema, bytes: &[u8]) -> Result<serde_json::Value, CodecError> {
    serde_json::from_slice(bytes).map_err(|e| CodecError { offset: 0, problem: e.to_string() })
}
