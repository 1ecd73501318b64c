//! Layer 4: the mount: a FUSE face over vfs, and what keeps mounts from being left behind
