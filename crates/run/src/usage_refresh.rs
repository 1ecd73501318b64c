//! Keeps the usage of a pool of other processes up to date: a client knows only what it asked for.

use std::time::Duration;
use vfs::Vfs;

/// Interval between two questions to all nodes.
const INTERVAL: Duration = Duration::from_millis(250);

/// Asks once, then goes on in a task of the current runtime.
pub async fn keep_usage(pool: Vfs) {
    let _ = pool.query_usage().await;
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(INTERVAL).await;
            // A node that does not answer counts with its last answer.
            let _ = pool.query_usage().await;
        }
    });
}
