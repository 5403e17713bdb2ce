"""Test cases: every codec of the registry, and ordinary and difficult arrays."""

# SPDX-License-Identifier: Apache-2.0
import numpy as np

import thinwire


def codec_names():
    return [info.name for info in thinwire.codecs()]


def codec_specs():
    """Each codec with its defaults, each choice and flag, and both ends of each bounded range."""
    specs = []
    for info in thinwire.codecs():
        specs.append(info.name)
        for option in info.options.values():
            specs += [f"{info.name}:{option.name}={value}" for value in _variants(option)]
    return specs


def _variants(option):
    if option.type == "choice":
        values = option.choices
    elif option.type == "flag":
        values = ("true", "false")
    elif option.type in ("integer", "number"):
        number = int if option.type == "integer" else float
        ends = (option.min, option.max)
        values = tuple(number(end) for end in ends if end is not None and abs(end) < 1e12)
    else:
        values = ()
    return [value for value in values if value not in (option.default, str(option.default).lower())]


def normal(shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def heavy_tail(shape, seed=0):
    return (normal(shape, seed) ** 3 * np.float32(1e-3)).astype(np.float32)


def arrays(shape):
    """Arrays by name: of every size of number, and of none."""
    zeros = np.zeros(shape, np.float32)
    spike = zeros.copy()
    if spike.size > 0:
        spike.flat[spike.size // 2] = 1000
    return {
        "normal": normal(shape),
        "heavy tail": heavy_tail(shape),
        "zeros": zeros,
        "constant": np.full(shape, 0.5, np.float32),
        "denormal": (normal(shape).astype(np.float64) * 1e-40).astype(np.float32),
        "huge": np.copysign(np.float32(1.3e38), normal(shape)),
        "spike": spike,
    }


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
