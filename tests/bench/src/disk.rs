//! How long the disk takes to make a few bytes durable.

use std::fs::File;
use std::io::Write;
use std::time::Instant;

use crate::statistics::median;

const TIMES: usize = 200;

/// The median of some syncs, in milliseconds, of 4 KiB each at the end of a file. The file is where the databases are.
pub(crate) fn median_fsync_ms() -> anyhow::Result<f64> {
    let folder = tempfile::Builder::new().prefix("hookfast-bench-").tempdir()?;
    let mut file = File::create(folder.path().join("fsync"))?;
    let mut times = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        let start = Instant::now();
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(median(&times))
}
