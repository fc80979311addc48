"""UNTRUSTED: where sealed pages, manifests and transcripts are kept."""
