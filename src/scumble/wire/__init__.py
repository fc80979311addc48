"""What crosses between owner, provider and enclave: the only things that all three know.

catalog      PUBLIC: tables, runs and their indexes, as the manifest states them
manifest     the envelope of a catalog and its sealed secrets
predicate    which rows a query wants; its shape, without the constants
plan         what the enclave is to do with them: return rows, or aggregate
orders       which indexes a load is to have, and what was paid for them
rows         how rows are laid out on their way from the owner to the enclave
requests     executions and rows as bytes
session      how greetings, requests and answers are sealed
storage      what the enclave asks of the provider, and what the provider asks of the enclave
"""
