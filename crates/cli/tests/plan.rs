//! `thalweg plan`: the papers' numbers, the robot, refusals with offers, lint, plan files and errors in a file.
#![allow(clippy::unwrap_used)]

use crate::support;
use serde_json::Value;
use support::Testbed;

fn example(name: &str) -> String {
    format!("{}/../../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The contract of an example, changed, in a file of the house.
fn changed(house: &Testbed, name: &str, from: &str, to: &str) -> String {
    let text = std::fs::read_to_string(example(name)).unwrap();
    assert!(text.contains(from), "{from}");
    let file = house.path("changed.toml");
    std::fs::write(&file, text.replace(from, to)).unwrap();
    file.display().to_string()
}

/// Every line of the table in examples/papers: its command, the place in the document, and the number with the
/// printed digits.
#[test]
fn the_papers_numbers_come_out() {
    let house = Testbed::new();
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
    let house = Testbed::new();
    let (robot, file, figure) = (example("robot.toml"), house.path("plan.toml"), house.path("plan.svg"));
    let outputs = format!("-o {} --figure {}", file.display(), figure.display());
    let done = house.run(&format!("plan {robot} --explain {outputs}"));
    assert_eq!(done.code(), 0, "{}", done.errors);
    let text = done.lines.join("\n");
    assert!(text.starts_with("robot fits (model bound)") && text.contains("to spare"), "{text}");
    // Channels nearest to their deadlines come first, with the step that takes most of the time.
    let mut overview =
        done.lines.iter().skip_while(|line| !line.starts_with("deadlines, those with the least to spare")).skip(1);
    let first = overview.next().unwrap();
    let says = ["map → /operator/map ", " of 2 s ", " 23 % ", "air to operator: transmission"];
    assert!(says.iter().all(|says| first.contains(says)), "{first}");
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
    let house = Testbed::new();
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
    let in_file =
        format!("\n       [[subscriber]] \"/operator/view\": scaled_size = {}", change["value"].as_str().unwrap());
    assert!(text.contains(&in_file), "{in_file} {text}");
    for says in [
        "needed to serve /operator/view",
        "needs more than any time, has 150 ms",
        "there is no bound of the delay",
        "NO LIMIT",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    let explained = house.run(&format!("plan {} --explain", example("robot-overloaded.toml"))).lines.join("\n");
    assert!(
        explained.contains("no limit  of 150 ms") && explained.contains("air to operator is asked for"),
        "{explained}"
    );
}

/// The first offer of a refused plan is applied to the file as printed, and the plan fits.
#[test]
fn the_first_offer_taken_literally_makes_it_fit() {
    let house = Testbed::new();
    let late = |deadline: &str| changed(&house, "robot.toml", "deadline = \"2 s\"", deadline);
    let slow = |rate: &str| changed(&house, "robot.toml", "rate = \"6 Mbit/s\"", rate);
    let busy = |cpu: &str| changed(&house, "robot.toml", "cpu_receive = \"300 us\"", cpu);
    let from: [&dyn Fn() -> String; 5] = [
        &|| example("robot-overloaded.toml"),
        &|| late("deadline = \"300 ms\""),
        &|| slow("rate = \"1.4 Mbit/s\""),
        &|| slow("rate = \"300 kbit/s\""),
        &|| busy("cpu_receive = \"90 ms\""),
    ];
    for contract in from {
        let file = contract();
        let refused = house.run(&format!("plan {file} --json"));
        let plan: Value = serde_json::from_str(&refused.lines[0]).unwrap();
        assert_eq!((refused.code(), &plan["feasible"]), (1, &Value::Bool(false)), "{file}");
        let offer = plan["refusals"][0]["offers"][0].clone();
        let changes: Vec<qos::plan::FileChange> = serde_json::from_value(offer["changes"].clone()).unwrap();
        assert!(!changes.is_empty(), "{plan}");
        let text = qos::plan::rewrite(&std::fs::read_to_string(&file).unwrap(), &changes).unwrap();
        let taken = house.path("taken.toml");
        std::fs::write(&taken, text).unwrap();
        let done = house.run(&format!("plan {}", taken.display()));
        assert_eq!(done.code(), 0, "{offer}: {:?}", done.lines);
    }
}

/// A time as `--explain` shows it, in nanoseconds.
fn shown_ns(line: &str) -> Option<i64> {
    let (number, rest) = line.trim_start().split_once(' ')?;
    let us: f64 = number.parse().ok().filter(|_| rest.starts_with("us "))?;
    Some((us * 1e3).round() as i64)
}

/// Bytes and bits per second behind a transmission.
fn bytes_at(line: &str) -> Option<(f64, f64)> {
    let (before, rate) = line.split_once(" B at ")?;
    let mut words = rate.split_whitespace();
    let (number, unit) = (words.next()?.parse::<f64>().ok()?, words.next()?);
    let factor = [("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)].iter().find(|(name, _)| *name == unit)?.1;
    Some((before.rsplit(' ').next()?.parse().ok()?, number * factor))
}

/// The output of `--explain` can be recomputed by hand. The steps add up to the bound exactly, and a transmission is
/// its bytes at its rate. Every step is explained.
#[test]
fn an_explanation_adds_up() {
    let house = Testbed::new();
    let late = changed(&house, "robot.toml", "deadline = \"2 s\"", "deadline = \"300 ms\"");
    for (file, least) in
        [(example("robot.toml"), 10), (example("robot-overloaded.toml"), 5), (late, 10), (example("velox-lan.toml"), 1)]
    {
        let lines = house.run(&format!("plan {file} --explain")).lines;
        let steps = lines.iter().skip_while(|line| *line != "steps").skip(1).take_while(|line| !line.is_empty());
        let steps: Vec<&str> = steps.map(|line| line.trim_start().split("  ").next().unwrap()).collect();
        let (mut sum, mut channels) = (0, 0);
        for line in &lines {
            let shown = shown_ns(line);
            if line.contains("= bound") {
                let whole = std::mem::take(&mut sum);
                assert!(shown.is_none_or(|ns| ns == whole), "{file}: {whole} ns: {line}");
                channels += usize::from(shown.is_some());
                continue;
            }
            let Some(ns) = shown else { continue };
            sum += ns;
            assert!(steps.iter().any(|step| line.contains(step)), "{file}: {line}: not among {steps:?}");
            if let Some((bytes, rate)) = bytes_at(line) {
                let (by_hand, of_a_byte) = (bytes * 8e9 / rate, 8e9 / rate);
                assert!((by_hand - ns as f64).abs() <= of_a_byte + 1.0, "{line}: {by_hand}");
            }
        }
        assert!(channels >= least && steps.len() >= 5, "{file}: {channels} channels, {steps:?}");
    }
}

#[test]
fn changes_and_differences_are_readable() {
    let house = Testbed::new();
    let robot = example("robot.toml");
    let more = changed(&house, "robot.toml", "scale = 3", "scale = 1");
    let done = house.run(&format!("plan {robot} --whatif {more}"));
    assert_eq!(done.code(), 0, "{:?} {}", done.lines, done.errors);
    assert!(
        done.lines[0].starts_with("now:     robot fits") && done.lines[1].starts_with("changed: robot fits"),
        "{:?}",
        done.lines
    );
    let row = |lines: &[String], starts: &str| {
        let row = lines.iter().find(|line| line.starts_with(starts)).unwrap_or_else(|| panic!("{starts}: {lines:?}"));
        row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let bound = row(&done.lines, "channel map pilot → /operator/map ");
    assert!(bound.len() == 4 && bound[2] != bound[3], "what, value, old, new: {bound:?}");
    assert_eq!(row(&done.lines, "link air radio → operator")[1..3], ["load", "2.172 Mbit/s"]);
    assert!(!done.lines.iter().any(|line| line.contains("/motors/stop")), "what stays is not shown: {:?}", done.lines);
    // A contract that does not fit: its needs, and changes that would help.
    let overloaded = example("robot-overloaded.toml");
    let done = house.run(&format!("plan {robot} --whatif {overloaded}"));
    let text = done.lines.join("\n");
    assert_eq!(done.code(), 1, "{text}");
    assert!(
        text.contains("changed: robot-overloaded does NOT fit") && text.contains("any one of these makes it fit"),
        "{text}"
    );
    assert!(!text.contains("/motors/") && !text.contains("node motors"), "what nobody knows is no change: {text}");
    // One more channel, and one that is gone, in plan files.
    let without = changed(
        &house,
        "robot.toml",
        "[[subscriber]]\ntopic = \"map\"\nnode = \"operator\"",
        "[[subscriber]]\ntopic = \"map\"\nnode = \"vision\"",
    );
    let (old, new) = (house.path("old.toml"), house.path("new.toml"));
    for (contract, plan) in [(&robot, &old), (&without, &new)] {
        assert_eq!(house.run(&format!("plan {contract} -o {}", plan.display())).code(), 0);
    }
    let done = house.run(&format!("plan --diff {} {}", old.display(), new.display()));
    let objective = done.lines.iter().find(|line| line.starts_with("plan ")).unwrap();
    assert_eq!(objective.matches("bit/s over all links, without headers").count(), 2, "old and new: {objective}");
    let load = row(&done.lines, "link air radio → operator");
    assert_eq!((done.code(), load[1].as_str()), (0, "load"), "{:?}", done.lines);
    let json = house.run(&format!("plan --diff {} {} --json", new.display(), old.display())).json();
    let back = json["changes"].as_array().unwrap().iter().find(|change| change["what"] == "link air radio → operator");
    assert_eq!(back.map(|change| change["new"].clone()), Some(load[2].clone().into()), "{json}");
}

/// Every documented model plans, and an unknown name is answered with the list of all.
#[test]
fn every_model_is_documented_and_a_wrong_name_lists_them() {
    let house = Testbed::new();
    let documents = std::fs::read_to_string(example("../docs/planning.md")).unwrap();
    let wrong = house.run(&format!("plan {} --model best", example("robot.toml")));
    assert_eq!(wrong.code(), 2);
    for model in ["paper-hop", "velox-table2", "velox-eq4-literal", "mm1", "mm1k", "nc", "rta", "bound"] {
        assert!(documents.contains(&format!("`{model}`")), "docs/planning.md does not have {model}");
        assert!(wrong.errors.contains(model), "{model}: {}", wrong.errors);
        let plan = house.run(&format!("plan {} --model {model} --json", example("papers/velox-mm1.toml")));
        let plan: Value = serde_json::from_str(&plan.lines[0]).unwrap();
        assert_eq!(plan["model"], model);
        let channel = &plan["channels"][0];
        let is_mean = model.starts_with("velox") || model.starts_with("mm1");
        assert_eq!(
            (channel["mean_us"].is_number(), channel["bound_us"].is_number()),
            (is_mean, !is_mean),
            "{model}: {plan}"
        );
        let explained =
            house.run(&format!("plan {} --model {model} --explain", example("papers/velox-mm1.toml"))).lines.join("\n");
        assert_eq!(explained.contains("two-state chain"), is_mean, "{model}: {explained}");
    }
}

#[test]
fn likely_mistakes_and_errors_are_named_with_their_line() {
    let house = Testbed::new();
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

#[test]
fn a_chain_over_topics_is_shown_simulated_and_refused() {
    let house = Testbed::new();
    let robot = example("robot.toml");
    let plan = house.run(&format!("plan {robot} --simulate 500ms --json")).json();
    let chain = &plan["chains"][0];
    assert_eq!((&chain["name"], &chain["deadline_us"]), (&"steer".into(), &50_000.0.into()));
    let parts = chain["parts"].as_array().unwrap();
    let us = |part: &Value| part["wait_us"].as_f64().unwrap() + part["bound_us"].as_f64().unwrap();
    let (sum, bound) = (parts.iter().map(us).sum::<f64>(), chain["bound_us"].as_f64().unwrap());
    assert!((sum - bound).abs() < 1e-6 && parts[1]["wait_us"] == 5000.0 && parts[1]["sampled"] == true, "{chain}");
    let seen = &plan["simulation"]["chains"][0];
    assert!(seen["holds"] == true && seen["max_us"].as_f64().unwrap() > bound / 2.0, "{seen}");
    let text = house.run(&format!("plan {robot}")).lines;
    assert!(text[0].contains(" and 1 of 1 chains have a deadline"), "{}", text[0]);
    let row = text.iter().find(|line| line.starts_with("steer ")).unwrap();
    assert!(row.contains("+ wait 5 ms + commands "), "{row}");
    let explained = house.run(&format!("plan {robot} --explain")).lines;
    let mut terms = explained.iter().skip_while(|line| !line.starts_with("chain steer")).skip(1);
    let ns: Vec<i64> = terms.by_ref().map_while(|line| shown_ns(line)).collect();
    assert_eq!((ns.len(), ns[..3].iter().sum::<i64>()), (4, ns[3]), "{explained:?}");

    let own = "sampled = [\"commands\"]\ndeadline = \"50 ms\"";
    let late = changed(&house, "robot.toml", own, "sampled = [\"commands\"]\ndeadline = \"8 ms\"");
    let done = house.run(&format!("plan {late} --json"));
    let refusal = &serde_json::from_str::<Value>(&done.lines[0]).unwrap()["refusals"][0];
    assert_eq!(
        (done.code(), &refusal["what"], &refusal["has"]),
        (1, &"deadline of chain \"steer\"".into(), &"8 ms".into())
    );
    let most = "most of it the wait for the next sample of \"commands\" (5 ms)";
    assert!(refusal["because"].as_str().unwrap().contains(most), "{refusal}");
    let offers = refusal["offers"].as_array().unwrap();
    assert!(offers.iter().any(|offer| offer["changes"][0]["table"] == "chain"), "{refusal}");
    let unfit = changed(&house, "robot.toml", own, "deadline = \"50 ms\"");
    let done = house.run(&format!("plan {unfit}"));
    assert!(done.code() == 2 && done.errors.contains("or sampled = [\"commands\"]"), "{}", done.errors);
}
