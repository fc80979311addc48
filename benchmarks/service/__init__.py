"""Figures of the service: a front and two enclaves as processes of their own, and clients over loopback."""
