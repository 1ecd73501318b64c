//! Layer 4: one run of a workflow: scheduler, processes and pool brought together
