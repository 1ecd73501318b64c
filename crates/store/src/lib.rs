//! Layer 0: the engine trait: bytes of stripes by key, with its conformance suite and twins
