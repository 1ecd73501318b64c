//! Layer 2: what a run leaves behind: run.json and report.html
