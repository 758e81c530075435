use super::*;

/// A camera, a detector and brakes; each test changes a line.
const BRAKE: &str = r#"[[node]]
name = "camera"
[[node]]
name = "detector"
[[node]]
name = "brakes"
[[link]]
between = ["camera", "detector"]
rate = "100 Mbit/s"
[[link]]
between = ["detector", "brakes"]
rate = "100 Mbit/s"
[[topic]]
name = "images"
size = "8 KiB"
rate = "40 Hz"
publisher = "camera"
[[topic]]
name = "objects"
size = "1 KiB"
rate = "20 Hz"
jitter = "9 ms"
publisher = "detector"
[[topic]]
name = "brake"
size = "32 B"
period = "10 ms"
burst = 2
jitter = "1 ms"
publisher = "detector"
[[subscriber]]
topic = "images"
node = "detector"
name = "/detector"
scale = 2
[[subscriber]]
topic = "images"
node = "brakes"
name = "/recorder"
[[subscriber]]
topic = "objects"
node = "detector"
name = "/planner"
cpu_receive = "1 ms"
[[subscriber]]
topic = "brake"
node = "brakes"
name = "/brakes"
scale = 3
[[chain]]
name = "brake"
topics = ["images", "objects", "brake"]
sampled = ["brake"]
deadline = "80 ms"
"#;

fn changed(from: &str, to: &str) -> String {
    assert!(BRAKE.contains(from), "{from}");
    BRAKE.replacen(from, to, 1)
}

#[test]
fn a_chain_goes_over_the_subscribers_that_publish_the_next_topic() {
    let Contract { system, lines, .. } = Contract::read(BRAKE).unwrap();
    let [chain] = system.chains.as_slice() else { panic!("{:?}", system.chains) };
    let part = |publisher, subscriber, sampled| ChainPart { publisher, subscriber, sampled };
    assert_eq!(chain.parts, [part(0, 0, false), part(1, 2, false), part(1, 3, true)]);
    assert_eq!((chain.name.as_str(), chain.deadline, lines.chains.len()), ("brake", Some(80_000_000), 1));
    assert_eq!(BRAKE.lines().nth(lines.chains[0] - 1), Some("[[chain]]"));
    // Of a sampled topic of which two samples come at once, and every third counts: 10 ms · (3 + 2 − 1) and the jitter.
    let waits = [0, 1, 2].map(|part| crate::analysis::chain::wait(&system, chain, part));
    assert_eq!(waits, [0, 0, 41_000_000]);
    let scaled = changed("name = \"/planner\"", "name = \"/planner\"\nscale = 2");
    let system = Contract::read(&scaled).unwrap().system;
    assert_eq!(crate::analysis::chain::wait(&system, &system.chains[0], 1), 59_000_000, "one is left out, and jitter");
}

#[test]
fn broken_and_ambiguous_chains_are_refused_with_the_remedy() {
    let second = "deadline = \"80 ms\"\n[[chain]]\nname = \"b\"\n";
    for (from, to, says) in [
        ("name = \"brake\"\ntopics", "topics", "name is missing"),
        (
            "topics = [\"images\", \"objects\", \"brake\"]",
            "topics = [\"images\", \"images\"]",
            "1 to 64 topics, each once",
        ),
        ("topics = [\"images\", ", "topics = [\"x\", ", "topics = \"x\": allowed is the name of a topic of this file"),
        ("topics = [\"images\", \"objects\", \"brake\"]", "", "topics is missing; such as topics = [\"camera\""),
        ("sampled = [\"brake\"]", "sampled = [\"images\"]", "topics of this chain behind the first: objects, brake"),
        ("sampled = [\"brake\"]", "sampled = 3", "sampled = 3: allowed is a list of names"),
        (
            "sampled = [\"brake\"]\n",
            "",
            "\"brake\" has a rate of 100 Hz, but is published for each sample of \"objects\" that /planner gets, at 20 Hz: allowed is that rate, or sampled = [\"brake\"]",
        ),
        ("deadline = \"80 ms\"", "deadline = 80", "deadline = 80: allowed is a time"),
        ("deadline", "until", "until"),
        (
            "topic = \"objects\"\nnode = \"detector\"",
            "topic = \"objects\"\nnode = \"brakes\"",
            "\"objects\" has no subscriber where \"brake\" is published (detector): add a [[subscriber]]",
        ),
        (
            "node = \"brakes\"\nname = \"/recorder\"",
            "node = \"detector\"\nname = \"/recorder\"",
            "\"images\" has 2 subscribers where \"objects\" is published (detector): /detector, /recorder: name the chain's own by subscribers =",
        ),
        (
            "sampled = [\"brake\"]",
            "subscribers = [\"/recorder\", \"/planner\", \"/brakes\"]",
            "\"/recorder\" is at brakes, which does not publish \"objects\": allowed is a subscriber of \"images\" at detector",
        ),
        ("sampled = [\"brake\"]", "subscribers = [\"/planner\"]", "one subscriber of each of the chain's topics"),
        (
            "publisher = \"camera\"",
            "publisher = [\"camera\", \"brakes\"]",
            "publisher: the chain begins where \"images\" is published: allowed is one of camera, brakes",
        ),
        ("sampled = [\"brake\"]", "sampled = [\"brake\"]\npublisher = \"brakes\"", "allowed is one of camera"),
        (
            "sampled = [\"brake\"]",
            "sampled = [\"brake\"]\npublisher = \"x\"",
            "publisher = \"x\": allowed is the name of a node",
        ),
        (
            "deadline = \"80 ms\"",
            "deadline = \"80 ms\"\n[[chain]]\nname = \"brake\"\ntopics = [\"brake\"]",
            "already used in line",
        ),
    ] {
        let problem = Contract::read(&changed(from, to)).unwrap_err().to_string();
        assert!(problem.contains(says), "{says}: {problem}");
    }
    let several = changed("publisher = \"camera\"", "publisher = [\"camera\", \"brakes\"]");
    let several = several
        .replace("rate = \"20 Hz\"", "rate = \"40 Hz\"")
        .replace("deadline =", "publisher = \"camera\"\ndeadline =");
    let problem = Contract::read(&several).unwrap_err().to_string();
    assert!(problem.contains("\"images\" has 2 publishers, and \"objects\" is published for each"), "{problem}");
    for (topics, says) in [
        (
            "[\"brake\", \"objects\"]\nsubscribers = [\"/again\", \"/planner\"]",
            "and in chain \"brake\" for each of /detector: allowed is one of them",
        ),
        (
            "[\"objects\", \"images\"]\nsubscribers = [\"/planner\", \"/detector\"]",
            "\"images\" is published for each sample of itself",
        ),
    ] {
        let text = changed("deadline = \"80 ms\"", &format!("{second}topics = {topics}\n"))
            .replace("publisher = \"camera\"", "publisher = \"detector\"")
            .replace("period = \"10 ms\"", "rate = \"20 Hz\"")
            .replace("rate = \"40 Hz\"", "rate = \"20 Hz\"")
            .replace("scale = 2\n", "")
            + "[[subscriber]]\ntopic = \"brake\"\nnode = \"detector\"\nname = \"/again\"\n";
        let text = text.replace(
            "sampled = [\"brake\"]",
            "sampled = [\"brake\"]\nsubscribers = [\"/detector\", \"/planner\", \"/brakes\"]",
        );
        let problem = Contract::read(&text).unwrap_err().to_string();
        assert!(problem.contains(says), "{says}: {problem}");
    }
}

#[test]
fn a_callback_without_time_is_a_likely_mistake() {
    let found = super::super::check(&Contract::read(BRAKE).unwrap());
    let says = "the bound has no time for making \"objects\" of \"images\": /detector declares no cpu_receive";
    let of_chain: Vec<&Finding> = found.iter().filter(|one| one.what == "chain \"brake\"").collect();
    assert_eq!((of_chain.len(), of_chain[0].because.as_str()), (1, says), "{found:?}");
}
