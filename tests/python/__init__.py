"""The Python package: against a pool in the process, and one of nodes in processes of their own."""
