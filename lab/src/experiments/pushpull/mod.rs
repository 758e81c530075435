//! Push and pull: the experiments of the paper on proxies (P-40 … P-46, Tables 1, 2 and 4).
//!
//! | module | contents |
//! |---|---|
//! | `testbed` | publisher, subscriber and relay in their places, and one run |
//! | `proxy` | `pushpull-proxy`: the cost of a proxy, by its place, and its stages (Table 4) |
//! | `sizes` | `pushpull-1` … `pushpull-4`: round trips by size, place and distance |
//! | `places`, `tables` | `pushpull-places`: Tables 1 and 2, levels of cost by the place of the proxy |
//! | `loaded` | `pushpull-5`: beside other work, without a reservation |

mod loaded;
mod places;
mod proxy;
mod sizes;
mod tables;
mod testbed;

pub(super) use loaded::PushPullLoaded;
pub(super) use places::PushPullPlaces;
pub(super) use proxy::PushPullProxy;
pub(super) use sizes::PushPullSizes;

use super::Tally;

/// Largest factor by which a proxy at the publisher or subscriber may lengthen a round trip.
const LONGER: f64 = 1.03;

const NEARLY_ALL: &str = "A proxy takes all but one of 2^24 samples: one that takes all would be none at all at the publisher or the \
                          subscriber, whose code for it is never entered.";
const HALF: &str = "Table 4 is of the way there alone, by udp (for datagrams the kernel says when they came), measured in runs of their own with \
                    every sample's stages noted. All being on one processor, a relay's own processor time is nearly all that the \
                    way over it takes longer: what is left for `proxy com` is little, and within the noise of two means.";

/// p50 of each repetition over that of the other's.
fn quotients(over: &Tally, under: &Tally) -> Vec<f64> {
    over.pairs(under, |d| d.p50).into_iter().map(|(over, under)| over / under).collect()
}
