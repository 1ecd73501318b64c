//! Layer 3: files over the client: open-file table, paths, reads and writes
