//! `thalweg plan`: the papers' numbers, the robot, refusals with offers, lint, plan files and what is wrong in a file.
#![allow(clippy::unwrap_used)]

mod support;

use serde_json::Value;
use support::House;

fn example(name: &str) -> String {
    format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The contract of an example, changed, in a file of the house.
fn changed(house: &House, name: &str, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(example(name)).unwrap();
    assert!(text.contains(from), "{from}");
    let file = house.path("changed.toml");
    std::fs::write(&file, text.replace(from, to)).unwrap();
    file.display().to_string()
}

/// Every line of the table in examples/papers: its command, the place in the document, and the number to as many digits as are printed.
#[test]
fn the_papers_numbers_come_out() {
    let house = House::new();
    let table = std::fs::read_to_string(example("papers/README.md")).unwrap();
    let mut lines = 0;
    for row in table.lines().filter(|line| line.starts_with("| `thalweg plan ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let command = cells[1].trim_matches('`').trim_start_matches("thalweg ");
        let done = house.run(&command.replace("examples/", &example("")));
        assert_eq!(done.code(), 0, "{row}: {}", done.errors);
        let found = cells[2]
            .split('.')
            .fold(&done.json(), |value, key| match key.parse::<usize>() {
                Ok(index) => &value[index],
                Err(_) => &value[key],
            })
            .clone();
        let printed = cells[3];
        match found.as_f64() {
            Some(number) => {
                let digits = printed.split_once('.').map_or(0, |(_, digits)| digits.len());
                assert_eq!(format!("{number:.digits$}"), printed, "{row}");
            }
            None => assert_eq!(found, printed, "{row}"),
        }
        lines += 1;
    }
    assert!(lines >= 24, "{lines}");
}

#[test]
fn the_robot_fits_is_explained_written_drawn_and_compared() {
    let house = House::new();
    let (robot, file, figure) = (example("robot.toml"), house.path("plan.toml"), house.path("plan.svg"));
    let outputs = format!("-o {} --figure {}", file.display(), figure.display());
    let done = house.run(&format!("plan {robot} --explain {outputs}"));
    assert_eq!(done.code(), 0, "{}", done.errors);
    let text = done.lines.join("\n");
    assert!(text.starts_with("robot fits (model bound)") && text.contains("to spare"), "{text}");
    let drawn = std::fs::read_to_string(&figure).unwrap();
    assert_eq!(drawn, std::fs::read_to_string(example("robot.svg")).unwrap(), "examples/robot.svg: draw it anew");
    let shown = house.run(&format!("plan {robot}")).lines;
    let readme = std::fs::read_to_string(example("../README.md")).unwrap();
    for start in ["camera-left   vision    /operator/view", "imu ", "air         radio"] {
        let line = shown.iter().find(|line| line.starts_with(start)).unwrap();
        assert!(readme.contains(line.as_str()), "README.md shows this no more: {line}");
    }
    let again = house.path("again.toml");
    assert_eq!(house.run(&format!("plan {robot} -o {}", again.display())).code(), 0);
    assert_eq!(std::fs::read(&file).unwrap(), std::fs::read(&again).unwrap(), "the same contract, the same text");
    let diff = house.run(&format!("plan --diff {} {}", file.display(), again.display()));
    assert_eq!((diff.code(), diff.lines), (0, vec!["nothing differs".to_owned()]));
    let whatif =
        house.run(&format!("plan {robot} --whatif {} --json", changed(&house, "robot.toml", "scale = 3", "scale = 5")));
    let changes = whatif.json()["changes"].clone();
    let load = changes.as_array().unwrap().iter().find(|change| change["what"] == "link air radio → operator");
    assert_eq!(load.unwrap()["old"], "2.172 Mbit/s", "{changes}");
}

#[test]
fn an_overloaded_robot_is_refused_with_offers() {
    let house = House::new();
    let file = house.path("plan.toml");
    let done = house.run(&format!("plan {} --json -o {}", example("robot-overloaded.toml"), file.display()));
    assert_eq!(done.code(), 1, "{}", done.errors);
    let plan: Value = serde_json::from_str(&done.lines[0]).unwrap();
    assert_eq!((&plan["feasible"], &plan["objective_value"]), (&Value::Bool(false), &Value::Null));
    let refusal = &plan["refusals"][0];
    assert_eq!((&refusal["what"], &refusal["has"]), (&"link air from radio to operator".into(), &"6 Mbit/s".into()));
    let change = &refusal["offers"][0]["changes"][0];
    assert_eq!((&change["name"], &change["key"]), (&"/operator/view".into(), &"scaled_size".into()), "{refusal}");
    assert!(!file.exists() && done.errors.contains("not written"), "{}", done.errors);
    let text = house.run(&format!("plan {}", example("robot-overloaded.toml"))).lines.join("\n");
    assert!(text.contains("does NOT fit") && text.contains("any one of these makes it fit\n  1. "), "{text}");
    let taken = changed(
        &house,
        "robot-overloaded.toml",
        "\"48 KiB\"\ndeadline = \"150 ms\"",
        &format!("{}\ndeadline = \"150 ms\"", change["value"].as_str().unwrap()),
    );
    assert_eq!(house.run(&format!("plan {taken}")).code(), 0, "the first offer makes it fit");
}

#[test]
fn what_is_hardly_meant_and_what_is_wrong_is_named_with_its_line() {
    let house = House::new();
    let robot = example("robot.toml");
    assert_eq!(house.run(&format!("plan {robot} --check")).code(), 0);
    let file = changed(&house, "robot.toml", "deadline = \"150 ms\"", "deadline = \"50 ms\"");
    let done = house.run(&format!("plan {file} --check"));
    assert_eq!(done.code(), 1);
    assert!(done.lines[0].contains(&format!("{file}:")) && done.lines[0].contains("filter longer"), "{:?}", done.lines);
    for (arguments, says) in [
        (changed(&house, "robot.toml", "rate = \"6 Mbit/s\"", "rate = 6"), "rate = 6: allowed is 1 bit/s to"),
        ("/does/not/exist.toml".to_owned(), "/does/not/exist.toml: cannot be read"),
        (String::new(), "<FILE>"),
        (format!("{robot} --model best"), "allowed is paper-hop, velox-table2"),
        (format!("--diff {robot} {robot}"), "allowed is what `thalweg plan -o` writes"),
    ] {
        let done = house.run(&format!("plan {arguments}"));
        assert_eq!(done.code(), 2, "{arguments}: {}", done.errors);
        assert!(done.errors.contains(says), "{arguments}: {}", done.errors);
    }
}
