//! `thalweg demo --domains`: a robot, a wide-area network and a base, each with a broker of its own. A video from robot to base is measured beside other
//! traffic, first as it is, then as a session that all three have admitted; a second session is refused; and a link is cut, and joined again.
//!
//! | module | contents |
//! |---|---|
//! | [`world`] | the hosts, their lines, the brokers and agents |
//! | [`video`] | the video, and what arrives of it |

mod video;
mod world;

use super::Arguments;
use crate::failure::{Failure, Result};
use crate::output::{Output, line, tell};
use crate::signals::Stop;
use agent::client::ClientError;
use agent::message::Session;
use lab::results::{Bar, Figure, Group, Panel};
use qos::plan::Refusal;
use qos::show_time;
use serde::Serialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use video::{Seen, Video};
use world::World;

/// A video of 373 kbit/s, headers included.
const TELEOP: &str = r#"[[session]]
name = "teleop"
[[topic]]
name = "video"
size = "400 B"
rate = "100 Hz"
publisher = "cam"
[[subscriber]]
topic = "video"
node = "base/desk"
name = "/viewer"
deadline = "100 ms"
"#;

/// As much again, which the pipes have no room for.
const LIDAR: &str = r#"[[session]]
name = "lidar"
[[topic]]
name = "lidar"
size = "400 B"
rate = "100 Hz"
publisher = "cam"
[[subscriber]]
topic = "lidar"
node = "base/desk"
deadline = "100 ms"
"#;

/// The result.
#[derive(Serialize)]
struct Story {
    /// Beside other traffic, with nothing reserved.
    before: Seen,
    /// The session as it was admitted.
    session: Session,
    /// Beside the same traffic, as part of the session.
    after: Seen,
    /// Why a second session is refused, and what would fit.
    refused: Vec<Refusal>,
    /// The wan's link was cut, and joined again.
    cut: Cut,
    figure: Option<String>,
}

/// What a cut link does to the session.
#[derive(Serialize)]
struct Cut {
    /// The reason that its user is told.
    because: String,
    /// From the cut until the robot's broker tells it, ms.
    told_after_ms: f64,
    /// From the end of the cut until the session is active again, ms.
    regained_after_ms: f64,
}

/// Tells the story.
pub(super) fn run(arguments: &Arguments, realm: &str) -> Result {
    let stop = Stop::on_signals()?;
    let say = |text: &str| {
        if !arguments.json {
            tell(text);
        }
    };
    let mut world = World::build(realm)?;
    say(&format!(
        "cam ── rw ── wb ── desk: three domains in a row, robot, wan and base; {} of other traffic want the wan's {}",
        world::TRAFFIC,
        world::WAN
    ));
    let video = Video::start(&world, realm, &stop)?;
    let Some(before) = phase(&mut world, &video, arguments.seconds, &stop)? else { return Ok(()) };
    say(&format!("nothing is reserved: {}", before.text()));
    say("a broker for each domain, and an agent on each host, which install the pipes of three contracts");
    world.administer(realm, &stop)?;
    say("$ thalweg session request teleop.toml");
    let session = world.request(&stop, "teleop", TELEOP)?.map_err(|why| Failure::No(why.to_string()))?;
    say(&crate::sessions::shown(&session));
    let Some(after) = phase(&mut world, &video, arguments.seconds, &stop)? else { return Ok(()) };
    say(&format!("as a session: {}", after.text()));
    say("$ thalweg session request lidar.toml");
    let refused = match world.request(&stop, "lidar", LIDAR)? {
        Err(ClientError::Unfit(said, refused)) => {
            say(&format!("{said}\n{}", crate::plan::refusals(&refused)));
            refused
        }
        Err(other) => return Err(Failure::No(other.to_string())),
        Ok(_) => return Err(Failure::No("a second session was admitted, for which the pipes have no room".to_owned())),
    };
    let cut = cut(&world, &stop, &say)?;
    let mut story = Story { before, session, after, refused, cut, figure: None };
    story.figure = draw(&story, arguments)?;
    finish(&story, arguments)
}

/// Cuts the wan's link, and joins it again.
fn cut(world: &World, stop: &Stop, say: &dyn Fn(&str)) -> Result<Cut> {
    let ms = |since: Instant| since.elapsed().as_secs_f64() * 1e3;
    say("the link of the wan is cut");
    let began = Instant::now();
    world.cut(true)?;
    let because = world.ended(stop, "teleop")?;
    let told_after_ms = ms(began);
    say(&format!("teleop, {told_after_ms:.0} ms later: {because}"));
    let began = Instant::now();
    world.cut(false)?;
    world.regained(stop, "teleop", TELEOP)?;
    let regained_after_ms = ms(began);
    say(&format!("the link is back: teleop is active again {:.1} s later", regained_after_ms / 1e3));
    Ok(Cut { because, told_after_ms, regained_after_ms })
}

/// The video beside other traffic; `None`: the user asked to end.
fn phase(world: &mut World, video: &Video, time: Duration, stop: &Stop) -> Result<Option<Seen>> {
    world.begin()?;
    let seen = video.measure(time, stop);
    world.end()?;
    Ok(seen)
}

fn finish(story: &Story, arguments: &Arguments) -> Result {
    let bound = story.session.channels.first().and_then(|channel| channel.bound_us).unwrap_or(0.0);
    if arguments.json {
        Output { json: true }.document(story)?;
    } else {
        story.figure.iter().for_each(|file| tell(&format!("figure: {file}")));
        let Story { before, after, .. } = story;
        line(&format!(
            "\nbefore: {}\nafter:  {}; promised: all within {}",
            before.text(),
            after.text(),
            show_time(bound)
        ))?;
    }
    match &story.after {
        after if after.lost > 0 => Err(Failure::No(format!("{} samples of the session were lost", after.lost))),
        after if after.max_us > bound => {
            let [took, promised] = [after.max_us, bound].map(show_time);
            Err(Failure::No(format!("a sample of the session took {took}; promised were {promised}")))
        }
        _ => Ok(()),
    }
}

/// Draws both phases beside the bound.
fn draw(story: &Story, arguments: &Arguments) -> Result<Option<String>> {
    let file = arguments.figure.clone().or((!arguments.json).then(|| PathBuf::from("thalweg-domains.svg")));
    let Some(file) = file else { return Ok(None) };
    let bar = |series: &str, seen: &Seen| Bar {
        series: series.into(),
        value: seen.p50_us,
        deviation: 0.0,
        mark: Some(seen.p99_us),
    };
    let promised = story.session.channels.first().and_then(|channel| channel.bound_us).unwrap_or(0.0);
    let promised = Bar { series: "promised".into(), value: promised, deviation: 0.0, mark: None };
    let bars = vec![bar("nothing reserved", &story.before), bar("as a session", &story.after), promised];
    let lost = format!(
        "lost: {} of {} before, {} of {} after",
        story.before.lost, story.before.sent, story.after.lost, story.after.sent
    );
    let figure = Figure {
        title: format!(
            "thalweg demo --domains: a video over three domains, beside {} of other traffic",
            world::TRAFFIC
        ),
        axis: "Latency in µs, from publish to callback: median, mark: p99".into(),
        logarithmic: true,
        panels: vec![Panel { title: lost, groups: vec![Group { label: "video".into(), bars }] }],
    };
    let written = std::fs::write(&file, lab::results::draw(&figure));
    let shown = file.display().to_string();
    written.map_err(|e| Failure::System(format!("cannot write {shown}: {e}; --figure FILE puts it elsewhere")))?;
    Ok(Some(shown))
}
