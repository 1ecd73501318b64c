//! Layer 3: a node: partitions and an engine behind requests
