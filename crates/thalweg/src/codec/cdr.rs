//! CDR.
use super::CodecError;
/// x
pub fn to_cdr<T: serde::Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CodecError> {
    let mut v = Vec::new();
    to_cdr_into(value, &mut v)?;
    Ok(v)
}
/// x
pub fn to_cdr_into<T: serde::Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
    serde_json::to_writer(out, value).map_err(|e| CodecError { offset: 0, problem: e.to_string() })
}
/// x
pub fn from_cdr<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    serde_json::from_slice(bytes).map_err(|e| CodecError { offset: 0, problem: e.to_string() })
}
