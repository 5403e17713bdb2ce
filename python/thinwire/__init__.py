"""thinwire: gradients as few bytes as training bears, on NumPy arrays.

    import numpy as np, thinwire

    codec = thinwire.Codec("topk", density=0.01)
    encoder = codec.encoder(shape=(256, 1000), kind="linear")
    decoder = codec.decoder(shape=(256, 1000), kind="linear")
    payload, rest = encoder.encode_with_remainder(gradient)  # bytes, and what they do not hold
    decoder.decode(payload) + rest                           # gradient

`codecs()` lists the methods and `feedbacks()` the memories that carry what a message left out to
the next one. `all_reduce` averages arrays over ranks that are threads, as an exchange between
machines would. `expand_checkpoint` reads the weights of the trainer's checkpoints. Errors are subclasses of `thinwire.Error`. Names are those of the C++ library.
"""

# SPDX-License-Identifier: Apache-2.0
from ._core import VERSION as __version__
from .checkpoints import expand_checkpoint
from .codec import Codec, CodecInfo, Decoder, Encoded, Encoder, codecs
from .collective import AllReduced, Fault, StepReport, StreamCounters, all_reduce
from .errors import (
    BadLengthError,
    BadOptionError,
    ContractError,
    CorruptError,
    DTypeError,
    Error,
    IoError,
    MismatchError,
    NonFiniteError,
    PeerLostError,
    TimeoutError,
    UnknownNameError,
    UnsupportedError,
)
from .feedback import Feedback, FeedbackInfo, Signal, feedbacks
from .frame import FRAME_HEADER_SIZE, Frame, pack, unpack, unpack_all
from .options import OptionInfo
from .planning import KnownAccuracy, Plan, PlannedStep, plan
from .store import Store
from .streams import TensorSpec, tensor_kinds
from .threads import codec_threads, set_codec_threads

__all__ = [
    "AllReduced",
    "BadLengthError",
    "BadOptionError",
    "Codec",
    "CodecInfo",
    "ContractError",
    "CorruptError",
    "DTypeError",
    "Decoder",
    "Encoded",
    "Encoder",
    "Error",
    "FRAME_HEADER_SIZE",
    "Fault",
    "Feedback",
    "FeedbackInfo",
    "Frame",
    "IoError",
    "KnownAccuracy",
    "MismatchError",
    "NonFiniteError",
    "OptionInfo",
    "PeerLostError",
    "Plan",
    "PlannedStep",
    "Signal",
    "StepReport",
    "Store",
    "StreamCounters",
    "TensorSpec",
    "TimeoutError",
    "UnknownNameError",
    "UnsupportedError",
    "__version__",
    "all_reduce",
    "codec_threads",
    "codecs",
    "expand_checkpoint",
    "feedbacks",
    "pack",
    "plan",
    "set_codec_threads",
    "tensor_kinds",
    "unpack",
    "unpack_all",
]
