//! `thalweg qos` and `thalweg sched`: YARP's `priority-qos` and `priority-sched` (YS-30, YS-32).

use crate::ends::{self, Which};
use crate::failure::{Failure, Result};
use crate::participant::Common;
use crate::priority::{change, of_channel, show};
use crate::quantity;
use clap::{Args, ValueEnum};
use qos::priority::{Changes, Dscp};
use serde_json::json;
use thalweg::admin::EndReport;

/// A mode of these verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Everything, as thalweg get shows it
    Describe,
    /// The values, in YARP's form
    Get,
    /// Change them at both ends
    Set,
}

/// The two ports.
#[derive(Args, Debug)]
struct Ports {
    /// Describe, get or set
    #[arg(value_enum)]
    mode: Mode,
    /// The publishing port
    #[arg(long, value_name = "/OUT", value_parser = quantity::name, visible_alias = "source")]
    src: String,
    /// The subscribing port
    #[arg(long, value_name = "/IN", value_parser = quantity::name, visible_aliases = ["dest", "dst"])]
    des: String,
}

/// Packet priority of a channel in YARP's words
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg qos set --src /out --des /in --level high\n         thalweg qos set --src /out --des /in DSCP:AF42\n         thalweg qos get --src /out --des /in --tos"
)]
pub(crate) struct QosArguments {
    #[command(flatten)]
    ports: Ports,
    /// LEVEL:low|normal|high|critical, DSCP:NAME or TOS:0 to 255, instead of the options
    #[arg(value_name = "VALUE")]
    values: Vec<String>,
    /// By level: low, normal, high or critical (get: show it so)
    #[arg(long, num_args = 0..=1, default_missing_value = "")]
    level: Option<String>,
    /// By code point: AF42, EF or a number (get: show it so)
    #[arg(long, num_args = 0..=1, default_missing_value = "")]
    dscp: Option<String>,
    /// By the octet (get: show it so)
    #[arg(long, num_args = 0..=1, default_missing_value = "")]
    tos: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Thread priority of a channel in YARP's words
#[derive(Args, Debug)]
#[command(
    after_help = "Example: thalweg sched set --src /out --des /in --policy-label SCHED_FIFO --priority 30\n         thalweg sched set --src /out --des /in POL:1 PRT:30"
)]
pub(crate) struct SchedArguments {
    #[command(flatten)]
    ports: Ports,
    /// POL:0|1|2 and PRT:N, instead of the options
    #[arg(value_name = "VALUE")]
    values: Vec<String>,
    /// The policy's number: 0 SCHED_OTHER, 1 SCHED_FIFO, 2 SCHED_RR
    #[arg(long, value_name = "N")]
    policy: Option<String>,
    /// The policy's name
    #[arg(long, value_name = "NAME", conflicts_with = "policy")]
    policy_label: Option<String>,
    /// The priority: 1 to 99; -1: back to the default
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Packet priorities.
pub(crate) fn qos(arguments: &QosArguments) -> Result {
    let QosArguments { ports, values, level, dscp, tos, common } = arguments;
    let options = [("level", level), ("dscp", dscp), ("tos", tos)];
    let form = |report: &EndReport| {
        let number = report.tos.map_or_else(|| "-1".to_owned(), |tos| tos.to_string());
        let point = report.dscp.map_or_else(|| "-1".to_owned(), |dscp: Dscp| dscp.to_string());
        let class = report.class.map_or_else(|| "none".to_owned(), |class| class.name().to_uppercase());
        let all = [("level", "LEVEL", class), ("dscp", "DSCP", point), ("tos", "TOS", number)];
        let asked = |name: &str| {
            options.iter().all(|(_, o)| o.is_none()) || options.iter().any(|(n, o)| *n == name && o.is_some())
        };
        let shown = all.into_iter().filter(|(name, ..)| asked(name)).map(|(_, key, value)| format!("{key}:{value}"));
        shown.collect::<Vec<_>>().join(" ")
    };
    carry_out(ports, common, wish(values, &options), form)
}

/// Thread priorities.
pub(crate) fn sched(arguments: &SchedArguments) -> Result {
    let SchedArguments { ports, values, policy, policy_label, priority, common } = arguments;
    let options = [("policy", policy), ("policy", policy_label), ("priority", priority)];
    let form = |report: &EndReport| {
        let numbers = [("other", 0), ("fifo", 1), ("rr", 2), ("batch", 3), ("idle", 5), ("deadline", 6)];
        let policy = numbers.iter().find(|(name, _)| *name == report.policy).map_or(-1, |(_, number)| *number);
        format!("POL:{policy} PRT:{}", report.priority)
    };
    carry_out(ports, common, wish(values, &options), form)
}

/// Values and options, in YARP's one form.
fn wish(values: &[String], options: &[(&str, &Option<String>)]) -> String {
    let given = options
        .iter()
        .filter_map(|(key, value)| value.as_ref().filter(|v| !v.is_empty()).map(|v| format!("{key}:{v}")));
    given.chain(values.iter().cloned()).collect::<Vec<_>>().join(";")
}

fn carry_out(ports: &Ports, common: &Common, wish: String, form: impl Fn(&EndReport) -> String) -> Result {
    let Ports { mode, src, des } = ports;
    let changes = Changes::from_yarp(&wish).map_err(|wrong| Failure::Usage(wrong.to_string()))?;
    match mode {
        Mode::Set if changes.is_empty() => {
            return Err(Failure::Usage(
                "nothing is set: say --level, --dscp or --tos, --policy and --priority, or a VALUE".into(),
            ));
        }
        Mode::Describe | Mode::Get if !changes.is_empty() => {
            return Err(Failure::Usage(format!("{wish:?} would be set: say set instead of get or describe")));
        }
        _ => {}
    }
    let mut participant = common.open("priority")?;
    participant.settled();
    let reports = match mode {
        Mode::Set => change(&participant, &ends::of(&participant, src, des, Which::Both)?, &changes)?,
        Mode::Describe | Mode::Get => of_channel(&participant, src, des)?,
    };
    if *mode == Mode::Describe {
        return show::print(&participant, src, des, &reports);
    }
    let lines: Vec<(String, String)> = reports.iter().map(|report| (report.end.clone(), form(report))).collect();
    let values = lines.iter().map(|(end, value)| json!({"end": end, "value": value})).collect::<Vec<_>>();
    let document = json!({"publisher": src, "subscriber": des, "values": values, "ends": show::Shown::all(&reports)});
    participant.output.result(&document, || {
        let line = |(end, value): &(String, String)| format!("{end:<10}  {value}");
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_values_become_one_form() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(wish(&[], &[("level", &some("high")), ("tos", &some(""))]), "level:high");
        assert_eq!(wish(&["POL:1".into(), "PRT:30".into()], &[]), "POL:1;PRT:30");
    }
}
