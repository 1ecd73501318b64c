//! Extended attributes of an inode.
