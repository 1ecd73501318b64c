//! Layer 3: local processes: one task's command, run, watched and ended
