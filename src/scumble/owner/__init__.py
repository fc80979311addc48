"""The owner's side: it holds the data, the keys and the ledger, and may see everything.

Rows leave it sealed to the enclave, and answers come back sealed to it. What is secret here stays out of errors, logs
and reprs all the same, since those travel further than the data does.
"""
