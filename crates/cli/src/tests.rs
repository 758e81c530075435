//! Commands in the documents, by the parser of the command itself: verbs, options and values are those that it takes.

use super::{Arguments, admin};
use clap::Parser;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Verbs, or a verb with its first argument, that only some builds have.
const OPTIONAL: [(&str, bool); 22] = [
    ("agent", cfg!(feature = "sessions")),
    ("audit", cfg!(feature = "sessions")),
    ("bench dashboard", cfg!(all(feature = "dashboard", feature = "recording"))),
    ("bench recording", cfg!(all(feature = "dashboard", feature = "recording"))),
    ("bench replay", cfg!(all(feature = "dashboard", feature = "recording"))),
    ("bridge", cfg!(feature = "bridge")),
    ("bridge dds", cfg!(feature = "rtps")),
    ("bridge mqtt", cfg!(feature = "mqtt")),
    ("bridge ros2", cfg!(feature = "zenoh")),
    ("bridge yarp", cfg!(feature = "yarp")),
    ("bridge zenoh", cfg!(feature = "zenoh")),
    ("bridge zeromq", cfg!(feature = "zeromq")),
    ("broker", cfg!(feature = "sessions")),
    ("completions", cfg!(feature = "shell")),
    ("dashboard", cfg!(feature = "foxglove")),
    ("hosts", cfg!(feature = "sessions")),
    ("keys", cfg!(feature = "sessions")),
    ("links", cfg!(feature = "sessions")),
    ("man", cfg!(feature = "shell")),
    ("play", cfg!(feature = "recording")),
    ("record", cfg!(feature = "recording")),
    ("session", cfg!(feature = "sessions")),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md, CONTRIBUTING.md and the pages.
fn documents() -> Vec<PathBuf> {
    let of = |folder: &str| std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let pages = of("docs").chain(of("docs/decisions")).filter(|path| path.extension().is_some_and(|end| end == "md"));
    ["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)).into_iter().chain(pages).collect()
}

/// The lines of a document's shell blocks, and those behind a prompt in its other blocks, with their numbers.
fn shell_lines(text: &str) -> Vec<(usize, &str)> {
    let (mut lines, mut block) = (Vec::new(), None);
    for (number, line) in text.lines().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            block = block.is_none().then_some(language);
        } else if let Some(language) = block {
            let prompted = line.strip_prefix("$ ");
            lines.extend(prompted.or((language == "sh").then_some(line)).map(|line| (number + 1, line)));
        }
    }
    lines
}

/// The commands of a shell's line, each as its words.
fn commands(line: &str) -> Vec<Vec<String>> {
    let (mut all, mut words, mut word, mut quote) = (Vec::new(), Vec::new(), None::<String>, None);
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.get_or_insert_default().push(c),
            None if matches!(c, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c == '#' && word.is_none() => break,
            None if matches!(c, '|' | '&' | ';') => {
                words.extend(word.take());
                all.push(std::mem::take(&mut words));
            }
            None if c.is_whitespace() => words.extend(word.take()),
            None => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    all.push(words);
    all
}

/// The arguments of a command if it is `thalweg`, from cargo or by its path, too; without redirections and assignments.
fn arguments(words: &[String]) -> Option<Vec<String>> {
    let is_redirection = |word: &String| word.trim_start_matches('2').starts_with(['>', '<']);
    let end = words.iter().position(is_redirection).unwrap_or(words.len());
    let is_assignment = |word: &&String| {
        word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_uppercase() || c == '_'))
    };
    let words: Vec<&String> = words[..end].iter().skip_while(is_assignment).collect();
    let first = words.first()?;
    let begin = match first.as_str() {
        "cargo" if words.windows(2).any(|pair| *pair[0] == "--bin" && *pair[1] == "thalweg") => {
            words.iter().position(|word| *word == "--")? + 1
        }
        program if program.rsplit('/').next() == Some("thalweg") => 1,
        _ => return None,
    };
    Some(words[begin..].iter().map(|word| (*word).clone()).collect())
}

/// The error of the parser, if there is one. What only other builds have is right here.
fn refused(arguments: &[String]) -> Option<String> {
    let two = arguments.iter().take(2).map(String::as_str).collect::<Vec<_>>().join(" ");
    let verb = arguments.first().map(String::as_str).unwrap_or_default();
    let missing = OPTIONAL.iter().any(|(name, built)| !built && (*name == verb || *name == two));
    let of_a_domain = matches!(verb, "apply" | "restore") && arguments.iter().any(|word| word == "--all");
    // Three dots stand for words that the line leaves out.
    if missing || of_a_domain && !cfg!(feature = "sessions") || arguments.iter().any(|word| word == "…") {
        return None;
    }
    let words = ["thalweg"].into_iter().chain(arguments.iter().map(String::as_str)).map(OsString::from);
    let error = Arguments::try_parse_from(admin::without_options(words)).err()?;
    (error.exit_code() != 0).then(|| error.to_string())
}

#[test]
fn commands_in_the_documents_are_taken() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for (number, line) in shell_lines(&text) {
            for arguments in commands(line).iter().filter_map(|words| arguments(words)) {
                seen += 1;
                let at = || format!("{}:{number}: {line}", document.display());
                wrong.extend(refused(&arguments).map(|why| format!("{}\n{why}", at())));
            }
        }
    }
    assert!(seen > 100, "only {seen} commands found: are the blocks still marked sh?");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_line_of_a_shell_is_taken_apart() {
    let line = "echo 'a | b' | target/release/thalweg pub /x --stdin > file & A_B=1 thalweg sub \"/y\" # thalweg no";
    let found: Vec<Vec<String>> = commands(line).iter().filter_map(|words| arguments(words)).collect();
    assert_eq!(found, [vec!["pub", "/x", "--stdin"], vec!["sub", "/y"]]);
    assert!(refused(&["sub".to_owned(), "--no-such-option".to_owned()]).is_some());
}
