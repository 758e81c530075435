//! `thalweg bridge mqtt`.

use super::{Result, Topics, carry};
use crate::failure::Failure;
use crate::participant::Common;
use clap::Args;
use engines::mqtt::{Mqtt, Settings};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Carry topics to and from a broker of MQTT: topic /a/b is topic a/b
///
/// The broker has to speak MQTT 5; programs of 3.1.1 at the same broker are served as well. A broker does not tell who subscribes, so
/// all topics that are allowed leave; choose them by --allow. Retained messages are the last sample for late joiners.
#[derive(Args, Debug)]
#[command(after_help = "Example: thalweg bridge mqtt --broker 10.0.0.1 --allow '/robot/**'\n         \
                  thalweg bridge mqtt --broker 10.0.0.1:1884 --user robot --password-file secret --config bridge.toml")]
pub(super) struct MqttArguments {
    /// The broker: host and port, 1883 if it is left out
    #[arg(long, value_name = "HOST[:PORT]", default_value = "127.0.0.1:1883", help_heading = "MQTT")]
    broker: String,
    /// Begin all topics with this: fleet/robot1
    #[arg(long, value_name = "TOPIC", default_value = "", help_heading = "MQTT")]
    prefix: String,
    /// Name of a user of the broker
    #[arg(long, value_name = "NAME", default_value = "", help_heading = "MQTT")]
    user: String,
    /// The user's password: the first line of a file
    #[arg(long, value_name = "FILE", requires = "user", help_heading = "MQTT")]
    password_file: Option<PathBuf>,
    /// Client identifier [default: a random one]
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true, help_heading = "MQTT")]
    client_id: String,
    #[command(flatten)]
    topics: Topics,
    #[command(flatten)]
    common: Common,
}

/// Runs until told to stop.
pub(super) fn run(arguments: &MqttArguments) -> Result {
    let settings = arguments.settings()?;
    let about = json!({"broker": settings.broker, "prefix": settings.prefix, "user": settings.user, "client_id": settings.client_id});
    let open = |bridge| Mqtt::open(settings.clone(), Some(bridge));
    carry(&arguments.common, arguments.topics.rules()?, &about, open)
}

impl MqttArguments {
    fn settings(&self) -> Result<Settings> {
        Ok(Settings {
            broker: self.broker.clone(),
            prefix: self.prefix.clone(),
            user: self.user.clone(),
            password: self.password_file.as_deref().map_or(Ok(String::new()), password)?,
            client_id: self.client_id.clone(),
            ..Settings::default()
        })
    }
}

/// The first line of a file.
fn password(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
