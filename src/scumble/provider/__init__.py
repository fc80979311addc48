"""UNTRUSTED: the service. It passes sealed requests on to enclaves, keeps what they seal, and sees what it sees."""
