//! `thalweg --help`: the verbs by task.

use clap::Command;

/// Tasks, and their verbs. A verb that this build lacks is not shown. README.md has the same table.
const TASKS: [(&str, &[&str]); 7] = [
    ("Talk", &["pub", "sub", "pull", "connect", "disconnect", "set", "get", "admin", "qos", "sched"]),
    ("Look", &["list", "info", "hz", "bw", "delay", "top", "dashboard", "why", "doctor"]),
    ("Plan and admit", &["plan", "verify", "session", "links", "audit"]),
    ("Hosts", &["apply", "restore", "broker", "agent", "hosts", "keys", "router", "relay"]),
    ("Record and compare", &["demo", "record", "play", "bench", "lab"]),
    ("Other middlewares", &["bridge"]),
    ("Shell", &["config", "new", "completions", "man"]),
];

/// The command with a help that shows its verbs by task: clap has headings for options only.
pub(crate) fn by_task(command: Command) -> Command {
    let tasks: String = TASKS.iter().map(|(task, verbs)| section(&command, task, verbs)).collect();
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{tasks}\nOptions:\n{{options}}{{after-help}}"
    ))
}

fn section(command: &Command, task: &str, verbs: &[&str]) -> String {
    let line = |name: &&str| {
        let about = command.find_subcommand(name)?.get_about().map(ToString::to_string).unwrap_or_default();
        Some(format!("  {name:<WIDTH$}{about}\n"))
    };
    match verbs.iter().filter_map(line).collect::<String>() {
        none if none.is_empty() => none,
        lines => format!("\n{task}:\n{lines}"),
    }
}

/// Columns for the name of a verb.
const WIDTH: usize = 14;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arguments;
    use clap::CommandFactory;

    #[test]
    fn each_verb_has_one_task() {
        let all: Vec<&str> = TASKS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        for verb in Arguments::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let times = all.iter().filter(|name| **name == verb.get_name()).count();
            assert_eq!(times, 1, "{}", verb.get_name());
            assert!(verb.get_about().is_some(), "{}: no line of help", verb.get_name());
            assert!(verb.get_name().len() < WIDTH, "{}", verb.get_name());
        }
        let rendered = by_task(Arguments::command()).render_help().to_string();
        assert!(rendered.contains("\nTalk:\n  pub           "), "{rendered}");
    }
}
