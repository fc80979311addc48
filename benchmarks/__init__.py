"""What Scumble reaches, measured: one file a figure, `run` for all of them, `demo` for a newcomer.

A figure returns numbers and the lines of the table that `make bench` prints; nothing here asserts a speed.
"""
