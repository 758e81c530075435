//! The delay models, by name.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The model by which delays are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// One period for each node that sends a sample on (P-20, P-21).
    PaperHop,
    /// Velox, as its Table 2 is computed: 1/λ and 1/μ once (V-31).
    VeloxTable2,
    /// Velox, as its eq. 4 is printed: 1/λ and 1/μ at both ends (V-33, E-V4).
    VeloxEq4Literal,
    /// Velox with the time in an M/M/1 queue instead of 1/λ and 1/μ (V-22, V-33).
    Mm1,
    /// The same with room for a number of messages, and losses (V-10).
    Mm1k,
    /// Network calculus for links; nothing for processors.
    Nc,
    /// Response times of threads; nothing but transmission for links.
    Rta,
    /// Bounds of processors and links together.
    #[default]
    Bound,
}

/// Names of the models: those that are shown are those that are read.
macro_rules! names {
    ($($model:ident = $name:literal),+ $(,)?) => {
        /// All of them.
        pub const ALL: [Self; [$($name),+].len()] = [$(Model::$model),+];

        /// Its name.
        pub const fn name(self) -> &'static str {
            match self { $(Model::$model => $name),+ }
        }
    };
}

impl Model {
    names! {
        PaperHop = "paper-hop",
        VeloxTable2 = "velox-table2",
        VeloxEq4Literal = "velox-eq4-literal",
        Mm1 = "mm1",
        Mm1k = "mm1k",
        Nc = "nc",
        Rta = "rta",
        Bound = "bound",
    }

    /// `true` if it gives means, not the latest arrival of a sample.
    pub const fn is_mean(self) -> bool {
        match self {
            Model::VeloxTable2 | Model::VeloxEq4Literal | Model::Mm1 | Model::Mm1k => true,
            Model::PaperHop | Model::Nc | Model::Rta | Model::Bound => false,
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Model {
    type Err = ModelError;
    fn from_str(text: &str) -> Result<Self, ModelError> {
        Self::ALL.into_iter().find(|model| model.name() == text).ok_or(ModelError)
    }
}

/// Text that names no delay model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError;

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "allowed is {}", Model::ALL.map(Model::name).join(", "))
    }
}

impl std::error::Error for ModelError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for model in Model::ALL {
            assert_eq!(model.to_string().parse(), Ok(model));
            assert_eq!(serde_json::to_string(&model).unwrap(), format!("\"{model}\""));
        }
        assert!(
            "best"
                .parse::<Model>()
                .unwrap_err()
                .to_string()
                .contains("paper-hop, velox-table2, velox-eq4-literal, mm1")
        );
    }
}
