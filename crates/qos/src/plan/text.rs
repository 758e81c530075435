//! The plan file: the same plan always gives the same text.

use super::{Plan, PlanError};

/// The head of every plan.
const HEAD: &str =
    "# Made by `thalweg plan`; changes belong into the contract. Compare two of them with `thalweg plan --diff`.\n\n";

impl Plan {
    /// The plan as the text of a file, without values that differ from one run to the next.
    pub fn to_text(&self) -> String {
        let mut plan = self.clone();
        plan.solver.ms = None;
        for channel in &mut plan.channels {
            channel.derivation.clear();
            channel.also.clear();
        }
        // All parts of a plan are tables with text keys, so there is nothing that cannot be written.
        toml::to_string(&plan).map(|text| format!("{HEAD}{text}")).unwrap_or_default()
    }

    /// Reads the text of a plan file.
    ///
    /// # Errors
    /// [`PlanError::File`] with the line and the error there.
    pub fn from_text(text: &str) -> Result<Self, PlanError> {
        toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
            PlanError::File { line, problem: e.message().to_owned() }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Channel, Model, Term};
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let mut plan = Plan { model: Model::Mm1, feasible: true, objective_value: Some(0.1 + 0.2), ..Plan::default() };
        plan.channels.push(Channel { topic: "a \"b\"\n".into(), bound_us: Some(1e-7), ..Channel::default() });
        plan.channels[0].terms.insert("link a".into(), 83.42);
        let text = plan.to_text();
        assert!(text.starts_with("# Made by `thalweg plan`"), "{text}");
        assert_eq!(Plan::from_text(&text), Ok(plan.clone()));
        plan.solver.ms = Some(3.0);
        plan.channels[0].derivation.push(Term::new("link a", 83.42, "L"));
        assert_eq!(plan.to_text(), text, "what differs between runs is not in it");
    }

    #[test]
    fn an_invalid_plan_is_reported() {
        assert!(Plan::from_text("").unwrap_err().to_string().starts_with("1: missing field"));
        assert!(Plan::from_text("feasible = 3").unwrap_err().to_string().starts_with("1: "));
    }
}
