use super::*;
use crate::Settings;
use crate::testing::TempDir;
use std::collections::HashMap;

/// What a program would read in an environment.
fn read(variables: &[(&str, &Path)]) -> Result<Configuration> {
    let variables: HashMap<&str, OsString> =
        variables.iter().map(|(name, value)| (*name, OsString::from(value))).collect();
    Configuration::of_environment(&|name| variables.get(name).cloned())
}

/// A file with this text, and what is read of it.
fn of_file(dir: &TempDir, text: &str) -> Result<Configuration> {
    let file = dir.path().join("config.toml");
    std::fs::write(&file, text).unwrap();
    read(&[("THALWEG_CONFIG", &file)])
}

fn refused(text: &str) -> String {
    let dir = TempDir::new();
    let found = of_file(&dir, text).and_then(|given| Settings::of(&given).map(drop));
    let told = found.expect_err(text).to_string();
    assert!(told.starts_with(dir.path().to_str().unwrap()), "{told}");
    told.replace(dir.path().to_str().unwrap(), "")
}

#[test]
fn the_environment_counts_more_than_the_file_and_the_file_more_than_the_default() {
    let dir = TempDir::new();
    let file = dir.path().join("thalweg/config.toml");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "# of the robot\nrealm = \"robot\"\nlisten = [\"10.0.0.1\", \"::1\"]\nchannels = 9\n")
        .unwrap();
    let given = read(&[("XDG_CONFIG_HOME", dir.path()), ("THALWEG_REALM", Path::new("arm"))]).unwrap();
    assert_eq!(given.file.as_deref(), Some(&*file));
    assert_eq!(given.get("realm").unwrap().source, Source::Environment("THALWEG_REALM".into()));
    assert_eq!(given.get("listen").unwrap().source, Source::File(file, 3));
    assert!(given.get("memory").is_none());
    let settings = Settings::of(&given).unwrap();
    assert_eq!((settings.realm.as_str(), settings.limits.channels, settings.limits.pictures), ("arm", 9, 4));
    assert_eq!(settings.listen.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.0.0.1:0", "[::1]:0"]);
}

#[test]
fn an_empty_variable_is_none_and_home_stands_in_for_the_directory() {
    let dir = TempDir::new();
    let own = dir.path().join(".config/thalweg");
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("config.toml"), "memory = \"2 MiB\"\nlock-memory = false\n").unwrap();
    let none = Path::new("");
    let given = read(&[("HOME", dir.path()), ("XDG_CONFIG_HOME", none), ("THALWEG_MEMORY", none)]).unwrap();
    assert_eq!(Settings::of(&given).unwrap().memory, 2 << 20);
}

#[test]
fn a_wrong_file_is_refused_with_its_line() {
    for (text, says) in [
        ("realm = \"a\"\nrelam = \"b\"\n", "/config.toml:2: no setting has the name \"relam\"; the nearest is realm"),
        ("admin_from = []\n", "the nearest is admin-from"),
        ("\nrealm = 'a/b'", "/config.toml:2: realm: \"a/b\": realm \"a/b\": allowed are 1 to 32 letters"),
        ("listen = \"here\"", "/config.toml:1: listen: \"here\": an IP address of this host"),
        ("peer = [\"10.0.0.1\", \"there\"]", "an address of a node or router"),
        ("channels = 9.5", "/config.toml:1: channels: its value has to be a text, a whole number, "),
        ("channels = 0", "/config.toml:1: channels: \"0\": 1 to 4294967295"),
        ("memory = \"much\"", "memory: \"much\": "),
        ("lock-memory = 1", "lock-memory: \"1\": true or false"),
        ("discovery = \"dns\"", "discovery: \"dns\": static:FILE"),
        ("run-dir = \"run\"", "/config.toml:1: run-dir: \"run\" is a relative path"),
        ("realm = { name = \"a\" }", "its value has to be a text"),
        ("realm = \"a\"\nrealm = \"b\"\n", "/config.toml:2: "),
        ("realm = ", "/config.toml:1: "),
    ] {
        let told = refused(text);
        assert!(told.contains(says), "{text}: {told}");
    }
}

#[test]
fn a_file_that_was_named_has_to_be_there_and_others_not() {
    let dir = TempDir::new();
    let told = read(&[("THALWEG_CONFIG", &dir.path().join("none"))]).unwrap_err().to_string();
    assert!(told.contains("there is no such file") && told.contains("unset THALWEG_CONFIG"), "{told}");
    let told = read(&[("THALWEG_CONFIG", dir.path())]).unwrap_err().to_string();
    assert!(told.contains("no regular file"), "{told}");
    std::fs::write(dir.path().join("big"), "#".repeat(65_537)).unwrap();
    let told = read(&[("THALWEG_CONFIG", &dir.path().join("big"))]).unwrap_err().to_string();
    assert!(told.contains("65537 bytes, allowed are 65536"), "{told}");
    assert!(file::candidates(&|_| None).0 == [PathBuf::from("/etc/thalweg/config.toml")]);
}

#[test]
fn a_wrong_variable_is_named() {
    let none = TempDir::new();
    let given =
        read(&[("XDG_CONFIG_HOME", none.path()), ("THALWEG_ADMIN_FROM", Path::new("10.0.0.0/8, there"))]).unwrap();
    let told = Settings::of(&given).unwrap_err().to_string();
    assert!(told.starts_with("THALWEG_ADMIN_FROM: admin-from: "), "{told}");
}

/// The defaults in the table are those of the code.
#[test]
fn the_table_tells_the_defaults() {
    let given = |name: &'static str| {
        let text = Setting::named(name).unwrap().default.to_owned();
        (name, Given { text, source: Source::Environment(String::new()) })
    };
    let told = ["realm", "memory", "lock-memory", "channels", "pictures"].map(given);
    let told = Settings::of(&Configuration { file: None, given: told.into() }).unwrap();
    let built_in = Settings::of(&Configuration::default()).unwrap();
    assert_eq!((told.realm, told.memory, told.limits), (built_in.realm, built_in.memory, built_in.limits));
    assert_eq!(told.lock_memory, built_in.lock_memory);
    assert!(built_in.listen.is_empty() && built_in.peers.is_empty() && built_in.admin_from.is_empty());
}

#[test]
fn a_flag_counts_more_and_is_named_if_it_is_wrong() {
    let dir = TempDir::new();
    let given = || of_file(&dir, "realm = \"robot\"\nchannels = 9\n").unwrap();
    let right = Settings::of(&given().overridden([("realm", "arm".to_owned())])).unwrap();
    assert_eq!((right.realm.as_str(), right.limits.channels), ("arm", 9));
    let wrong = Settings::of(&given().overridden([("realm", "a b".to_owned())])).unwrap_err().to_string();
    assert!(wrong.starts_with("--realm: realm: \"a b\": "), "{wrong}");
}

#[test]
fn the_nearest_name_takes_the_fewest_changes() {
    for (written, nearest) in [("runn-dir", "run-dir"), ("peers", "peer"), ("lock_memory", "lock-memory")] {
        let told = Setting::named(written).unwrap_err().to_string();
        assert!(told.contains(&format!("nearest is {nearest},")), "{told}");
    }
    let told = Setting::named("colour").unwrap_err().to_string();
    assert!(told.contains("no setting has the name \"colour\"; all are realm, "), "{told}");
}
