//! Sets of points in the layout of `sensor_msgs/PointCloud2`.

use super::layout::{Bytes, PointCloud2};
use super::{Scaler, Unscalable};
use crate::channel::proxy::Picture;
use crate::codec::{from_cdr, to_cdr_into};

/// Leaves out points, evenly, until there are no more than a picture has pixels.
pub struct Points;

impl Scaler for Points {
    fn scale(&mut self, message: &[u8], picture: Picture, out: &mut Vec<u8>) -> Result<(), Unscalable> {
        let cloud = fewer(from_cdr(message)?, picture)?;
        Ok(to_cdr_into(&cloud, out)?)
    }
}

fn fewer(mut cloud: PointCloud2, picture: Picture) -> Result<PointCloud2, Unscalable> {
    let count = u64::from(cloud.width) * u64::from(cloud.height);
    let (step, row) = (u64::from(cloud.point_step), u64::from(cloud.row_step));
    let line = step * u64::from(cloud.width);
    let needed = (row * u64::from(cloud.height.saturating_sub(1))).saturating_add(line); // each term is below 2⁶⁴, but their sum may not be
    if count == 0 || step == 0 || row < line || needed > cloud.data.0.len() as u64 {
        let PointCloud2 { width, height, point_step, row_step, .. } = cloud;
        let has = cloud.data.0.len();
        let claims = format!("{width}x{height} points of {point_step} bytes in rows of {row_step}");
        return Err(Unscalable(format!("{claims} need {needed} bytes; it has {has}")));
    }
    let most = u64::from(picture.width) * u64::from(picture.height);
    if count <= most {
        return Ok(cloud);
    }
    let width = u64::from(cloud.width);
    let point = |number: u64| (number / width * row + number % width * step) as usize;
    // The n-th of `most` stands for the n-th part of all.
    let kept = (0..most).map(|n| point((u128::from(n) * u128::from(count) / u128::from(most)) as u64));
    let data: Vec<u8> = kept.flat_map(|at| &cloud.data.0[at..at + step as usize]).copied().collect();
    (cloud.width, cloud.height) = (most as u32, 1);
    (cloud.row_step, cloud.data) = (data.len() as u32, Bytes(data));
    Ok(cloud)
}
