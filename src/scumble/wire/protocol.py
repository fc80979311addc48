"""The names that client and front have agreed on: the protocol's versions, and the headers. PUBLIC."""

OLDEST, PROTOCOL = 1, 1
"""The protocols that are spoken: from the oldest to the newest."""

VERSION = "scumble-protocol"
STAMP = "scumble-stamp"
SESSION = "scumble-session"
ENCLAVE = "scumble-enclave"
DATABASE = "scumble-database"
"""Headers: the client's protocol; what changes with every commit; a new session; an enclave's id; a database's id."""
