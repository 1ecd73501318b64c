//! Layer 4: tests only: simulation, linearizability checkers and models of the pool's file system.
