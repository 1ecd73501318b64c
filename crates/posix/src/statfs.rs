//! Space of the pool, as statfs(2) reports it.

use crate::resolve::{Destination, LastMode};
use crate::{Caller, Errno, PathArg, PosixProcess};
use std::os::fd::BorrowedFd;

/// Unit of the block counts, bytes.
const BLOCK_BYTES: u64 = 4096;

/// File system statistics of statfs(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Block size, bytes.
    pub block_bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of free blocks.
    pub free_blocks: u64,
    /// Number of files that can exist.
    pub files: u64,
    /// Number of files that can still be created.
    pub free_files: u64,
}

impl PosixProcess {
    /// statfs(2) of a path. If a symlink leads out of the pool, returns the statistics of the
    /// host's file system.
    ///
    /// # Errors
    /// As statfs(2).
    pub fn statfs(&self, arg: PathArg<'_>) -> Result<StatFs, Errno> {
        let caller = Caller::effective();
        self.wait(async {
            match self.resolve(&caller, arg, LastMode::Follow).await? {
                Destination::Pool(resolved) => resolved.existing().map(drop)?,
                Destination::Host(path) => {
                    return rustix::fs::statvfs(path).map(|found| StatFs {
                        block_bytes: found.f_frsize,
                        blocks: found.f_blocks,
                        free_blocks: found.f_bavail,
                        files: found.f_files,
                        free_files: found.f_favail,
                    });
                }
            }
            self.query_usage().await
        })
    }

    /// fstatfs(2).
    ///
    /// # Errors
    /// `EBADF`, and those of the connection to the pool.
    pub fn fstatfs(&self, descriptor: BorrowedFd<'_>) -> Result<StatFs, Errno> {
        self.table.get(descriptor)?;
        self.wait(self.query_usage())
    }

    async fn query_usage(&self) -> Result<StatFs, Errno> {
        let usage = self.client.query_usage().await.map_err(|refusal| crate::errno(&refusal))?;
        let free = usage.capacity.saturating_sub(usage.used) / BLOCK_BYTES;
        // Inodes use the same memory; free inodes are estimated at one block each.
        let files = usage.files.saturating_add(free);
        Ok(StatFs {
            block_bytes: BLOCK_BYTES,
            blocks: usage.capacity / BLOCK_BYTES,
            free_blocks: free,
            files,
            free_files: free,
        })
    }
}
