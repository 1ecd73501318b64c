"""Tests of the Python package, with a pool in the process and with one of separate nodes."""
