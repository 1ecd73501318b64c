//! Layer 1: JS4Cloud scripts to workflows, on an embedded JavaScript engine
