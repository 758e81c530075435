//! A straight line through points.

/// `a + b·x`, and how much of what the points differ by it explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// At x = 0.
    pub a: f64,
    /// Per unit of x.
    pub b: f64,
    /// Coefficient of determination R², 0 … 1: 1 where all points are on it.
    pub explained: f64,
}

impl Line {
    /// The least-squares line; `None` of fewer than two different x, or what is no number.
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| of(p.0 - x, p.1 - y)).sum::<f64>();
        let (xx, xy, yy) = (sum(&|dx, _| dx * dx), sum(&|dx, dy| dx * dy), sum(&|_, dy| dy * dy));
        let (b, level) = (xy / xx, yy == 0.0);
        let explained = if level { 1.0 } else { xy * b / yy };
        (b.is_finite() && explained.is_finite()).then_some(Self { a: y - b * x, b, explained })
    }

    /// Its height at x.
    pub fn at(&self, x: f64) -> f64 {
        self.a + self.b * x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_velox_fig_11_and_16_is_found() {
        let topics = [(1.0, 9.0), (2.0, 15.0), (3.0, 24.0), (4.0, 34.0), (5.0, 42.0)];
        let line = Line::through(&topics).unwrap();
        assert!((line.b - 8.5).abs() < 1e-9 && (line.a + 0.7).abs() < 1e-9, "{line:?}");
        assert!(line.explained > 0.99 && (line.at(5.0) - 41.8).abs() < 1e-9);
        let subscribers = [(1.0, 400.0), (2.0, 600.0), (4.0, 900.0), (8.0, 1400.0)];
        let line = Line::through(&subscribers).unwrap();
        assert!((line.b - 140.0).abs() < 1.0 && (line.a - 300.0).abs() < 5.0, "{line:?}");
    }

    #[test]
    fn what_is_no_line_has_none_or_explains_little() {
        assert_eq!(Line::through(&[]), None);
        assert_eq!(Line::through(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(Line::through(&[(1.0, f64::NAN), (2.0, 3.0)]), None);
        let bent = Line::through(&[(0.0, 0.0), (1.0, 10.0), (2.0, 0.0)]).unwrap();
        assert!(bent.explained < 0.01, "{bent:?}");
        assert_eq!(Line::through(&[(0.0, 4.0), (9.0, 4.0)]).map(|line| (line.b, line.explained)), Some((0.0, 1.0)));
    }
}
