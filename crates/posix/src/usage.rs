//! How much room the pool has, as statfs(2) tells it.

use crate::walk::{End, Place};
use crate::{Errno, Process, Said, Who};
use std::os::fd::BorrowedFd;

/// `f_bsize`, and what `f_blocks` counts in, bytes.
const BLOCK_BYTES: u64 = 4096;

/// What statfs(2) tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks that are free.
    pub free_blocks: u64,
    /// Files that there may be.
    pub files: u64,
    /// Files that there may be yet.
    pub free_files: u64,
}

impl Process {
    /// statfs(2) of a path; none where a link leads out of the pool, to that path of the host.
    ///
    /// # Errors
    /// As statfs(2).
    pub fn usage(&self, said: Said<'_>) -> Result<Room, Errno> {
        let who = Who::now();
        self.wait(async {
            match self.walk(&who, said, End::Follow).await? {
                Place::Pool(spot) => spot.there().map(drop)?,
                Place::Host(path) => {
                    return rustix::fs::statvfs(path).map(|found| Room {
                        block_bytes: found.f_frsize,
                        blocks: found.f_blocks,
                        free_blocks: found.f_bavail,
                        files: found.f_files,
                        free_files: found.f_favail,
                    });
                }
            }
            self.ask_usage().await
        })
    }

    /// fstatfs(2).
    ///
    /// # Errors
    /// `EBADF`, and those of the way to the pool.
    pub fn usage_of(&self, descriptor: BorrowedFd<'_>) -> Result<Room, Errno> {
        self.table.get(descriptor)?;
        self.wait(self.ask_usage())
    }

    async fn ask_usage(&self) -> Result<Room, Errno> {
        let usage = self.client.ask_usage().await.map_err(|refusal| crate::errno(&refusal))?;
        let free = usage.capacity.saturating_sub(usage.used) / BLOCK_BYTES;
        // Inodes take their room from the same memory: as many are free as fit if each took a block.
        let files = usage.files.saturating_add(free);
        Ok(Room {
            block_bytes: BLOCK_BYTES,
            blocks: usage.capacity / BLOCK_BYTES,
            free_blocks: free,
            files,
            free_files: free,
        })
    }
}
