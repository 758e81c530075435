//! A set of definitions, and the description of the types in it.

use super::error::IdlError;
use super::keys::keys;
use super::parse::read;
use super::structure::structure;
use super::tree::Tree;
use super::{MAX_TEXT, MAX_TEXTS};
use crate::codec::TypeDescription;

/// A set of definitions in OMG IDL 4.2: the texts of `.idl` files.
///
/// Read are modules, structs with inheritance, enums, typedefs, constants, and annotations (docs/types.md, "IDL"). Unions, bitmasks,
/// interfaces and the like are skipped: only types that contain one cannot be described. Lines of the preprocessor are skipped, so
/// an `#include` is not followed: add each file.
///
/// ```
/// use thalweg::codec::Idl;
///
/// let mut idl = Idl::new();
/// idl.add("robot.idl", "module robot { @final struct Arm { @key unsigned long id; sequence<double, 7> joints; }; };")?;
/// assert_eq!(idl.names().collect::<Vec<_>>(), ["robot::Arm"]);
/// assert_eq!(idl.keys("robot::Arm")?, ["id"]);
/// let arm = idl.describe("robot::Arm")?;
/// assert_eq!(arm.schema.expect("described").to_string(), "Arm{id:u32,joints:sequence<f64>}");
/// # Ok::<(), thalweg::codec::IdlError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Idl {
    tree: Tree,
    /// The length of all texts, and of what is kept of them.
    bytes: usize,
}

impl Idl {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the text of a file (OMG IDL 4.2, 7.4: building blocks core, extended data types and annotations). The file's name is
    /// for errors only. Types that it refers to may be added later; constants in sizes have to be added before (7.5.2). To add a
    /// definition again changes nothing.
    ///
    /// # Errors
    /// [`IdlError`] with the line of a mistake, a limit that is passed, or a definition that differs; the set is then as it was.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), IdlError> {
        if text.len() > MAX_TEXT {
            return Err(IdlError::Text { file: file.to_owned(), length: text.len() });
        }
        let (fresh, kept) = read(file, text, &self.tree, MAX_TEXTS.saturating_sub(self.bytes))?;
        self.tree.take(fresh)?;
        self.bytes += kept;
        Ok(())
    }

    /// Full names of the types that were added, such as `robot::msg::Arm`, sorted. Not each of them can be described.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tree.types.keys().map(String::as_str)
    }

    /// Describes a type by its full name. Its `ros` is none, also for a type of ROS 2: the type hash needs the `.msg` file
    /// ([`Definitions`](crate::codec::Definitions)).
    ///
    /// The schema is the structure of its bytes in CDR. Bounds do not show in them. A `char` has 8 bit, and an enum 32. The members of
    /// a base come first (DDS-XTypes 1.3, 7.2.2.4.5). An `@optional` member is an option as CDR of version 2 encodes it (7.4.3.5);
    /// in version 1 it would be a parameter, which Thalweg does not read.
    ///
    /// # Errors
    /// [`IdlError`] if a type is missing, contains itself, has more than 32 levels or 4096 parts, or has a part that a schema does not
    /// show: `wchar`, `wstring`, `long double`, `fixed`, `map`, `any`, a union, bitmask, bitset, native type, interface, valuetype,
    /// exception, a `@mutable` struct, or an enum with other values than 0, 1, 2 … or other than 32 bits.
    pub fn describe(&self, name: &str) -> Result<TypeDescription, IdlError> {
        let schema = structure(&self.tree, name)?;
        let short = name.rsplit("::").next().unwrap_or(name).to_owned();
        Ok(TypeDescription { name: short, hash: schema.hash(), schema: Some(schema.into()), ros: None })
    }

    /// The key of a type by its full name: dotted paths of its `@key` members, as QoS `key` takes them (DDS-XTypes 1.3,
    /// 7.2.2.4.4.4.8). Of a `@key` member that is a struct, its own key members count, or if it has none, all its members. A type
    /// without `@key` has no paths.
    ///
    /// DDS allows arrays and sequences as keys. Their paths are here, too, but QoS `key` refuses them.
    ///
    /// # Errors
    /// As [`describe`](Self::describe).
    pub fn keys(&self, name: &str) -> Result<Vec<String>, IdlError> {
        keys(&self.tree, name)
    }
}
