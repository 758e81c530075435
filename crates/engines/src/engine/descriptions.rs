//! Descriptions of types by their names, for engines whose programs state no more of a type.

use crate::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use thalweg::codec::TypeDescription;

/// Finds the description of a type by its full name: `robot::Arm`, `std_msgs/msg/String`.
pub type Describe = Arc<dyn Fn(&str) -> Option<TypeDescription> + Send + Sync>;

/// Types that were looked up. Most are remembered, found or not.
const MOST_TYPES: usize = 4096;

/// Descriptions, each looked up once.
pub(crate) struct Descriptions {
    describe: Describe,
    found: Mutex<HashMap<String, Option<TypeDescription>>>,
}

impl Descriptions {
    pub(crate) fn new(describe: Describe) -> Self {
        Self { describe, found: Mutex::default() }
    }

    /// The description of the type of this full name, if there is one.
    pub(crate) fn of(&self, name: &str) -> Option<TypeDescription> {
        let mut found = lock(&self.found);
        if let Some(known) = found.get(name) {
            return known.clone();
        }
        let described = (self.describe)(name);
        if found.len() < MOST_TYPES {
            found.insert(name.to_owned(), described.clone());
        }
        described
    }
}
