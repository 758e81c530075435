//! `thalweg completions` in real shells, and `thalweg man`.
#![allow(clippy::unwrap_used)]

use crate::support::Testbed;
use std::process::Command;

/// `PATH` with the command first.
fn path() -> String {
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_thalweg")).parent().unwrap();
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
}

/// What bash offers for the last word of a line.
fn offered(house: &Testbed, words: &[&str]) -> Vec<String> {
    let script = house.path("thalweg.bash");
    std::fs::write(&script, house.run("completions bash").lines.join("\n")).unwrap();
    let last = words.len() - 1;
    let complete = "source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_LINE=\"$*\"; \
                    _thalweg_with_names thalweg \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", complete]).arg(&script).args(words).env("PATH", path());
    let output = command.env("THALWEG_RUN_DIR", house.path("run")).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {errors}", words[last]);
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_verbs_options_and_live_names() {
    let house = Testbed::new();
    assert!(offered(&house, &["thalweg", "ver"]).contains(&"verify".to_owned()));
    assert!(offered(&house, &["thalweg", "conf"]).contains(&"config".to_owned()));
    assert!(offered(&house, &["thalweg", "new", "py"]).contains(&"python".to_owned()));
    assert!(offered(&house, &["thalweg", "sub", "--lat"]).contains(&"--latency".to_owned()));
    let _talker = house.start("pub /robot/arm --port /arm/out --rate 10");
    house.wait_for_list("ports", |list| list.to_string().contains("/arm/out"));
    assert_eq!(offered(&house, &["thalweg", "sub", "/rob"]), ["/robot/arm"]);
    assert_eq!(offered(&house, &["thalweg", "set", "/arm"]), ["/arm/out"]);
    for line in [["thalweg", "sub", ""], ["thalweg", "set", ""]] {
        assert_eq!(offered(&house, &line), ["/arm/out", "/robot/arm"], "{line:?}: the first word is a name");
    }
    assert!(
        offered(&house, &["thalweg", "sub", "--carrier", ""]).contains(&"shm".to_owned()),
        "the value of an option"
    );
    let classes = ["low", "normal", "high", "critical"];
    assert_eq!(offered(&house, &["thalweg", "pub", "/a", "--class", ""]), classes, "no files");
    assert_eq!(offered(&house, &["thalweg", "com"]), ["completions"], "hidden verbs are not offered");
}

#[test]
fn fish_completes_live_names() {
    if Command::new("fish").arg("--version").output().is_err() {
        println!("skipped: fish_completes_live_names: because fish is not installed");
        return;
    }
    let house = Testbed::new();
    let script = house.path("thalweg.fish");
    std::fs::write(&script, house.run("completions fish").lines.join("\n")).unwrap();
    let _talker = house.start("pub /robot/arm --port /arm/out --rate 10");
    house.wait_for_list("ports", |list| list.to_string().contains("/arm/out"));
    for (line, names) in [("thalweg sub ", "/arm/out\n/robot/arm\n"), ("thalweg record x.mcap /rob", "/robot/arm\n")] {
        let mut command = Command::new("fish");
        command.args(["--no-config", "-c", &format!("source {}; complete -C '{line}'", script.display())]);
        let output = command.env("PATH", path()).env("THALWEG_RUN_DIR", house.path("run")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), names, "{line}: {output:?}");
    }
}

#[test]
fn each_shell_gets_a_script_without_syntax_errors() {
    let house = Testbed::new();
    for (shell, option) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let done = house.run(&format!("completions {shell}"));
        assert_eq!(done.code(), 0, "{}", done.errors);
        let script = house.path(shell);
        std::fs::write(&script, done.lines.join("\n")).unwrap();
        // Those that are not installed here are only printed: the scripts of verbs and options are a library's.
        if let Ok(output) = Command::new(shell).arg(option).arg(&script).output() {
            assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn each_verb_has_a_man_page() {
    let house = Testbed::new();
    let folder = house.path("man1");
    let done = house.run(&format!("man {}", folder.display()));
    assert_eq!(done.code(), 0, "{}", done.errors);
    let of = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(of("thalweg.1").contains("thalweg\\-plan") && of("thalweg.1").starts_with(".ie"));
    assert!(of("thalweg-plan.1").contains("CONTRACT") || of("thalweg-plan.1").contains("FILE"));
    assert!(of("thalweg-config.1").contains("THALWEG_CONFIG") && of("thalweg-new.1").contains("python"));
    assert!(!folder.join("thalweg-lab-part.1").exists(), "hidden verbs have none");
}
