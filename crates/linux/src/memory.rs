//! stub
/// stub
pub struct Borrowed(Vec<u8>);
impl std::ops::Deref for Borrowed {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
