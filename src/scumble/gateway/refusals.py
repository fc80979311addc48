"""Errors on their way to a client: an exception comes in, the Flight error that stands for it goes out.

Scumble's own go with their text and hint. The text of any other may hold a value from the data, and goes nowhere.
"""

from pyarrow import flight

from scumble.errors import (
    AttestationRefused,
    Busy,
    KeyRefused,
    Locked,
    Refused,
    ScumbleError,
    Stale,
    Tampered,
    Unavailable,
)

__all__ = ["flight_error"]


def flight_error(error: Exception) -> flight.FlightError:
    """The error for the client."""
    match error:
        case Busy() | Stale() | Locked() | Unavailable():
            return flight.FlightUnavailableError(str(error))
        case KeyRefused() | Refused():
            return flight.FlightUnauthorizedError(str(error))
        case Tampered() | AttestationRefused():
            return flight.FlightInternalError(str(error))
        case ScumbleError():
            return flight.FlightServerError(str(error))
        case MemoryError():
            return flight.FlightUnavailableError("there is not enough memory\nhint: ask for fewer rows")
        case _:
            return flight.FlightInternalError(f"this should not happen: {type(error).__name__}")
