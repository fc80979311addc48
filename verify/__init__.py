"""Proof of what the provider can learn: every check that `make verify` runs, and the table that it prints."""
