//! A scaler of one's own: grids of heights, of which a subscriber requests a coarser one. Both ends are in this
//! program.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg::codec::{from_cdr, to_cdr_into};
use thalweg::proxy::Picture;
use thalweg::proxy::scaler::{Scaler, Scalers, Unscalable};
use thalweg::{Node, Settings};

#[derive(Serialize, Deserialize)]
struct Grid {
    width: u32,
    heights: Vec<f32>,
}

/// Takes one height of each square, so that the grid is no wider than requested.
struct Coarser;

impl Scaler for Coarser {
    fn scale(&mut self, message: &[u8], picture: Picture, out: &mut Vec<u8>) -> Result<(), Unscalable> {
        let grid: Grid = from_cdr(message)?;
        let width = grid.width as usize;
        // The message may claim a wrong size: then the sample is left out, counted and reported.
        if width == 0 || !grid.heights.len().is_multiple_of(width) {
            return Err(Unscalable(format!("{} heights are no rows of {width}", grid.heights.len())));
        }
        let step = width.div_ceil(picture.width.into());
        let rows = grid.heights.chunks(width).step_by(step);
        let heights = rows.flat_map(|row| row.iter().step_by(step)).copied().collect();
        to_cdr_into(&Grid { width: width.div_ceil(step) as u32, heights }, out)?;
        Ok(())
    }
}

fn main() -> thalweg::Result<()> {
    // The node that has the proxy needs it: here the publisher's.
    let scalers = Scalers::default().with("/ground", || Coarser);
    let there = Node::with_settings(Settings { name: "surveyor".into(), scalers, ..Settings::default() })?;
    let here = Node::open("map")?;
    let mut publisher = there.publisher::<Grid>("/ground").open()?;
    let mut coarse = here.subscriber::<Grid>("/ground").picture(4, 4).open()?;
    assert!(publisher.wait_connected(1, Duration::from_secs(10)) && coarse.wait_connected(1, Duration::from_secs(10)));
    publisher.publish(&Grid { width: 12, heights: (0..144).map(|n| n as f32).collect() })?;
    if let Some(sample) = coarse.wait(Duration::from_secs(10)) {
        println!("of 144 heights {} came: {:?}", sample.heights.len(), sample.heights);
    }
    Ok(())
}
