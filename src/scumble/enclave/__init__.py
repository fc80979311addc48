"""TRUSTED: what runs inside the enclave and sees rows in the clear.

The provider sees which pages are read and how long an answer is, and nothing else: what happens to a row may depend
neither in its branches nor in its addresses on what is in it.

process     the enclave as a process of its own, behind pipes
sessions    opens requests, checks who may ask, has them answered
versions    seals, opens, chains and commits the versions of a database, and remembers the newest
loads       makes sorted, sealed runs and their indexes of the rows of a batch
queries     executes plans
grants      who may do what
pages       columns of rows, sealed page by page
kernels     the compiled code that works on rows
fresh_keys  keys for one greeting or hand-over each
sharing     hands what is remembered to another enclave
"""
