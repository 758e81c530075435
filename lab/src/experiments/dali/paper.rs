//! What the paper prints, and its claims (D-17, D-18).

/// A row of Table I, in µs: the largest, the mean, the standard deviation.
pub(super) struct Row {
    /// The mapping.
    pub mapping: usize,
    /// The middleware.
    pub name: &'static str,
    /// The largest of an unknown number of samples (E-D4).
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub stdev: f64,
}

const fn row(mapping: usize, name: &'static str, [max, mean, stdev]: [f64; 3]) -> Row {
    Row { mapping, name, max, mean, stdev }
}

/// Table I. One of the two deviations of 680.27 is probably wrong (E-D2): no check uses them.
pub(super) const TABLE_I: [Row; 9] = [
    row(1, "ZeroMQ (paper)", [1740.0, 523.41, 183.68]),
    row(1, "ORTE (paper)", [7599.0, 712.39, 260.39]),
    row(1, "OpenDDS (paper)", [6135.0, 2016.79, 470.46]),
    row(2, "ZeroMQ (paper)", [6752.0, 2368.42, 427.55]),
    row(2, "ORTE (paper)", [10170.0, 4563.44, 832.93]),
    row(2, "OpenDDS (paper)", [11268.0, 4952.68, 680.27]),
    row(3, "ZeroMQ (paper)", [7851.0, 3720.68, 680.27]),
    row(3, "ORTE (paper)", [11940.0, 5092.19, 410.39]),
    row(3, "OpenDDS (paper)", [11482.0, 6179.72, 295.92]),
];

/// 99 of 100 samples take less than this (§V), in µs.
pub(super) const P99: f64 = 7000.0;
