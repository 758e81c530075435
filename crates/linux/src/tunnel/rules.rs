//! Rules of an end: a table of `nft` of its own.

use crate::queueing::{QueueError, Reason, nft};

/// A table of the family `netdev`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// Its name.
    pub(super) table: String,
    /// The input of `nft -f -`.
    pub(super) script: String,
}

const FAMILY: &str = "netdev";

impl Rules {
    pub(super) fn command(&self) -> String {
        format!("nft -f - <<'END'\n{}END", self.script)
    }

    /// Puts it in the place of one that is there: at once, no packet meets none. `true` if it is shown as another one then.
    pub(super) fn ensure(&self) -> Result<bool, QueueError> {
        let before = nft::listed(FAMILY, &self.table).map_err(refused)?;
        nft::load(&format!("{}{}", nft::removal(FAMILY, &self.table), self.script)).map_err(refused)?;
        Ok(nft::listed(FAMILY, &self.table).map_err(refused)? != before)
    }

    /// Takes it away; `false` if it is not there.
    pub(super) fn remove(&self) -> Result<bool, QueueError> {
        // Who has no `nft`, or no such family, has no table of ours: a removal would be refused, and what else belongs to the end would stay.
        let is_there = nft::listed(FAMILY, &self.table).is_ok_and(|listed| listed.is_some());
        if is_there {
            nft::load(&nft::removal(FAMILY, &self.table)).map_err(refused)?;
        }
        Ok(is_there)
    }
}

fn refused(error: QueueError) -> QueueError {
    let remedy = "install nftables (the program nft), with Linux 5.16 or later; or state kind = \"vxlan\"".to_owned();
    match error.reason {
        Reason::MissingCapability(_) => error,
        _ => QueueError { remedy, ..error },
    }
}
