//! The tables of the documents, compared with the code.

use thalweg_engines::Abilities;
use thalweg_engines::native::Native;

const DOCUMENT: &str = include_str!("../../../docs/engines.md");

/// Engines that are compiled in.
fn engines() -> Vec<(&'static str, Abilities)> {
    vec![
        (Native::NAME, Native::ABILITIES),
        #[cfg(feature = "mqtt")]
        (thalweg_engines::mqtt::Mqtt::NAME, thalweg_engines::mqtt::Mqtt::ABILITIES),
        #[cfg(feature = "zenoh")]
        (thalweg_engines::zenoh::Zenoh::NAME, thalweg_engines::zenoh::Zenoh::ABILITIES),
        #[cfg(feature = "yarp")]
        (thalweg_engines::yarp::Yarp::NAME, thalweg_engines::yarp::Yarp::ABILITIES),
        #[cfg(feature = "zenoh")]
        (thalweg_engines::ros2::Ros2::NAME, thalweg_engines::ros2::Ros2::ABILITIES),
        #[cfg(feature = "rtps")]
        (thalweg_engines::dds::Dds::NAME, thalweg_engines::dds::Dds::ABILITIES),
        #[cfg(feature = "zeromq")]
        (thalweg_engines::zeromq::ZeroMq::NAME, thalweg_engines::zeromq::ZeroMq::ABILITIES),
    ]
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[test]
fn the_document_has_the_abilities_of_every_engine() {
    let lines: Vec<&str> = DOCUMENT.lines().skip_while(|line| !line.starts_with("| | thalweg")).collect();
    let names = cells(lines[0]);
    for (name, abilities) in engines() {
        let column = names.iter().position(|found| *found == name).unwrap_or_else(|| panic!("no column {name}"));
        for (line, (row, value)) in lines[2..].iter().zip(abilities.rows()) {
            let cells = cells(line);
            assert_eq!((cells[0], cells[column]), (row, &value[..]), "{name}");
        }
    }
}
