//! Changes made in the text of a contract: comments, order and layout stay.

use super::{FileChange, PlanError};
use crate::contract::joined::Part;
use crate::contract::{Contract, ContractError};
use crate::system::System;
use toml_edit::{DocumentMut, Item, Table, Value};

/// The text of a contract with all changes made. Tables that go, go last.
///
/// # Errors
/// An unreadable text, before or after; a change of something that does not exist.
pub fn rewrite(text: &str, changes: &[FileChange]) -> Result<String, PlanError> {
    let system = Contract::read(text).map_err(PlanError::Contract)?.system;
    let text = changed(text, Named { system: &system, part: None }, changes)?;
    Contract::read(&text).map(|_| text).map_err(PlanError::Changed)
}

/// The same in the text of a session file, which is this part of the system of a contract with it. Whether the result can be read shows when it is joined again.
///
/// # Errors
/// As [`rewrite`]; a change of something that is not in the part.
pub fn rewrite_part(text: &str, system: &System, part: &Part, changes: &[FileChange]) -> Result<String, PlanError> {
    changed(text, Named { system, part: Some(part) }, changes)
}

fn changed(text: &str, named: Named<'_>, changes: &[FileChange]) -> Result<String, PlanError> {
    let mut document: DocumentMut = text.parse().map_err(|e| PlanError::Contract(unreadable(text, &e)))?;
    for change in changes.iter().filter(|change| !change.key.is_empty()) {
        set(table(&mut document, named, change)?, change)?;
    }
    let gone = changes.iter().filter(|change| change.key.is_empty()).map(|change| Ok((change, named.place(change)?)));
    let mut gone = gone.collect::<Result<Vec<_>, PlanError>>()?;
    gone.sort_by_key(|(_, place)| std::cmp::Reverse(*place));
    for (change, place) in gone {
        tables(&mut document, &change.table)?.remove(place);
    }
    Ok(document.to_string())
}

/// The error of an unreadable TOML text, with its line.
fn unreadable(text: &str, error: &toml_edit::TomlError) -> ContractError {
    let at = error.span().map_or(0, |span| span.start);
    let line = text.get(..at).unwrap_or(text).matches('\n').count() + 1;
    ContractError { line, problem: error.message().to_owned() }
}

/// The names of the tables of a text: all of a system, or those of a part of it.
#[derive(Clone, Copy)]
struct Named<'a> {
    system: &'a System,
    part: Option<&'a Part>,
}

impl Named<'_> {
    /// The place of what is changed among the tables of its kind.
    fn place(self, change: &FileChange) -> Result<usize, PlanError> {
        let FileChange { table, name, .. } = change;
        let Self { system, part } = self;
        let whole = part.is_none();
        let found = match table.as_str() {
            "node" if whole => system.nodes.iter().position(|node| node.name == *name),
            "link" if whole => system.links.iter().position(|link| link.name == *name),
            "topic" => among(&system.topics, part.map(|part| &*part.topics), |topic| topic.name == *name),
            "chain" => among(&system.chains, part.map(|part| &*part.chains), |chain| chain.name == *name),
            "subscriber" => {
                let own = part.map(|part| &*part.subscribers);
                among(&system.subscribers, own, |subscriber| subscriber.name == *name)
            }
            _ => None,
        };
        found.ok_or_else(|| PlanError::Missing { table: table.clone(), name: name.clone() })
    }
}

/// The place of one among all, or among these (indices).
fn among<T>(all: &[T], own: Option<&[usize]>, is_it: impl Fn(&T) -> bool) -> Option<usize> {
    match own {
        None => all.iter().position(is_it),
        Some(own) => own.iter().position(|index| all.get(*index).is_some_and(&is_it)),
    }
}

fn tables<'a>(document: &'a mut DocumentMut, kind: &str) -> Result<&'a mut toml_edit::ArrayOfTables, PlanError> {
    let tables = document.get_mut(kind).and_then(Item::as_array_of_tables_mut);
    tables.ok_or_else(|| PlanError::Layout { table: kind.to_owned(), form: "an array of tables ([[…]])" })
}

fn table<'a>(document: &'a mut DocumentMut, named: Named<'_>, change: &FileChange) -> Result<&'a mut Table, PlanError> {
    let wrong = || PlanError::Layout { table: change.table.clone(), form: "a table" };
    if change.name.is_empty() {
        let table = document.entry(&change.table).or_insert_with(|| Item::Table(Table::new()));
        return table.as_table_mut().ok_or_else(wrong);
    }
    let place = named.place(change)?;
    tables(document, &change.table)?.get_mut(place).ok_or_else(wrong)
}

/// Sets a value; the rest of its line stays.
fn set(table: &mut Table, change: &FileChange) -> Result<(), PlanError> {
    let FileChange { key, value, .. } = change;
    let mut new: Value = value.parse().map_err(|_| PlanError::Value { key: key.clone(), value: value.clone() })?;
    // A topic has one of the two.
    let other = match key.as_str() {
        "rate" => "period",
        "period" => "rate",
        _ => "",
    };
    table.remove(other);
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(old) => {
            new.decor_mut().clone_from(old.decor());
            *old = new;
        }
        None => drop(table.insert(key, Item::Value(new))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# A robot.\n[system]\nname = \"r\"\n\n[[node]]\nname = \"a\"\n[[node]]\nname = \"b\"\n\n\
        [[link]]\nbetween = [\"a\", \"b\"]\nrate = \"1 Mbit/s\"\n\n[[topic]]\nname = \"t\"\nsize  = \"8 B\"   # as measured in May\n\
        period = \"10 ms\"\npublisher = \"a\"\n\n# The first.\n[[subscriber]]\ntopic = \"t\"\nnode = \"b\"\n\n\
        # The second.\n[[subscriber]]\ntopic = \"t\"\nnode = \"b\"\nname = \"/in\"\n";

    fn change(table: &str, name: &str, key: &str, value: &str) -> FileChange {
        FileChange { table: table.into(), name: name.into(), key: key.into(), value: value.into() }
    }

    #[test]
    fn all_but_the_change_stays_as_it_is() {
        let changed = rewrite(TEXT, &[change("topic", "t", "size", "\"9 B\"")]).unwrap();
        assert_eq!(changed, TEXT.replace("\"8 B\"", "\"9 B\""));
        assert_eq!(rewrite(TEXT, &[]).unwrap(), TEXT);
        let added = rewrite(TEXT, &[change("subscriber", "/t@b", "cpu_receive", "\"3 us\"")]).unwrap();
        assert_eq!(added, TEXT.replacen("node = \"b\"\n\n#", "node = \"b\"\ncpu_receive = \"3 us\"\n\n#", 1));
        let rate = rewrite(TEXT, &[change("topic", "t", "rate", "\"50 Hz\"")]).unwrap();
        assert!(rate.contains("rate = \"50 Hz\"") && !rate.contains("period"), "{rate}");
        let placed = rewrite(TEXT, &[change("placement", "", "proxies", "\"merged\"")]).unwrap();
        assert!(placed.ends_with("[placement]\nproxies = \"merged\"\n"), "{placed}");
    }

    #[test]
    fn tables_go_by_their_names() {
        let gone = rewrite(
            TEXT,
            &[change("subscriber", "/t@b", "", ""), change("subscriber", "/in", "cpu_receive", "\"1 us\"")],
        );
        let gone = gone.unwrap();
        assert!(!gone.contains("The first") && gone.contains("/in\"\ncpu_receive = \"1 us\"\n"), "{gone}");
    }

    /// Names that a session does not have itself, but the contract beside it.
    #[test]
    fn a_part_is_changed_in_its_own_text() {
        let own = "# Mine.\n[[session]]\nname = \"s\"\n[[topic]]\nname = \"u\"\nsize = \"8 B\"\nrate = \"1 Hz\"\npublisher = \"a\"\n\
            [[subscriber]]\ntopic = \"u\"\nnode = \"b\"\n[[subscriber]]\ntopic = \"t\"\nnode = \"b\"\nname = \"/mine\"\n";
        let session = crate::contract::session::Session::read(own).unwrap();
        let whole = crate::contract::joined::join(TEXT, &[&session]).unwrap();
        let (system, part) = (&whole.contract.system, &whole.parts[0]);
        let changed = |change: FileChange| rewrite_part(own, system, part, &[change]);
        let size = changed(change("topic", "u", "size", "\"4 B\"")).unwrap();
        assert_eq!(size, own.replace("\"8 B\"", "\"4 B\""));
        let scale = changed(change("subscriber", "/mine", "scale", "2")).unwrap();
        assert_eq!(scale, format!("{own}scale = 2\n"));
        let gone = changed(change("subscriber", "/u@b", "", "")).unwrap();
        assert!(gone.contains("/mine") && !gone.contains("topic = \"u\"\n"), "{gone}");
        for foreign in [("topic", "t"), ("subscriber", "/in"), ("node", "a"), ("link", "a-b")] {
            assert!(changed(change(foreign.0, foreign.1, "size", "1")).is_err(), "{foreign:?}");
        }
    }

    #[test]
    fn impossible_changes_are_reported() {
        for (change, says) in [
            (change("topic", "x", "size", "\"9 B\""), "no topic x"),
            (change("topic", "t", "size", "9 B"), "is no value"),
            (change("topic", "t", "size", "\"0 B\""), "with the changes, line "),
            (change("nothing", "t", "size", "1"), "no nothing t"),
            (change("link", "a-b", "", ""), ""),
        ] {
            let problem = rewrite(TEXT, &[change]).unwrap_err().to_string();
            assert!(problem.contains(says), "{problem}");
        }
        assert!(rewrite("x", &[]).is_err());
    }
}
