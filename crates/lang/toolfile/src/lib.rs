//! Layer 1: the tool file: TOML to declared tools
