//! The suite that every engine passes. Engines that need a peer or broker have their own modules.

use super::world::{node, realm};
use thalweg_engines::Engine;
use thalweg_engines::native::Native;
use thalweg_engines::testing::Made;

fn native() -> Made {
    let realm = realm("native");
    let [first, second] = ["first", "second"].map(|name| Box::new(Native::new(node(name, &realm))) as Box<dyn Engine>);
    (first, second)
}

thalweg_engines::engine_conformance!(of_thalweg, native());

#[cfg(feature = "zenoh")]
mod over_zenoh {
    use super::super::world::address;
    use super::super::zenoh_world::{connecting, listening, open, ros_node};
    use thalweg_engines::testing::Made;

    fn zenoh() -> Made {
        let address = address();
        (Box::new(open(listening(&address))), Box::new(open(connecting(&address))))
    }

    fn ros2() -> Made {
        let address = address();
        (Box::new(ros_node("first", &[], &[&address])), Box::new(ros_node("second", &[&address], &[])))
    }

    thalweg_engines::engine_conformance!(of_ros2, ros2());
    thalweg_engines::engine_conformance!(of_zenoh, zenoh());
}
