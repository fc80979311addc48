"""What the database reaches, measured against plaintext databases and against itself: one file a figure.

`python -m benchmarks.run --only database` runs them all. Ratios are of one run on one machine, one thread each.
"""
