"""The paper's tables and figures, reproduced: one file an experiment, `run` for all of them.

Every experiment returns cells of numbers, which `run` keeps as JSON so that a run can go on where it stopped, and makes
a table and a figure of them.
"""
