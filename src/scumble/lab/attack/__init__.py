"""Attacks: what a provider can make of what it sees, tried on made-up data only.

Each attack sees the public catalog, the indexes and the transcript, and some background knowledge: the queries'
distribution, or every other row. Each is also tried on something that leaks, where it has to win: an attack that cannot
win proves nothing. `scumble attack` runs them; docs/threat-model.md says what they show that is not hidden.

    reconstruction   the key column, from the ranges that queries read
    single_record    whether one row is in the table, knowing all others
    volume           how many rows answer a query, from the sizes of what goes back
    averaging        a count, from the same query a million times
    storage          a wrong answer, from pages and versions that were swapped, put back or cut
"""
