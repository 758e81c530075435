//! `thalweg completions` and `thalweg man`: both are made of the arguments that the command takes, so that they are never out of date.

use crate::census;
use crate::failure::{Failure, Result};
use crate::output::line;
use crate::participant::{Common, Participant};
use clap::builder::Str;
use clap::{Arg, Args, Command};
use clap_complete::{Shell, generate};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The hidden verb by which a shell asks for topics and ports.
pub(crate) const NAMES: &str = "complete-names";

/// Print completions for a shell: verbs, options, and the topics and ports that are there
///
/// A word that begins with /, and the first word behind a verb such as sub or set, is completed by what runs now.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg completions bash >~/.local/share/bash-completion/completions/thalweg\n         \
                  thalweg completions zsh >~/.zfunc/_thalweg\n         \
                  thalweg completions fish >~/.config/fish/completions/thalweg.fish"
)]
pub(crate) struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Kind,
}

/// A shell for which there are completions.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// bash, with its package bash-completion or without
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// Write man pages, one for each verb
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg man ~/.local/share/man/man1")]
pub(crate) struct ManArguments {
    /// The folder for thalweg.1, thalweg-plan.1 and so on
    #[arg(value_name = "DIR")]
    into: PathBuf,
}

/// Names of topics and ports, for a shell.
#[derive(Args, Debug)]
pub(crate) struct NamesArguments {
    #[command(flatten)]
    common: Common,
}

/// Prints a script.
pub(crate) fn completions(arguments: &CompletionsArguments, command: &Command) -> Result {
    let (shell, live) = match arguments.shell {
        Kind::Bash => (Shell::Bash, BASH),
        Kind::Zsh => (Shell::Zsh, ZSH),
        Kind::Fish => (Shell::Fish, FISH),
    };
    let mut script = Vec::new();
    generate(shell, &mut shown(command), "thalweg", &mut script);
    let script = String::from_utf8_lossy(&script);
    // The generated end of the script for zsh registers, and calls, a function that knows no names.
    let script = script.split("\nif [ \"$funcstack[1]\"").next().unwrap_or_default();
    let live = live.replace("NAMES", NAMES).replace("VERBS", &verbs_of_names(command));
    line(&format!("{}\n{}", script.trim_end(), live.trim_end()))
}

/// The command without its hidden verbs, which nobody types.
fn shown(command: &Command) -> Command {
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("thalweg").version(env!("CARGO_PKG_VERSION")).subcommands(verbs)
}

/// The verbs whose first word is the name of a topic or a port.
fn verbs_of_names(command: &Command) -> String {
    let is_name = |value: &Str| ["TOPIC", "PORT", "/"].iter().any(|start| value.as_str().starts_with(start));
    let takes = |verb: &&Command| {
        let first = verb.get_positionals().next().and_then(Arg::get_value_names);
        first.is_some_and(|values| values.iter().any(is_name))
    };
    command.get_subcommands().filter(takes).map(Command::get_name).collect::<Vec<_>>().join(" ")
}

/// Words that begin with / are names. An empty word may be one where bash would offer options, which begin with - .
/// Names of a moment ago would mislead, so nothing is kept.
const BASH: &str = r#"
_thalweg_with_names() {
    _thalweg "$@"
    local word=${COMP_WORDS[COMP_CWORD]} names
    if [[ -z $word && " VERBS " == *" ${COMP_WORDS[1]} "* && " ${COMPREPLY[*]} " == *" --help "* ]]; then
        mapfile -t names < <(thalweg NAMES 2>/dev/null)
        (( ${#names[@]} )) && COMPREPLY=("${names[@]}")
    elif [[ $word == /* ]]; then
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "$(thalweg NAMES 2>/dev/null)" -- "$word")
    fi
}
complete -F _thalweg_with_names -o nosort -o bashdefault -o default thalweg
"#;
const ZSH: &str = r#"
_thalweg_names() {
    [[ $words[CURRENT] == /* || ( -z $words[CURRENT] && $words[CURRENT-1] != -* && " VERBS " == *" $words[2] "* ) ]] || return 1
    local -a names=(${(f)"$(thalweg NAMES 2>/dev/null)"})
    (( ${#names} )) && compadd -a names
}
_thalweg_with_names() {
    _thalweg_names || _thalweg "$@"
}
compdef _thalweg_with_names thalweg
[[ $funcstack[1] != _thalweg ]] || _thalweg_with_names "$@"
"#;
const FISH: &str = r#"
complete -c thalweg -n 'string match -q "/*" -- (commandline -ct)' -a '(thalweg NAMES 2>/dev/null)'
complete -c thalweg -f -n '__fish_seen_subcommand_from VERBS; and string match -q "" -- (commandline -ct)' -a '(thalweg NAMES 2>/dev/null)'
"#;

/// Prints topics and ports, one a line.
pub(crate) fn names(arguments: &NamesArguments) -> Result {
    let mut participant: Participant = arguments.common.open("complete")?;
    let nodes = participant.settled();
    let ports = census::ports(&nodes);
    let names: BTreeSet<&str> = ports.iter().flat_map(|port| [&port.info.name[..], &port.info.topic]).collect();
    // A name is part of a command line next: the shell must not take it for more.
    let plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/_-.~+@:".contains(&byte));
    names.into_iter().filter(plain).try_for_each(line)
}

/// Writes the pages.
pub(crate) fn man(arguments: &ManArguments, command: &Command) -> Result {
    let into = &arguments.into;
    std::fs::create_dir_all(into).map_err(|error| failed(into, &error))?;
    page(into, command, "thalweg")?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = format!("thalweg-{}", verb.get_name());
        page(into, &verb.clone().display_name(name.clone()), &name)?;
    }
    Ok(())
}

fn page(into: &Path, command: &Command, name: &str) -> Result {
    let file = into.join(format!("{name}.1"));
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name).render(&mut text)?;
    std::fs::write(&file, text).map_err(|error| failed(&file, &error))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::System(format!("{}: cannot be written: {error}", path.display()))
}
