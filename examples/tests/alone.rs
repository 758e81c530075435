//! What each language does by itself: priorities, sessions, and a type that does not fit.

use crate::programs::Language;
use crate::world::World;

/// A test for each language.
macro_rules! languages {
    ($($check:ident)*) => {$(
        mod $check {
            use crate::programs::Language;
            #[test]
            fn rust() {
                super::$check(Language::Rust);
            }
            #[test]
            fn c() {
                super::$check(Language::C);
            }
            #[test]
            fn cpp() {
                super::$check(Language::Cpp);
            }
            #[test]
            fn python() {
                super::$check(Language::Python);
            }
        }
    )*};
}

languages! { priorities_are_set sessions_are_joined wrong_types_are_refused }

fn priorities_are_set(language: Language) {
    if !language.runs("set_priority") {
        return;
    }
    let world = World::new();
    let mut listener = world.start(language, "listener", &[]);
    let _talker = world.start(language, "talker", &[]);
    listener.line();
    let set = |words: &[&str]| world.run(language, "set_priority", words);
    let done = set(&["/talker", "/listener", "class=high"]);
    let ends: Vec<&str> = done.lines.iter().filter_map(|line| line.split([' ', ':']).next()).collect();
    assert!(done.code == Some(0) && ends == ["publisher", "subscriber"], "{done:?}");
    let unknown = set(&["/talker", "/nobody", "class=high"]);
    assert!(unknown.code == Some(1) && unknown.errors.contains("no port /nobody is known"), "{unknown:?}");
    let wrong = set(&["/talker", "/listener", "class=best"]);
    assert!(wrong.code == Some(1) && wrong.errors.contains("low, normal (norm), high or critical (crit)"), "{wrong:?}");
    let nothing = set(&[]);
    assert!(nothing.code == Some(2) && nothing.errors.starts_with("usage: "), "{nothing:?}");
    listener.line();
}

fn sessions_are_joined(language: Language) {
    if !language.runs("join_session") {
        return;
    }
    let world = World::new();
    let join = |words: &[&str]| world.run(language, "join_session", words);
    let nothing = join(&[]);
    assert!(nothing.code == Some(2) && nothing.errors.starts_with("usage: "), "{nothing:?}");
    let alone = join(&["teleop", "/video"]);
    assert!(alone.code == Some(1) && alone.errors.contains("session teleop: no agent answers at"), "{alone:?}");
    let _agent = world.role("agent", "listens");
    let joined = join(&["teleop", "/video"]);
    assert!(joined.code == Some(0) && joined.lines.len() == 1, "{joined:?}");
    assert!(joined.lines[0].ends_with(" publishes as part of teleop"), "{joined:?}");
    let refused = join(&["survey", "/video"]);
    assert!(refused.code == Some(1) && refused.errors.contains("the link is full"), "{refused:?}");
    assert!(refused.errors.contains("scale 2"), "the offer: {refused:?}");
}

/// The subscriber wants bytes and the talker, of the next language, sends positions: its node says so, with both types.
fn wrong_types_are_refused(language: Language) {
    let other = match language {
        Language::Rust => Language::C,
        Language::C => Language::Cpp,
        Language::Cpp => Language::Python,
        Language::Python => Language::Rust,
    };
    if !(language.runs("refused") && other.runs("talker")) {
        return;
    }
    let world = World::new();
    let _talker = world.start(other, "talker", &[]);
    let said = match language {
        Language::Rust => world.role("refused", "do not match").1,
        _ => world.start(language, "refused", &[]).line(),
    };
    assert!(said.contains("/talker and ") && said.contains(" do not match: type offered Position ("), "{said}");
    assert!(said.contains("requested bytes (") && said.contains("subscribe with type Position"), "{said}");
}
