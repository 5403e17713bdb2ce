"""Helpers for tests: states that links and local optimisers saved. SPDX-License-Identifier: Apache-2.0"""


def content(state):
    """A rank's state in what its state_dict gave."""
    (entry,) = [value[0] for key, value in state.items() if str(key).startswith("rank ")]
    return entry


def memories_of(link):
    """All that it saves, as bytes in a tensor."""
    return content(link.state_dict())["state"]
