//! What is drawn: grouped bars with error bars, as in Fig. 5 of the YARP paper.

use serde::{Deserialize, Serialize};

/// Panels side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Above all of it.
    pub title: String,
    /// What the bars measure, with its unit.
    pub axis: String,
    /// Whether the axis is logarithmic.
    pub logarithmic: bool,
    /// The panels.
    pub panels: Vec<Panel>,
}

/// Groups of bars on one axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Panel {
    /// Above it.
    pub title: String,
    /// From left to right.
    pub groups: Vec<Group>,
}

/// Bars next to each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Below it.
    pub label: String,
    /// From left to right.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// What it stands for; bars of a series have one colour.
    pub series: String,
    /// Its height.
    pub value: f64,
    /// Half the length of its error bar: the standard deviation.
    pub deviation: f64,
    /// A mark of its own at this height, such as the 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<f64>,
}
