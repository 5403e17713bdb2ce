"""Makes a link's counters of the report of a step, and lists the numbers for writers."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

_REPORTED = ("skipped", "fault", "outside", "participants", "left_out", "unchosen", "dense_bytes", "sent_bytes", "inside_bytes", "between_bytes",
             "received_bytes", "device_to_host_bytes", "host_to_device_bytes", "compress_seconds", "wire_seconds", "decompress_seconds", "streams")
_NORMS = ("gradient_norm", "rest_norm")
_LOGGED = ("sent_bytes", "received_bytes", "wire_ratio", "codec_ratio", "skipped", "compress_seconds",
           "wire_seconds", "decompress_seconds")


def counters(report: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """`Link.metrics` of the last of so many steps."""
    total = {key: report[key] for key in _REPORTED}
    total["step"] = steps
    for key in _NORMS:
        total[key] = math.sqrt(sum(stream[key] ** 2 for stream in total["streams"]))
    payload = sum(stream["payload_bytes"] for stream in total["streams"])
    values = sum(stream["values"] for stream in total["streams"])
    total["codec_ratio"] = 4 * values / payload if payload else 1.0
    sent = total["sent_bytes"]
    total["wire_ratio"] = total["dense_bytes"] / sent if sent else 1.0
    return total


def rows_of_step(metrics: dict[str, Any], norms: bool, layers: bool) -> Iterator[tuple[str, float]]:
    """Names and numbers; with `layers` those of every stream too, under its name."""
    measured = _NORMS if norms else ()
    for name in (*_LOGGED, *measured):
        yield name, metrics[name]
    for stream in metrics["streams"] if layers else ():
        yield f"{stream['name']}/density", stream["kept"] / max(stream["values"], 1)
        for name in ("payload_bytes", *measured):
            yield f"{stream['name']}/{name}", stream[name]


def rows_of_round(report: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Those of a round of a local method."""
    for name in ("round", "skipped", "payload_bytes", "sent_bytes", "received_bytes", "between_bytes", "seconds",
                 "total_sent_bytes", "total_received_bytes"):
        yield name, report[name]
    if report["losses"]:
        yield "leader", report["leader"]
        yield "lowest_loss", min(report["losses"])
