//! `thalweg completions` and `thalweg man`: both are made of the arguments that the command takes, so that they are never out of date.

use crate::census;
use crate::failure::{Failure, Result};
use crate::output::line;
use crate::participant::{Common, Participant};
use clap::{Args, Command};
use clap_complete::{Shell, generate};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The hidden verb by which a shell asks for topics and ports.
pub(crate) const NAMES: &str = "complete-names";

/// Print completions for a shell: verbs, options, and the topics and ports that are there
///
/// A word that begins with / is completed by what runs now.
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
pub(crate) fn completions(arguments: &CompletionsArguments, mut command: Command) -> Result {
    let (shell, live) = match arguments.shell {
        Kind::Bash => (Shell::Bash, BASH),
        Kind::Zsh => (Shell::Zsh, ZSH),
        Kind::Fish => (Shell::Fish, FISH),
    };
    let mut script = Vec::new();
    generate(shell, &mut command, "thalweg", &mut script);
    line(&format!("{}\n{}", String::from_utf8_lossy(&script).trim_end(), live.replace("NAMES", NAMES).trim_end()))
}

/// Words that begin with / are names. Those of a moment ago would mislead, so nothing is kept.
const BASH: &str = r#"
_thalweg_with_names() {
    _thalweg "$@"
    local word=${COMP_WORDS[COMP_CWORD]}
    if [[ $word == /* ]]; then
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "$(thalweg NAMES 2>/dev/null)" -- "$word")
    fi
}
complete -F _thalweg_with_names -o nosort -o bashdefault -o default thalweg
"#;
const ZSH: &str = r#"
_thalweg_with_names() {
    if [[ ${words[CURRENT]} == /* ]]; then
        local -a names=(${(f)"$(thalweg NAMES 2>/dev/null)"})
        (( ${#names} )) && compadd -a names && return
    fi
    _thalweg "$@"
}
compdef _thalweg_with_names thalweg
"#;
const FISH: &str = r#"
complete -c thalweg -n 'string match -q "/*" -- (commandline -ct)' -a '(thalweg NAMES 2>/dev/null)'
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
