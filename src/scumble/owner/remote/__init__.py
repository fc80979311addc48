"""The client's side of a service: addresses, the pins that say which enclave code is trusted, and the connection.

All of it runs on the machine of the key's holder. What leaves is sealed to an enclave whose evidence was verified.
"""
