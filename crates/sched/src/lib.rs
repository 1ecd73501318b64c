//! Layer 2: which task runs next: the task table as a pure decider
