"""The pipe between the provider's front and an enclave process carries frames; wire/jobs.py says what is in them.

A frame has a kind, a small header of JSON, and a body of opaque bytes. The front sends a JOB; until it is done, the
enclave may CALL for storage, and the front gives the RESULT; then comes the ANSWER. Either may be a FAILURE instead.
A pipe does one job at a time: an enclave process has several. The provider sees everything in a frame.
"""

import json
import socket
import struct
from typing import Any, NamedTuple

from scumble.errors import Unavailable
from scumble.wire.channel import opened_answer, refusal

JOB, CALL, RESULT, ANSWER, FAILURE = b"J", b"C", b"R", b"A", b"F"

_START = struct.Struct("<cIQ")  # the kind, bytes of the header, bytes of the body
MOST_HEADER_BYTES = 1 << 24
MOST_BODY_BYTES = 1 << 36

Bytes = bytes | bytearray | memoryview


class Frame(NamedTuple):
    """What came through a pipe. The body was put where it was asked for, if it has the size that was expected."""

    kind: bytes
    header: list[Any]
    body: Bytes


class Pipe:
    """One end of it. Unavailable if the other end is gone."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, kind: bytes, header: list[Any], *body: Bytes) -> None:
        """Send a frame; a body may come in several pieces."""
        text = json.dumps(header, separators=(",", ":")).encode()
        start = _START.pack(kind, len(text), sum(map(_size, body))) + text
        try:
            if sum(map(_size, body)) < 1 << 16:
                self._end.sendall(b"".join((start, *body)))
                return
            self._end.sendall(start)
            for piece in body:
                self._end.sendall(piece)
        except OSError:
            raise _gone() from None

    def send_failure(self, error: Exception) -> None:
        """Send an error in the place of an answer or a result; of an unforeseen one, only the type."""
        self.send(FAILURE, [], refusal(error))

    def receive(self, into: memoryview | None = None) -> Frame:
        """The next frame; its body goes to `into` if it is just as long."""
        kind, header_bytes, body_bytes = _START.unpack(self._bytes(_START.size))
        if header_bytes > MOST_HEADER_BYTES or body_bytes > MOST_BODY_BYTES:
            raise _gone()
        try:
            header = json.loads(self._bytes(header_bytes))
        except ValueError:
            raise _gone() from None
        if not isinstance(header, list):
            raise _gone()
        if into is not None and kind != FAILURE and body_bytes == into.nbytes:
            self._fill(into)
            return Frame(kind, header, into)
        return Frame(kind, header, self._bytes(body_bytes))

    def receive_kind(self, expected: bytes, into: memoryview | None = None) -> Frame:
        """The next frame, which has to be of this kind; if it is a failure, raise the error that it stands for."""
        frame = self.receive(into)
        if frame.kind == FAILURE:
            opened_answer(bytes(frame.body))
        if frame.kind != expected:
            raise _gone()
        return frame

    def close(self) -> None:
        self._end.close()

    def _bytes(self, count: int) -> bytearray:
        data = bytearray(count)
        self._fill(memoryview(data))
        return data

    def _fill(self, into: memoryview) -> None:
        at, total = 0, into.nbytes
        flat = into.cast("B") if total else into
        while at < total:
            try:
                got = self._end.recv_into(flat[at:])
            except OSError:
                raise _gone() from None
            if not got:
                raise _gone()
            at += got


def _size(piece: Bytes) -> int:
    return piece.nbytes if isinstance(piece, memoryview) else len(piece)


def _gone() -> Unavailable:
    return Unavailable("the enclave process has ended", hint="try again: another one takes its place")
