//! Layer 0: where things live: file ids, partitions, the partition map
