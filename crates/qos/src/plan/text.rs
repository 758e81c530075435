//! The plan file: the same plan always gives the same text.

use super::Plan;

/// What stands above every plan.
const HEAD: &str =
    "# Made by `thalweg plan`; changes belong into the contract. Compare two of them with `thalweg plan --diff`.\n\n";

impl Plan {
    /// The plan as the text of a file: without what differs from one run to the next.
    pub fn to_text(&self) -> String {
        let mut plan = self.clone();
        plan.solver.ms = None;
        plan.channels.iter_mut().for_each(|channel| channel.derivation.clear());
        // All parts of a plan are tables with text keys, so there is nothing that cannot be written.
        toml::to_string(&plan).map(|text| format!("{HEAD}{text}")).unwrap_or_default()
    }

    /// Reads the text of a plan file.
    ///
    /// # Errors
    /// The line and what is wrong there.
    pub fn from_text(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
            format!("{line}: {}; allowed is what `thalweg plan -o` writes", e.message())
        })
    }
}
