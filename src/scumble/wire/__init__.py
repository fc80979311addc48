"""What crosses between owner, provider and enclave: the only things that all three know.

catalog      PUBLIC: the tables and runs of a version, as its manifest states them; an index is bytes here
manifest     the envelope of a catalog and its sealed secrets
predicate    which rows a query wants; its shape, without the constants
plan         what the enclave is to do with them: return rows, or aggregate
grants       what an owner lets an analyst do
requests     what a client asks of the enclave, and the answers
jobs         what the provider's front asks of an enclave process, and the process of its storage
messages     how requests, answers, jobs and calls become JSON, and are checked
channel      how greetings, requests and answers are sealed
pipe         how jobs and calls travel between front and enclave process
storage      the interfaces that the enclave, the provider and the owner see of each other
protocol     the names of the HTTP headers
"""
