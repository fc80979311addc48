"""TRUSTED: what runs inside the enclave and sees rows in the clear.

Sealed pages and plans come in; sealed answers go out. The provider sees which pages are read and how long an answer
is, and nothing else: what happens to a row may depend neither in its branches nor in its addresses on what is in it.
"""
