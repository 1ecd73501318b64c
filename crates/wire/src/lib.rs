//! Layer 1: the words between client and node: requests, answers, refusals
