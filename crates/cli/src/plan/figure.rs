//! The network as a picture: nodes, links with their loads, proxies, and each channel's delay against its deadline.
//!
//! | module | drawing |
//! |---|---|
//! | `layout` | positions of the nodes |
//! | `network` | nodes, links and proxies |
//! | `channels` | delays and their parts |
//! | `pen` | lines, boxes and text |

mod channels;
mod layout;
mod network;
mod pen;

use pen::{Pen, Style};
use qos::plan::Plan;
use qos::system::System;

/// Size of the network's part of the picture; the channels are to the right of it.
const NETWORK: [f64; 2] = [640.0, 480.0];
const TOP: f64 = 64.0;
const MARGIN: f64 = 20.0;

/// Colours of a load, each with its upper limit and its words.
const FULL: [(f64, &str, &str); 4] = [
    (0.5, "#2e8b57", "up to 50 %"),
    (0.8, "#d99000", "up to 80 %"),
    (1.0, "#d55e00", "up to 100 %"),
    (f64::INFINITY, "#b00020", "over"),
];

const GREY: &str = "#5f6570";

/// Draws the picture.
pub(super) fn draw(system: &System, plan: &Plan) -> String {
    let left = MARGIN + NETWORK[0] + 2.0 * MARGIN;
    let height = (TOP + NETWORK[1]).max(TOP + channels::height(plan)) + 48.0;
    let mut pen = Pen::new([left + channels::WIDTH + MARGIN, height]);
    let colour = if plan.feasible { FULL[0].1 } else { FULL[3].1 };
    pen.rect([0.0, 0.0], [8.0, height], Style { colour, ..Style::default() });
    pen.text([MARGIN, 30.0], &super::show::verdict(plan), Style { size: 17.0, bold: true, ..Style::default() });
    network::draw(&mut pen, system, plan, [MARGIN, TOP]);
    channels::draw(&mut pen, plan, [left, TOP]);
    let mut at = [MARGIN, height - 18.0];
    for (_, colour, words) in FULL {
        at = pen.key(at, colour, words);
    }
    pen.text(at, "of a link's rate or a channel's deadline", Style { colour: GREY, size: 11.0, ..Style::default() });
    pen.finish()
}

/// The colour of a load.
fn colour(part: f64) -> &'static str {
    FULL.iter().find(|(limit, _, _)| part <= limit + 1e-9).map_or(FULL[3].1, |(_, colour, _)| *colour)
}

#[cfg(test)]
mod tests {
    use super::*;
    use qos::plan::Channel;
    use qos::system::{Link as ContractLink, Node, System};

    fn system(count: usize) -> System {
        let node = |n| Node { name: format!("n<{n}>"), ..Node::default() };
        let link = |n| ContractLink {
            name: format!("l{n}"),
            between: [n, (n + 1) % count],
            rate: 1_000_000,
            ..ContractLink::default()
        };
        System { nodes: (0..count).map(node).collect(), links: (0..count).map(link).collect(), ..System::default() }
    }

    #[test]
    fn everything_is_drawn_once_within_the_picture_and_escaped() {
        let system = system(30);
        let channel = |n: usize| Channel {
            bound_us: (!n.is_multiple_of(3)).then_some(n as f64 * 50.0),
            deadline_us: n.is_multiple_of(2).then_some(1000.0),
            ..Channel::default()
        };
        let plan = Plan { channels: (0..40).map(channel).collect(), ..Plan::default() };
        let svg = draw(&system, &plan);
        assert!(svg.contains("n&lt;7&gt;") && svg.contains("and 16 more") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("class=\"node\"").count(), 30);
        assert!(!svg.contains("NaN") && !svg.contains("inf") && !svg.contains("=\"-"), "something is outside");
    }

    #[test]
    fn colours_say_how_full() {
        assert_eq!([0.0, 0.5, 0.6, 1.0, 1.01].map(colour), [0, 0, 1, 2, 3].map(|n| FULL[n as usize].1));
    }

    #[test]
    fn an_empty_plan_is_drawn_as_an_empty_figure() {
        assert!(draw(&System::default(), &Plan::default()).ends_with("</svg>\n"));
    }
}
