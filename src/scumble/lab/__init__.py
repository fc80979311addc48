"""For researchers: comparators, attacks, audits and comparisons. Nothing but the command line imports it."""
