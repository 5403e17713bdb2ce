#!/usr/bin/env python3
"""Compares every codec on one NumPy array: bits per value, what is lost, and how fast.

usage: compare_codecs.py [FILE.npy]      # any shape; without a file, a heavy-tailed vector
"""

# SPDX-License-Identifier: Apache-2.0
import sys
import time

import numpy as np

import thinwire


def load(arguments):
    if arguments:
        return np.load(arguments[0]).astype(np.float32)
    normal = np.random.default_rng(1).standard_normal(1_000_000)
    return (normal**3).astype(np.float32)  # like gradients: many small, a few large


def best_seconds(work, repeats=5):
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def compare(name, values):
    codec = thinwire.Codec(name)
    encoder = codec.encoder(values.shape, "linear")
    decoder = codec.decoder(values.shape, "linear")
    payload, rest = encoder.encode_with_remainder(values)
    out = np.empty(encoder.max_encoded_size, np.uint8)
    total = np.zeros(values.shape, np.float32)
    encode = best_seconds(lambda: encoder.encode_into(out, values))
    decode = best_seconds(lambda: decoder.decode_add(payload, 1.0, total))
    bits = 8 * len(payload) / values.size
    lost = np.linalg.norm(rest) / np.linalg.norm(values)
    speed = values.nbytes / 1e9
    return f"{name:<12} {bits:>8.3f} {lost:>8.4f} {speed / encode:>9.2f} {speed / decode:>9.2f}"


def main(arguments):
    values = load(arguments)
    print(f"{values.size:,} values; lost is the norm of the remainder over that of the values\n")
    print(f"{'codec':<12} {'bits':>8} {'lost':>8} {'enc GB/s':>9} {'dec GB/s':>9}")
    for info in thinwire.codecs():
        print(compare(info.name, values))


if __name__ == "__main__":
    main(sys.argv[1:])
