//! Lines, boxes and text.

use std::fmt::Write;

/// Style of an element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style<'a> {
    pub colour: &'a str,
    /// The size of text.
    pub size: f64,
    pub bold: bool,
    /// Position of text relative to its point: `start`, `middle` or `end`.
    pub anchor: &'a str,
}

impl Default for Style<'_> {
    fn default() -> Self {
        Self { colour: "#1d2127", size: 12.0, bold: false, anchor: "start" }
    }
}

/// A picture that is being drawn.
pub(super) struct Pen(String);

impl Pen {
    pub(super) fn new([width, height]: [f64; 2]) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"Helvetica, Arial, sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ))
    }

    pub(super) fn rect(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], style: Style) {
        let fill = style.colour;
        self.write(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        ));
    }

    /// A box with round corners and a name in its middle.
    pub(super) fn named(&mut self, [x, y]: [f64; 2], round: f64, fill: &str, name: &str) {
        let half = half_width(name);
        let (left, top) = (x - half, y - HALF_HEIGHT);
        let (width, height) = (2.0 * half, 2.0 * HALF_HEIGHT);
        self.write(format_args!(
            "<rect class=\"node\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{round}\" fill=\"{fill}\" stroke=\"#5f6570\"/>"
        ));
        self.text([x, y + 4.5], name, Style { size: 13.0, bold: true, anchor: "middle", ..Style::default() });
    }

    /// A line with a title that is shown when the pointer is on it.
    pub(super) fn line(&mut self, [from, to]: [[f64; 2]; 2], colour: &str, width: f64, title: &str) {
        let ([x1, y1], [x2, y2], title) = (from, to, escaped(title));
        let ends = format!("x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"");
        self.write(format_args!(
            "<line {ends} stroke=\"{colour}\" stroke-width=\"{width:.1}\"><title>{title}</title></line>"
        ));
    }

    pub(super) fn polygon(&mut self, points: [[f64; 2]; 3], colour: &str) {
        let points = points.map(|[x, y]| format!("{x:.1},{y:.1}")).join(" ");
        self.write(format_args!("<polygon points=\"{points}\" fill=\"{colour}\"/>"));
    }

    pub(super) fn text(&mut self, [x, y]: [f64; 2], words: &str, style: Style) {
        let Style { colour, size, bold, anchor } = style;
        let (words, weight) = (escaped(words), if bold { " font-weight=\"bold\"" } else { "" });
        // White around the letters, so that they stay readable above a line.
        self.write(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\"{weight} fill=\"{colour}\" \
             stroke=\"white\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\">{words}</text>"
        ));
    }

    /// A bold title, followed by words of another colour.
    pub(super) fn entitled(&mut self, [x, y]: [f64; 2], title: &str, words: &str, colour: &str) {
        let (title, words) = (escaped(title), escaped(words));
        self.write(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"12\"><tspan font-weight=\"bold\" fill=\"#1d2127\">{title}</tspan>\
             <tspan dx=\"10\" font-size=\"11\" fill=\"{colour}\">{words}</tspan></text>"
        ));
    }

    /// The meaning of a colour; returns the position of the next one.
    pub(super) fn key(&mut self, [x, y]: [f64; 2], colour: &str, words: &str) -> [f64; 2] {
        self.rect([x, y - 9.0], [11.0, 11.0], Style { colour, ..Style::default() });
        self.text([x + 16.0, y], words, Style { size: 11.0, ..Style::default() });
        [x + 34.0 + 6.0 * words.chars().count() as f64, y]
    }

    pub(super) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }

    fn write(&mut self, element: std::fmt::Arguments) {
        // Writing to a text in memory cannot fail.
        let _ = writeln!(self.0, "{element}");
    }
}

/// Half the height of a box with a name in it.
pub(super) const HALF_HEIGHT: f64 = 15.0;

/// Half the width of a box with a name in it.
pub(super) fn half_width(name: &str) -> f64 {
    (4.2 * name.chars().count() as f64 + 12.0).max(24.0)
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
