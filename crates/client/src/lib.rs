//! Layer 3: the client of a pool: routes requests by the partition map, retries, stripes data
