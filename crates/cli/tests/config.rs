//! `thalweg config`: flag before environment before file before default, and the table in docs/configuration.md.
#![allow(clippy::unwrap_used)]

use crate::support::Testbed;
use serde_json::{Value, json};
use thalweg::config::SETTINGS;

/// One setting, as a command line and an environment make it.
fn setting(house: &Testbed, arguments: &str, variables: &[(&str, &str)]) -> Value {
    let mut command = house.command(&format!("config --json {arguments}"));
    command.env("THALWEG_CONFIG", house.path("config.toml")).envs(variables.iter().copied());
    let done = crate::support::Running::start(command).finish();
    let shown = done.json();
    json!([shown["value"], shown["origin"], shown["at"]])
}

#[test]
fn a_flag_counts_more_than_the_environment_and_that_more_than_the_file() {
    let house = Testbed::new();
    let file = house.path("config.toml");
    std::fs::write(&file, "realm = \"robot\"\nlisten = [\"127.0.0.1\", \"::1\"]\n").unwrap();
    let environment = [("THALWEG_REALM", "arm")];
    assert_eq!(setting(&house, "realm --realm lab", &environment), json!(["lab", "flag", "--realm"]));
    assert_eq!(setting(&house, "realm", &environment), json!(["arm", "environment", "THALWEG_REALM"]));
    assert_eq!(setting(&house, "realm", &[]), json!(["robot", "file", format!("{}:1", file.display())]));
    let listen = json!(["127.0.0.1,::1", "file", format!("{}:2", file.display())]);
    assert_eq!(setting(&house, "listen", &[]), listen);
    assert_eq!(setting(&house, "channels", &[]), json!(["64", "default", null]));
    assert_eq!(setting(&house, "peer", &[]), json!([null, "default", null]));
    let run = house.path("run").display().to_string();
    assert_eq!(setting(&house, "run-dir", &[]), json!([run, "environment", "THALWEG_RUN_DIR"]));
}

#[test]
fn a_value_that_is_not_allowed_is_refused_with_its_origin() {
    let house = Testbed::new();
    let file = house.path("config.toml");
    std::fs::write(&file, "memory = \"much\"\n").unwrap();
    let refused = |arguments: &[&str], variables: &[(&str, &str)], says: &str| {
        let mut command = house.command("config");
        command.args(arguments).envs(variables.iter().copied());
        let done = crate::support::Running::start(command).finish();
        assert_eq!((done.code(), done.lines.len()), (2, 0), "{arguments:?}: {}", done.errors);
        assert!(done.errors.contains(says), "{arguments:?}: {}", done.errors);
    };
    refused(&["--realm", "a b"], &[], "--realm: realm: \"a b\": ");
    refused(&["realm"], &[("THALWEG_REALM", "a b")], "THALWEG_REALM: realm: \"a b\": ");
    let in_file = [("THALWEG_CONFIG", file.to_str().unwrap())];
    refused(&["--json"], &in_file, &format!("{}:1: memory: \"much\": ", file.display()));
    let overridden = [in_file[0], ("THALWEG_MEMORY", "64MiB")];
    let mut command = house.command("config memory --json");
    command.envs(overridden);
    let done = crate::support::Running::start(command).finish();
    assert_eq!(done.code(), 0, "what does not count is not refused: {}", done.errors);
}

#[test]
fn all_settings_are_shown_with_units_ranges_and_effects() {
    let house = Testbed::new();
    let all = house.run("config --json").json();
    let names: Vec<&str> = all.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, SETTINGS.map(|setting| setting.name));
    let text = house.run("config").lines.join("\n");
    for part in ["setting", "origin", "allowed", "effect", "admin-from", "environment THALWEG_RUN_DIR", "\n\nfile: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let one = house.run("config memory").lines.join("\n");
    assert!(one.starts_with("memory: ") && one.contains("THALWEG_MEMORY") && one.contains("1GiB"), "{one}");
    let unknown = house.run("config relam");
    assert_eq!(unknown.code(), 2);
    assert!(
        unknown.errors.contains("the nearest is realm") && unknown.errors.contains("admin-from"),
        "{}",
        unknown.errors
    );
}

/// Nodes take the settings, not only the command that shows them.
#[test]
fn nodes_meet_in_the_realm_of_the_file() {
    let house = Testbed::new();
    let file = house.path("config.toml");
    std::fs::write(&file, "realm = \"robot\"\n").unwrap();
    let configured = |arguments: &str| {
        let mut command = house.command(arguments);
        command.env("THALWEG_CONFIG", &file);
        crate::support::Running::start(command)
    };
    let _talker = configured("pub /a --port /out --rate 10");
    let seen = configured("sub /a --count 1").finish();
    assert_eq!((seen.code(), seen.lines.is_empty()), (0, false), "{}", seen.errors);
    let robots = house.run("list ports --json --realm robot").json();
    assert!(robots["ports"].to_string().contains("/out"), "{robots}");
    assert_eq!(house.run("list ports --json").json()["ports"], json!([]));
    assert_eq!(configured("list ports --json --realm default").finish().json()["ports"], json!([]));
}

#[test]
fn every_verb_refuses_a_wrong_file_with_its_line() {
    let house = Testbed::new();
    let file = house.path("config.toml");
    std::fs::write(&file, "realm = \"a\"\nlistn = \"10.0.0.1\"\n").unwrap();
    for verb in ["config", "list", "doctor"] {
        let mut command = house.command(verb);
        command.env("THALWEG_CONFIG", &file);
        let done = crate::support::Running::start(command).finish();
        assert_eq!(done.code(), 2, "{verb}: {}", done.errors);
        let says = format!("{}:2: ", file.display());
        assert!(done.errors.contains(&says) && done.errors.contains("the nearest is listen"), "{}", done.errors);
    }
}

#[test]
fn the_page_has_the_table_of_the_code() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md")).unwrap();
    let (_, table) =
        page.split_once("| setting | default | unit | allowed | effect |\n|---|---|---|---|---|\n").unwrap();
    let told: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    let rows = SETTINGS.map(|setting| {
        let unit = if setting.unit.is_empty() { "-" } else { setting.unit };
        format!("| `{}` | {} | {unit} | {} | {} |", setting.name, setting.default, setting.allowed, setting.about)
    });
    assert_eq!(told, rows);
}
