//! The figure as SVG.

use super::{Bar, Figure, Group, Panel};
use std::fmt::Write;

/// Colours of series, in the order in which they appear.
const COLOURS: [&str; 10] =
    ["#9a9a9a", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#332288", "#882255"];

const BAR: f64 = 24.0;
const BETWEEN_GROUPS: f64 = 22.0;
const LEFT: f64 = 66.0;
/// From one row of the legend to the next, the first of which is below the title.
const LEGEND_ROW: f64 = 20.0;
const LEGEND: f64 = 46.0;
const PANEL_HEIGHT: f64 = 240.0;
const ABOVE_PANEL: f64 = 26.0;
const BELOW_PANEL: f64 = 44.0;
const BETWEEN_PANELS: f64 = 60.0;
/// The width beyond which panels continue in the next row.
const WIDTH: f64 = 1180.0;

/// Draws it.
pub fn draw(figure: &Figure) -> String {
    let series = series(figure);
    let axis = Axis::of(&figure.panels, figure.logarithmic);
    let (places, explanation) = (places(figure), explanation(figure));
    let texts =
        [(&figure.title, 9.0), (&explanation, 6.5)].map(|(text, each)| 16.0 + each * text.chars().count() as f64);
    let panels = places.iter().zip(&figure.panels).map(|((x, _), panel)| x + width(panel));
    let right = panels.chain(texts).fold(480.0, f64::max) + 16.0;
    let legend = legend(&series, right);
    let top = legend.iter().map(|(_, y)| *y).fold(LEGEND, f64::max) + 28.0 + ABOVE_PANEL;
    let bottom = top + places.iter().map(|(_, y)| *y).fold(0.0, f64::max) + PANEL_HEIGHT + BELOW_PANEL + 26.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{right:.0}\" height=\"{bottom:.0}\" viewBox=\"0 0 {right:.0} {bottom:.0}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, [16.0, 24.0], "start", "font-size=\"16\"", &figure.title);
    draw_legend(&mut svg, &series, &legend);
    for (panel, (x, y)) in figure.panels.iter().zip(places) {
        let own = Axis::of(std::slice::from_ref(panel), figure.logarithmic);
        let seen = figure.logarithmic || highest(std::slice::from_ref(panel)) * 10.0 >= axis.high;
        draw_panel(&mut svg, panel, (x, top + y), if seen { &axis } else { &own }, &series);
    }
    text(&mut svg, [16.0, bottom - 10.0], "start", "fill=\"#555\"", &explanation);
    svg.push_str("</svg>\n");
    svg
}

fn series(figure: &Figure) -> Vec<&str> {
    let mut all = Vec::new();
    for bar in bars(&figure.panels) {
        if !all.contains(&bar.series.as_str()) {
            all.push(bar.series.as_str());
        }
    }
    all
}

fn bars(panels: &[Panel]) -> impl Iterator<Item = &Bar> {
    panels.iter().flat_map(|panel| &panel.groups).flat_map(|group| &group.bars)
}

fn highest(panels: &[Panel]) -> f64 {
    bars(panels).map(|bar| (bar.value + bar.deviation).max(bar.mark.unwrap_or(0.0))).fold(0.0, f64::max)
}

fn explanation(figure: &Figure) -> String {
    let mark = if bars(&figure.panels).any(|bar| bar.mark.is_some()) { "; diamond: 99th percentile" } else { "" };
    let scale = if figure.logarithmic { "; logarithmic scale" } else { "" };
    // Without deviations, the axis says all that there is to say.
    let plain = bars(&figure.panels).all(|bar| bar.deviation == 0.0);
    let bar = if plain { "" } else { ". Bar: mean; line: one standard deviation to either side" };
    format!("{}{bar}{mark}{scale}.", figure.axis)
}

/// Positions of the series' names, in rows no longer than the picture is wide.
fn legend(series: &[&str], right: f64) -> Vec<(f64, f64)> {
    let (mut x, mut y) = (16.0, LEGEND);
    let place = |name: &&str| {
        let width = 40.0 + 7.5 * name.chars().count() as f64;
        if x > 16.0 && x + width > right {
            (x, y) = (16.0, y + LEGEND_ROW);
        }
        let place = (x, y);
        x += width;
        place
    };
    series.iter().map(place).collect()
}

fn draw_legend(svg: &mut String, series: &[&str], places: &[(f64, f64)]) {
    for ((name, colour), (x, y)) in series.iter().zip(COLOURS.iter().cycle()).zip(places) {
        let top = y - 10.0;
        let _ = writeln!(svg, "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"14\" height=\"12\" fill=\"{colour}\"/>");
        text(svg, [x + 19.0, *y], "start", "", name);
    }
}

fn width(panel: &Panel) -> f64 {
    let groups: f64 = panel.groups.iter().map(group_width).sum();
    (groups + BETWEEN_GROUPS).max(7.5 * panel.title.chars().count() as f64)
}

fn group_width(group: &Group) -> f64 {
    let label = 7.0 * group.label.chars().count() as f64;
    (BAR * group.bars.len().max(1) as f64).max(label) + BETWEEN_GROUPS
}

/// Upper left corner of each panel's axes, counted from the first row's.
fn places(figure: &Figure) -> Vec<(f64, f64)> {
    let (mut x, mut y) = (LEFT, 0.0);
    let place = |panel: &Panel| {
        if x > LEFT && x + width(panel) > WIDTH {
            (x, y) = (LEFT, y + PANEL_HEIGHT + BELOW_PANEL + ABOVE_PANEL);
        }
        let place = (x, y);
        x += width(panel) + BETWEEN_PANELS;
        place
    };
    figure.panels.iter().map(place).collect()
}

/// The scale of heights: one axis for all panels but those that would hardly be seen.
struct Axis {
    logarithmic: bool,
    low: f64,
    high: f64,
}

impl Axis {
    fn of(panels: &[Panel], logarithmic: bool) -> Self {
        let high = highest(panels);
        let low = bars(panels).map(|bar| bar.value).filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        if !logarithmic || !low.is_finite() || high <= 0.0 {
            let step = step(high.max(1.0));
            return Self { logarithmic: false, low: 0.0, high: step * (high.max(1.0) / step).ceil() };
        }
        // Half a decade below the least mean, so that its bar has a length.
        let low = 10f64.powf((low / 3.0).log10().floor());
        Self { logarithmic: true, low, high: 10f64.powf(high.log10().ceil()).max(low * 10.0) }
    }

    /// From 0 at the bottom to 1.
    fn height(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    /// Values with a line, and whether they have a number.
    fn ticks(&self) -> Vec<(f64, bool)> {
        if !self.logarithmic {
            let step = step(self.high);
            return (0..=(self.high / step).round() as u32).map(|n| (f64::from(n) * step, true)).collect();
        }
        let decades = (self.high / self.low).log10().round() as i32;
        let begin = self.low.log10().round() as i32;
        let lines = (0..=decades).flat_map(|n| [1.0, 2.0, 5.0].map(|m| (m * 10f64.powi(begin + n), m < 2.0)));
        lines.filter(|(value, _)| *value <= self.high * 1.0001).collect()
    }
}

/// A round distance for about five lines.
fn step(high: f64) -> f64 {
    let rough = high / 5.0;
    let decade = 10f64.powf(rough.log10().floor());
    let fits = [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * decade >= rough);
    fits.unwrap_or(10.0) * decade
}

fn draw_panel(svg: &mut String, panel: &Panel, (x, y): (f64, f64), axis: &Axis, series: &[&str]) {
    let (right, bottom) = (x + width(panel), y + PANEL_HEIGHT);
    text(svg, [f64::midpoint(x, right), y - 10.0], "middle", "font-weight=\"bold\"", &panel.title);
    for (value, numbered) in axis.ticks() {
        let at = bottom - axis.height(value) * PANEL_HEIGHT;
        line(svg, [x, at, right, at], if numbered { "#bbb" } else { "#eee" });
        if numbered {
            text(svg, [x - 6.0, at + 4.0], "end", "", &number(value));
        }
    }
    let mut left = x + BETWEEN_GROUPS;
    for group in &panel.groups {
        let inner = group_width(group) - BETWEEN_GROUPS;
        let begin = left + (inner - BAR * group.bars.len() as f64) / 2.0;
        for (n, bar) in group.bars.iter().enumerate() {
            draw_bar(svg, bar, begin + BAR * n as f64, bottom, axis, series);
        }
        text(svg, [left + inner / 2.0, bottom + 18.0], "middle", "", &group.label);
        left += inner + BETWEEN_GROUPS;
    }
    line(svg, [x, bottom, right, bottom], "#333");
}

fn draw_bar(svg: &mut String, bar: &Bar, x: f64, bottom: f64, axis: &Axis, series: &[&str]) {
    let at = |value| bottom - axis.height(value) * PANEL_HEIGHT;
    let index = series.iter().position(|name| *name == bar.series).unwrap_or(0);
    let (top, middle, colour) = (at(bar.value), x + BAR / 2.0, COLOURS[index % COLOURS.len()]);
    let deviation = match bar.deviation > 0.0 {
        true => format!(", standard deviation {}", number(bar.deviation)),
        false => String::new(),
    };
    let p99 = bar.mark.map(|mark| format!(", 99th percentile {}", number(mark))).unwrap_or_default();
    let _ = writeln!(
        svg,
        "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"><title>{}: {}{deviation}{p99}</title></rect>",
        x + 1.5,
        BAR - 3.0,
        bottom - top,
        escaped(&bar.series),
        number(bar.value),
    );
    if bar.deviation > 0.0 {
        let (high, low) = (at(bar.value + bar.deviation), at(bar.value - bar.deviation));
        line(svg, [middle, high, middle, low], "#222");
        for end in [high, low] {
            line(svg, [middle - 4.0, end, middle + 4.0, end], "#222");
        }
    }
    if let Some(mark) = bar.mark {
        let y = at(mark);
        let points = format!(
            "{:.1},{y:.1} {middle:.1},{:.1} {:.1},{y:.1} {middle:.1},{:.1}",
            middle - 5.0,
            y - 5.0,
            middle + 5.0,
            y + 5.0
        );
        let _ = writeln!(svg, "<polygon points=\"{points}\" fill=\"white\" stroke=\"#222\"/>");
    }
}

fn line(svg: &mut String, [x1, y1, x2, y2]: [f64; 4], colour: &str) {
    let _ = writeln!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>");
}

fn text(svg: &mut String, [x, y]: [f64; 2], anchor: &str, more: &str, text: &str) {
    let text = escaped(text);
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{text}</text>");
}

/// Three significant digits, without an exponent.
fn number(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{} M", number(v / 1e6)),
        v if v >= 1e4 => format!("{} k", number(v / 1e3)),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}").trim_end_matches(".0").to_owned(),
        v if v == v.round() => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}

/// Text as XML and HTML want it.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(logarithmic: bool) -> Figure {
        let bar =
            |series: &str, value| Bar { series: series.into(), value, deviation: value / 2.0, mark: Some(value * 3.0) };
        let group = Group { label: "UDP < TCP".into(), bars: vec![bar("normal", 9000.0), bar("qos", 90.0)] };
        let panel = Panel { title: "120 %".into(), groups: vec![group] };
        Figure { title: "title".into(), axis: "round trip, µs".into(), logarithmic, panels: vec![panel; 9] }
    }

    #[test]
    fn every_bar_is_drawn_within_the_picture_and_text_is_escaped() {
        for logarithmic in [true, false] {
            let svg = draw(&figure(logarithmic));
            assert_eq!(svg.matches("<title>").count(), 18);
            assert_eq!(svg.matches("<polygon").count(), 18);
            assert!(svg.contains("UDP &lt; TCP") && !svg.contains("NaN") && !svg.contains("inf"));
            assert!(!svg.contains("=\"-"), "something is outside");
        }
    }

    #[test]
    fn a_long_legend_goes_on_in_the_next_row_and_a_long_text_widens_the_picture() {
        let names = ["a proxy at the publisher"; 9];
        let places = legend(&names, 500.0);
        assert!(places.iter().all(|(x, _)| x + 40.0 + 7.5 * 24.0 <= 500.0), "{places:?}");
        assert_eq!((places[0], places[8]), ((16.0, LEGEND), (16.0, LEGEND + 4.0 * LEGEND_ROW)));
        let mut figure = figure(false);
        figure.panels.truncate(1);
        figure.title = "x".repeat(100);
        let width: f64 = draw(&figure).split('"').nth(3).and_then(|width| width.parse().ok()).unwrap();
        assert!(width > 900.0, "{width}");
    }

    #[test]
    fn heights_are_where_the_lines_say() {
        let axis = Axis::of(&figure(true).panels, true);
        assert_eq!((axis.low, axis.high), (10.0, 100_000.0));
        assert!((axis.height(1000.0) - 0.5).abs() < 1e-9);
        assert_eq!((axis.height(-5.0), axis.height(1e9)), (0.0, 1.0));
        let numbered = axis.ticks().into_iter().filter(|(_, numbered)| *numbered).count();
        assert_eq!(numbered, 5);
        let axis = Axis::of(&figure(false).panels, false);
        assert_eq!((axis.low, axis.high), (0.0, 30_000.0));
        assert_eq!([0.5, 12.34, 9000.0, 12_340.0, 1e7].map(number), ["0.50", "12.3", "9000", "12.3 k", "10 M"]);
    }

    #[test]
    fn a_panel_that_would_hardly_be_seen_has_an_axis_of_its_own() {
        let mut figure = figure(false);
        figure.panels.truncate(2);
        figure.panels[1].groups[0]
            .bars
            .iter_mut()
            .for_each(|bar| (bar.value, bar.deviation, bar.mark) = (7.0, 0.0, None));
        let svg = draw(&figure);
        assert!(svg.contains(">30 k<") && svg.contains(">8<"), "{svg}");
        figure.panels[1].groups[0].bars[0].value = 9000.0;
        assert!(!draw(&figure).contains(">8<"));
    }

    #[test]
    fn an_empty_figure_is_drawn() {
        assert!(draw(&Figure::default()).ends_with("</svg>\n"));
    }
}
