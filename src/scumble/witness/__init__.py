"""A witness: it remembers the newest version of each database that was shown to it, and signs that it has.

It learns ids, version numbers, hashes and public keys, and no name, table or row; it needs no secret but its own key.

cosignatures  what is presented to a witness, and what it answers
log           what it remembers, on disk, and how it judges
server        the same over HTTP
"""
