//! The structure of a type.
use serde::{Deserialize, Serialize};
/// One named field of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub schema: Schema,
}
/// x
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schema {
    /// x
    Bool,
}
/// Name, hash and structure of a message type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeDescription {
    /// The type's name without its path. `*` takes any type.
    pub name: String,
    /// 64-bit FNV-1a of the canonical structure (or of the name where the structure is not known). 0 for `*`.
    pub hash: u64,
    /// The structure, where the codec knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
}
impl TypeDescription {
    /// x
    pub fn of<T: serde::de::DeserializeOwned + 'static>() -> Self {
        Self::opaque(std::any::type_name::<T>())
    }
    /// x
    pub fn opaque(name: &str) -> Self {
        Self { name: name.to_owned(), hash: 1, schema: None }
    }
    /// x
    pub fn any() -> Self {
        Self { name: "*".to_owned(), hash: 0, schema: None }
    }
    /// Whether a subscriber that asks for `self` can read what a publisher of `offered` sends.
    pub fn accepts(&self, offered: &TypeDescription) -> bool {
        self.name == "*" || (self.name == offered.name && self.hash == offered.hash)
    }
}
