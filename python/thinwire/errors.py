"""The errors of thinwire: one class for each of the library's error codes.

All derive from `Error`, and from the built-in exception that says the same. What is wrong with
bytes, settings or arrays is a `ValueError` too.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import builtins


class Error(Exception):
    """Base of all of them. Its text reads "origin: what is wrong"."""

    code: str = ""
    """The library's word for the kind of error, such as "bad length"; empty for Error itself."""


class BadLengthError(Error, ValueError):
    """Bytes are too few or too many: a payload, frame or state that was cut."""

    code = "bad length"


class CorruptError(Error, ValueError):
    """Bytes contradict themselves or their checksum."""

    code = "corrupt"


class UnknownNameError(Error, ValueError):
    """There is no such codec, memory, option, exchange or kind; the text lists those that are."""

    code = "unknown name"


class BadOptionError(Error, ValueError):
    """An option's value has the wrong type or is out of range; the text says what it may be."""

    code = "bad option"


class MismatchError(Error, ValueError):
    """Two sides that must agree do not: ranks, or a state and the object it is loaded into."""

    code = "mismatch"


class NonFiniteError(Error, ValueError):
    """A NaN or infinity where a number is needed. Nothing has changed."""

    code = "non-finite"


class ContractError(Error, ValueError):
    """The caller broke a documented condition: a wrong shape, a call out of order."""

    code = "broken contract"


class DTypeError(ContractError, TypeError):
    """An array is not of float32. thinwire does not convert it, which would cost a pass unseen."""


class PeerLostError(Error, ConnectionError):
    """Another rank is gone."""

    code = "peer lost"


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed; the text names the rank that was waited for."""

    code = "timeout"


class IoError(Error, OSError):
    """A file could not be read or written."""

    code = "input/output"


class UnsupportedError(Error, ValueError):
    """Not built in, or not for this combination."""

    code = "unsupported"


_BY_CODE = {
    kind.code: kind
    for kind in (
        BadLengthError,
        CorruptError,
        UnknownNameError,
        BadOptionError,
        MismatchError,
        NonFiniteError,
        ContractError,
        PeerLostError,
        TimeoutError,
        IoError,
        UnsupportedError,
    )
}


def class_of(code: str) -> type[Error]:
    """The class that carries a code of the library; `Error` for one without a class."""
    return _BY_CODE.get(code, Error)
