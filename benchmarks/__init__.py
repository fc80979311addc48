"""Measurements: one file for each figure, `run` for all of them, and `demo` for newcomers.

A figure returns numbers, and the lines of the table that `make bench` prints. Nothing here asserts a speed.
"""
