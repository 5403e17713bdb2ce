"""Codecs turn arrays of float32 into bytes and back, losing precision on purpose."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional

import numpy as np
import numpy.typing as npt

from . import _core
from ._arrays import FloatArray, to_bytes, to_read, to_write
from ._state import read_state, write_state
from .errors import ContractError, DTypeError
from .options import OptionInfo, option_table, spec_text
from .streams import Shape, Stream, TensorSpec, checked_call, make_stream


@dataclass(frozen=True)
class CodecInfo:
    """The properties and options of a codec. docs/codecs.md compares codecs."""

    name: str
    id: int
    """Written in every frame header; never used for another encoding."""
    summary: str
    paper: str
    """The publication; empty for common knowledge."""
    unbiased: bool
    """The mean of decode(encode(x)) over seeds is x."""
    lossless: bool
    """decode(encode(x)) is x, bit for bit."""
    linear: bool
    """Payloads of equal ranges may be decoded, added and encoded again."""
    fixed_size: bool
    """Every payload of a stream has max_encoded_size bytes."""
    block: int
    """Number of values in a block that is coded by itself; 0: the whole stream."""
    grouping: str
    """Streams of an exchange: "tensor" (each tensor alone) or "model" (all tensors as one vector)."""
    global_threshold: bool
    """Whether one threshold can select from all tensors, the grouping "global"."""
    agreed: str
    """What ranks agree on before they encode: "nothing", "scale", "positions" or "factors"."""
    options: dict[str, OptionInfo]


class Encoded(NamedTuple):
    """The counts of one encode."""

    size: int
    """Bytes written."""
    kept: int
    """Values that the payload carries."""
    target: int
    """Values that the options ask for; 0 if the method has no target."""


def codecs() -> tuple[CodecInfo, ...]:
    """Every codec of the library with its defaults, in the order of the registry."""
    return tuple(_info_of(row) for row in _core.list_codecs())


def _info_of(row: dict[str, Any]) -> CodecInfo:
    return CodecInfo(**dict(row, options=option_table(row["options"])))


class Codec:
    """A codec with its options. Threads may share it.

    Args:
        name: the codec's name, or a whole spec such as "topk:density=0.01,values=fp16".
        options: its options by name; `codecs()` lists them with defaults and ranges. Lists of
            numbers may be given as such.

    Raises:
        UnknownNameError: there is no such codec or option; the text lists the known ones.
        BadOptionError: the value of an option is not allowed.

    Codecs with equal options are equal, and can be pickled.
    """

    def __init__(self, name: str, **options: Any) -> None:
        if not isinstance(name, str):
            raise DTypeError(f"codec: name is a {type(name).__name__}, must be a str")
        self._native = _core.Codec.make(spec_text(f"codec '{name}'", name, options))

    @property
    def spec(self) -> str:
        """The text that selects it, with every option written out: equal settings give equal text."""
        return self._native.canonical

    @property
    def info(self) -> CodecInfo:
        """Its properties with these options."""
        return _info_of(self._native.info())

    def max_encoded_size(
        self,
        shape: Optional[Shape] = None,
        kind: str = "other",
        *,
        tensors: Optional[Iterable[TensorSpec]] = None,
    ) -> int:
        """Upper bound on the bytes of a payload of such a stream, whatever the values are."""
        return self._native.max_encoded_size(make_stream(shape, kind, "values", tensors).native())

    def encoder(
        self,
        shape: Optional[Shape] = None,
        kind: str = "other",
        *,
        name: str = "values",
        tensors: Optional[Iterable[TensorSpec]] = None,
        auto_commit: bool = True,
    ) -> Encoder:
        """The sending side of one stream.

        Args:
            shape: the shape of the arrays; an int for one dimension.
            kind: the role of the tensor in its network, one of `tensor_kinds()`.
            name: the name of the stream; random draws depend on it.
            tensors: instead of shape and kind, the tensors whose values are passed as one vector.
            auto_commit: if true, every encode counts at once. If false, each must be followed by
                `commit` or `rollback`.
        """
        return Encoder(self, make_stream(shape, kind, name, tensors), auto_commit)

    def decoder(
        self,
        shape: Optional[Shape] = None,
        kind: str = "other",
        *,
        name: str = "values",
        tensors: Optional[Iterable[TensorSpec]] = None,
    ) -> Decoder:
        """The receiving side of one stream; describe it as for the encoder."""
        return Decoder(self, make_stream(shape, kind, name, tensors))

    def __repr__(self) -> str:
        return f"thinwire.Codec({self.spec!r})"

    def __eq__(self, other: object) -> bool:
        return self.spec == other.spec if isinstance(other, Codec) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.spec)

    def __reduce__(self) -> tuple[type[Codec], tuple[str]]:
        return (Codec, (self.spec,))


class Encoder:
    """The sending side of one stream, made by `Codec.encoder`.

    It keeps what a method carries from step to step (a number of stages, a threshold in use), so
    there is one per stream. If two threads use it at once, one gets a ContractError; threads with
    an encoder each run in parallel. Do not write to the arrays of a call while it runs.

    Arrays are read in place if they are float32 and in one piece (C order), and copied if
    they are float32 but strided. Other types are refused, see `DTypeError`. An array has the
    stream's shape, or is flat with as many values.
    """

    def __init__(self, codec: Codec, stream: Stream, auto_commit: bool) -> None:
        self._codec = codec
        self._stream = stream
        self._native = _core.Encoder(codec._native, stream.name, stream.native(), auto_commit)
        self._encoded: Optional[Encoded] = None

    @property
    def codec(self) -> Codec:
        return self._codec

    @property
    def shape(self) -> tuple[int, ...]:
        return self._stream.shape

    @property
    def max_encoded_size(self) -> int:
        """The most bytes that a payload can have, whatever the values are."""
        return self._native.capacity

    @property
    def encoded(self) -> Optional[Encoded]:
        """The counts of the last encode; None before the first."""
        return self._encoded

    def encode(
        self,
        values: npt.ArrayLike,
        fresh: Optional[npt.ArrayLike] = None,
        *,
        seed: int = 0,
        step: int = 0,
        salt: int = 0,
        ranks: int = 1,
    ) -> bytes:
        """Returns the payload of `values`, which are not changed.

        Args:
            values: the values that should arrive: the gradient plus what a memory adds.
            fresh: this step's own part of them (AdaComp's dW); None: the values.
            seed: the seed of the run, the same on every rank.
            step: the number of the step. Equal state, values, seed, step and salt give equal bytes on
                every machine.
            salt: a number that differs between senders, such as the rank, for draws that should be
                independent between ranks.
            ranks: the number of contributions that are averaged.

        Raises:
            DTypeError, ContractError: an array of another type or shape.
            NonFiniteError: a NaN or infinity; the encoder is as it was.
        """
        payload, counts = self._native.encode(
            self._read("values", values),
            self._read("fresh", fresh),
            None,
            checked_call(seed, step, salt, ranks),
        )
        self._encoded = Encoded(*counts)
        return payload

    def encode_with_remainder(
        self,
        values: npt.ArrayLike,
        fresh: Optional[npt.ArrayLike] = None,
        *,
        rest: Optional[FloatArray] = None,
        seed: int = 0,
        step: int = 0,
        salt: int = 0,
        ranks: int = 1,
    ) -> tuple[bytes, FloatArray]:
        """Returns the payload, and values - decode(payload), computed in the same passes.

        Args:
            rest: the array for the remainder; it may be `values` itself, but must not overlap it in
                part. None: a new array.

        The other arguments and the errors are those of `encode`.
        """
        left = np.empty(self.shape, np.float32) if rest is None else rest
        payload, counts = self._native.encode(
            self._read("values", values),
            self._read("fresh", fresh),
            to_write("rest", left, self.shape),
            checked_call(seed, step, salt, ranks),
        )
        self._encoded = Encoded(*counts)
        return payload, left

    def encode_into(
        self,
        out: Any,
        values: npt.ArrayLike,
        fresh: Optional[npt.ArrayLike] = None,
        *,
        rest: Optional[FloatArray] = None,
        seed: int = 0,
        step: int = 0,
        salt: int = 0,
        ranks: int = 1,
    ) -> int:
        """Writes the payload to memory that the caller reuses; returns its number of bytes.

        Args:
            out: a writable bytes-like object (bytearray, uint8 array) of at least
                `max_encoded_size` bytes. What follows the payload is unspecified.
            rest: receives the remainder if given.
        """
        view = to_bytes("out", out)
        if view.readonly:
            raise ContractError("out: is read-only")
        counts = self._native.encode_into(
            view,
            self._read("values", values),
            self._read("fresh", fresh),
            None if rest is None else to_write("rest", rest, self.shape),
            checked_call(seed, step, salt, ranks),
        )
        self._encoded = Encoded(*counts)
        return self._encoded.size

    def commit(self) -> None:
        """The last encode counts. Only needed with auto_commit=False."""
        self._native.commit()

    def rollback(self) -> None:
        """Undoes the last encode. Requires auto_commit=False (ContractError)."""
        self._native.rollback()

    def state(self) -> bytes:
        """Returns the state as of the last commit, in safetensors format."""
        return write_state(self._native.save())

    def load_state(self, state: Any) -> None:
        """Loads a state that an encoder of the same stream and codec saved.

        Raises:
            BadLengthError, CorruptError: the bytes are no state.
            MismatchError: the state does not fit. The encoder is as it was.
        """
        self._native.load(read_state("state", state))

    def __repr__(self) -> str:
        return f"<thinwire.Encoder of {self._codec.spec!r}, shape {self.shape}>"

    def _read(self, what: str, array: Any) -> Optional[FloatArray]:
        return None if array is None else to_read(what, array, self.shape)


class Decoder:
    """The receiving side of one stream, made by `Codec.decoder`. Threads may share it.

    Payloads come from a network and may hold anything: bad ones raise CorruptError or
    BadLengthError (whichever the codec finds), and touch nothing outside `out`.
    """

    def __init__(self, codec: Codec, stream: Stream) -> None:
        self._codec = codec
        self._stream = stream
        self._native = _core.Decoder(codec._native, stream.name, stream.native())

    @property
    def codec(self) -> Codec:
        return self._codec

    @property
    def shape(self) -> tuple[int, ...]:
        return self._stream.shape

    def decode(self, payload: Any, *, out: Optional[FloatArray] = None) -> FloatArray:
        """Returns the values of the payload, in the stream's shape.

        Args:
            payload: any bytes-like object.
            out: the array for the values; None: a new array. Its content is unspecified after an error.
        """
        if out is None:
            values = np.zeros(self.shape, np.float32)
        else:
            values = to_write("out", out, self.shape)
            values.fill(0)
        self._native.decode_add(to_bytes("payload", payload), 1.0, values)
        return values

    def decode_add(self, payload: Any, weight: float, out: FloatArray) -> None:
        """Adds weight * decode(payload) to `out`; a sparse payload touches only the positions it names.

        `out` is a float32 array in C order of the stream's shape. Its content is unspecified after
        an error.
        """
        values = to_write("out", out, self.shape)
        self._native.decode_add(to_bytes("payload", payload), weight, values)

    def __repr__(self) -> str:
        return f"<thinwire.Decoder of {self._codec.spec!r}, shape {self.shape}>"
