//! Offers of shares.

use super::*;

/// Two links with stated shares: the camera has a small one, and bulk of class normal and low has more than its load.
const SHARED: &str = r#"
[[node]]
name = "robot"
[[node]]
name = "gate"
kind = "router"
[[node]]
name = "desk"
[[link]]
name = "air"
between = ["robot", "gate"]
rate = "10 Mbit/s"
scheduler = "htb"
shares = { critical = "5 %", high = "20 %", normal = "45 %", low = "30 %" }
[[link]]
name = "lan"
between = ["gate", "desk"]
rate = "100 Mbit/s"
[[topic]]
name = "camera"
size = "6 KiB"
rate = "30 Hz"
publisher = "robot"
class = "high"
[[topic]]
name = "bulk"
size = "32 KiB"
rate = "10 Hz"
publisher = "robot"
class = "normal"
[[topic]]
name = "log"
size = "4 KiB"
rate = "40 Hz"
publisher = "robot"
class = "low"
[[subscriber]]
topic = "camera"
node = "desk"
name = "/viewer"
deadline = "30 ms"
[[subscriber]]
topic = "bulk"
node = "desk"
name = "/store"
deadline = "200 ms"
[[subscriber]]
topic = "log"
node = "desk"
name = "/log"
deadline = "200 ms"
"#;

#[test]
fn other_shares_are_offered_where_they_make_it_fit() {
    // A second host has as much bulk for the second link.
    let (_, air) = SHARED.split_once("rate = ").unwrap();
    let (air, _) = air.split_once("[[link]]").unwrap();
    let more = "[[node]]\nname = \"base\"\n[[link]]\nbetween = [\"base\", \"gate\"]\nrate = \"1 Gbit/s\"\n\
                [[topic]]\nname = \"bulk2\"\nsize = \"32 KiB\"\nrate = \"10 Hz\"\npublisher = \"base\"\nclass = \"normal\"\n\
                [[subscriber]]\ntopic = \"bulk2\"\nnode = \"desk\"\n";
    let both = format!("{}{more}", SHARED.replace("rate = \"100 Mbit/s\"\n", &format!("rate = {air}")));
    let (one, second) =
        ("shares of link \"air\": high 36 % instead of 20 %, normal 36 %", "; shares of link \"lan\": high");
    for (text, deadline, words) in
        [(SHARED, "25 ms", [one, ""]), (&both, "80 ms", [one, ""]), (&both, "60 ms", [one, second])]
    {
        let text = text.replace("30 ms", deadline);
        let offers = &planned(&text, Model::Bound).refusals[0].offers;
        let first = &offers[0].what;
        assert!(first.starts_with(words[0]) && first.contains(words[1]), "{offers:?}");
        assert_eq!(first.contains("lan"), !words[1].is_empty(), "one link is enough if it can be: {first}");
        for offer in offers {
            let plan = planned(&rewrite(&text, &offer.changes).unwrap(), Model::Bound);
            assert!(plan.feasible, "{}: {:?}", offer.what, plan.refusals);
        }
    }
    // Nothing that the others could give: as much load as share.
    let full = SHARED.replace(
        "high = \"20 %\", normal = \"45 %\", low = \"30 %\"",
        "high = \"53 %\", normal = \"27.7 %\", low = \"14.3 %\"",
    );
    let offers = &planned(&full.replace("30 ms", "12 ms"), Model::Bound).refusals[0].offers;
    assert!(offers.iter().all(|offer| !offer.what.starts_with("shares")), "{offers:?}");
}
