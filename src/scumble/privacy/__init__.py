"""All that spends epsilon: the ledger, and the mechanisms that it pays for."""
