"""The provider as a service: opaque bytes come in over HTTP, go through pipes to enclave processes, and come back.

UNTRUSTED, all of it. Nothing here has a key, or opens anything that is sealed.
"""
