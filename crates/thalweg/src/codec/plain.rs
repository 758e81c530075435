//! Plain-old-data structs.
use super::{CodecError, Decoded, Message, TypeDescription};
use std::marker::PhantomData;
use std::sync::Arc;
/// x
pub struct Plain<T>(PhantomData<T>);
impl<T: bytemuck::Pod + Send> Message for Plain<T> {
    type Value = T;
    type Owned = T;
    fn description() -> Arc<TypeDescription> {
        Arc::new(TypeDescription::opaque(std::any::type_name::<T>()))
    }
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(bytemuck::bytes_of(value));
        Ok(())
    }
    fn as_bytes(value: &T) -> Option<&[u8]> {
        Some(bytemuck::bytes_of(value))
    }
    fn decode(bytes: &[u8]) -> Result<Decoded<'_, Self>, CodecError> {
        match bytemuck::try_from_bytes(bytes) {
            Ok(v) => Ok(Decoded::Borrowed(v)),
            Err(_) => bytemuck::try_pod_read_unaligned(bytes)
                .map(Decoded::Owned)
                .map_err(|e| CodecError { offset: 0, problem: e.to_string() }),
        }
    }
}
