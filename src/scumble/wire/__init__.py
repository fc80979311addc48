"""What crosses between owner, provider and enclave: the only things that all three know.

catalog      PUBLIC: the tables and runs of a version, as its manifest states them; an index is bytes here
plan         which rows a query wants, without the constants, and what the enclave is to do with them
grants       what an owner lets an analyst do
requests     what a client asks of the enclave, and the answers
messages     how requests, answers, jobs and calls become JSON, and are checked
channel      how greetings, requests and answers are sealed
pipe         what the provider's front asks of an enclave process, the process of its storage, and how both travel
storage      the interfaces that the three see of each other, the HTTP headers, and the envelope of a manifest
"""
