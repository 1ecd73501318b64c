//! Layer 1: the memory engine: stripes in recycled blocks of a fixed arena
