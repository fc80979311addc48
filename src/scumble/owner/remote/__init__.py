"""The client's side of the service: `scumble://host:port/database` comes in, an open database goes out.

It is part of the owner's, or an analyst's, own machine. Everything that leaves is sealed to an enclave whose evidence
was verified first.
"""
