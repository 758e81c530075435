//! The tables of the documents, compared with the code.

use super::world::{address, listening, node, open, realm, ros_node};
use thalweg_engines::Engine;
use thalweg_engines::native::Native;

#[test]
fn the_document_has_the_abilities_of_every_engine() {
    let engines: [Box<dyn Engine>; 3] = [
        Box::new(Native::new(node("table", &realm("table")))),
        Box::new(open(listening(&address()))),
        Box::new(ros_node("table", &[], &[])),
    ];
    let names: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
    let rows: Vec<_> = engines.iter().map(|engine| engine.abilities().rows()).collect();
    let mut table = format!("| | {} |\n|---|{}\n", names.join(" | "), "---|".repeat(names.len()));
    for index in 0..rows[0].len() {
        let values: Vec<&str> = rows.iter().map(|row| &row[index].1[..]).collect();
        table += &format!("| {} | {} |\n", rows[0][index].0, values.join(" | "));
    }
    let document = include_str!("../../../docs/engines.md");
    assert!(document.contains(&table), "docs/engines.md should have\n{table}");
}
