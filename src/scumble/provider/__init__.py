"""UNTRUSTED: the provider. It keeps sealed pages, passes sealed requests on to the enclave, and sees what it sees.

store        FileStore: sealed runs and manifests in a folder; shapes, runs, files and lock are its parts
transcript   what the provider has seen; transcript_log keeps it in a file
front        Provider: what owners talk to
"""

from scumble.provider.front import Provider
from scumble.store.files import FileStore
from scumble.store.transcript import Event, Exchange, Transcript, comparable, exchanges

__all__ = ["Event", "Exchange", "FileStore", "Provider", "Transcript", "comparable", "exchanges"]
