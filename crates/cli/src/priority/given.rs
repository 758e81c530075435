//! Policies and priority of a port, from the command line and a profile.

use crate::failure::{Failure, Result};
use crate::output::tell;
use crate::policies::Policies;
use crate::quantity;
use clap::Args;
use qos::Qos;
use qos::priority::{Changes, PrioritySettings};
use std::path::PathBuf;
use thalweg::control::Direction;
use thalweg::profile::Profile;

/// Options of verbs whose purpose is a port.
#[derive(Args, Clone, Debug)]
pub(crate) struct Given {
    /// Priority of the port's channels as YARP writes it: "level:high; priority:10; policy:1" (also dscp:, tos:)
    #[arg(long, value_name = "STRING", value_parser = quantity::yarp_qos)]
    qos: Option<Changes>,
    /// Policies and priorities by port name and topic, from a TOML file or a DDS XML profile (docs/qos.md)
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    #[command(flatten)]
    policies: Policies,
}

impl Given {
    /// The settings of a port: those of the profile, overridden by the command line. Policies are set in `qos`.
    pub(crate) fn settings(
        &self,
        name: &str,
        topic: &str,
        direction: Direction,
        qos: &mut Qos,
    ) -> Result<PrioritySettings> {
        let profile = self.profile.as_deref().map(Profile::read).transpose();
        let profile = profile.map_err(|wrong| Failure::Usage(wrong.to_string()))?.unwrap_or_default();
        profile.ignored().iter().for_each(|what| tell(&format!("{what}: has no meaning here, ignored")));
        let mut settings = profile.settings(name, topic, direction);
        profile.policies(name, topic, direction, qos);
        self.policies.apply(qos)?;
        if let Some(changes) = &self.qos {
            changes.apply(&mut settings);
        }
        Ok(settings)
    }
}
