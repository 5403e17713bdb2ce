"""Where tensors lie: what an exchange is told of memory on a GPU, and which process groups carry the CPU's. No other
file of the package asks for a device."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import datetime
import hashlib
import threading
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Optional

import torch
import torch.distributed as dist

from ..errors import PeerLostError, TimeoutError, UnsupportedError
from ._native import close_group

_GPU = "cuda"
_own: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # the carrier beside a group, weakly
_meetings: weakref.WeakKeyDictionary[Any, dict[str, int]] = weakref.WeakKeyDictionary()  # of a world's ranks, so far


def device_of(named: Iterable[tuple[str, torch.Tensor]], caller: str = "compress") -> torch.device:
    """The device of tensors with these names: the GPU that some of them are on, or the CPU.

    Args:
        caller: who asks, for errors.

    Raises:
        UnsupportedError: one is on a device that is neither, or they are on two GPUs.
    """
    found, where = torch.device("cpu"), ""
    for name, tensor in named:
        device = tensor.device
        if device.type == "cpu" or device == found:
            continue
        if device.type != _GPU:
            raise UnsupportedError(f"{caller}: parameter '{name}' is on {device}; it may be on the CPU or on a "
                                   "GPU of NVIDIA's")
        if found.type == _GPU:
            raise UnsupportedError(f"{caller}: parameter '{name}' is on {device}, and '{where}' on {found}; give each "
                                   "process one GPU")
        found, where = device, name
    return found


def engine_device(device: torch.device) -> Optional[tuple[int, list[str]]]:
    """As the engine takes it: the number of a GPU, and the folders in which its compiler may be; None is the
    CPU."""
    if device.type == "cpu":
        return None
    packages = Path(torch.__file__).parent.parent / "nvidia"  # those of torch's wheel
    index = torch.cuda.current_device() if device.index is None else device.index
    return index, [str(folder) for folder in sorted(packages.glob("*/lib"))]


def _is_here(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu"


def _current_stream(device: torch.device) -> Any:
    return torch.cuda.current_stream(device)


def _in_stream(stream: Any) -> Any:
    return torch.cuda.stream(stream)


class Streams:
    """The streams behind which the tensors of a step are ready, and behind which their means will be."""

    def __init__(self) -> None:
        self._noted: list[tuple[torch.device, Any]] = []

    def note(self, tensor: torch.Tensor) -> Optional[int]:
        """The handle of the stream that works on it now; None where the CPU does."""
        if _is_here(tensor):
            return None
        stream = _current_stream(tensor.device)
        if all(stream != known for _, known in self._noted):
            self._noted.append((tensor.device, stream))
        return stream.cuda_stream

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Around the call that waits for the means. What it does with tensors, and what the caller does afterwards,
        comes behind them, also after an error; the streams are forgotten."""
        noted, self._noted = self._noted, []
        try:
            with contextlib.ExitStack() as inside:
                if noted:
                    inside.enter_context(_in_stream(noted[0][1]))
                yield
        finally:
            for device, stream in noted:
                current = _current_stream(device)
                if current != stream:
                    current.wait_stream(stream)


def future_of(tensor: torch.Tensor) -> torch.futures.Future:
    """One that will have a tensor of its device: whoever waits for it waits for what works on that."""
    device = tensor.device
    return torch.futures.Future() if device.type == "cpu" else torch.futures.Future(devices=[device])


def carries_host_memory(group: dist.ProcessGroup) -> bool:
    try:
        group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return False
    return True


class Carrier:
    """Holds the group by which thinwire's messages go. One of thinwire's own is released with the last that holds its
    carrier, as its link or optimiser ends."""

    def __init__(self, group: dist.ProcessGroup, name: str = "") -> None:
        self.group, self.name = group, name
        if name:
            # What the process leaves at its end is closed by the engine.
            weakref.finalize(self, _release, group).atexit = False


def _release(group: dist.ProcessGroup) -> None:
    # In a thread of its own: it waits for the other ranks' goodbyes, and this may be the end of any function.
    threading.Thread(target=close_group, args=(group,), name="thinwire").start()


def carrier_of(group: dist.ProcessGroup) -> Carrier:
    """Of the group itself, as of backend gloo or "cpu:gloo,cuda:nccl"; or of one of thinwire's own with the same ranks,
    if its backend carries the memory of GPUs alone. All ranks of the group call it alike."""
    if carries_host_memory(group):
        return Carrier(group)
    ranks = "_".join(map(str, dist.get_process_group_ranks(group)))
    own = hashlib.sha1(ranks.encode(), usedforsecurity=False).hexdigest()
    meetings = _meetings.setdefault(dist.group.WORLD, {})
    meetings[own] = meetings.get(own, 0) + 1
    name = f"thinwire/{own}/{meetings[own]}"
    held = _held(group)
    # Ranks release theirs at times of their own: it goes on only if all have it.
    store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
    store.set(f"holds {group.rank()}", held.name if held is not None else "none")
    names = {store.get(f"holds {rank}").decode() for rank in range(group.size())}
    if held is None or names != {held.name}:
        held = Carrier(new_gloo(store, group.rank(), group.size()), name)
        _own[group] = weakref.ref(held)
    return held


def _held(group: dist.ProcessGroup) -> Optional[Carrier]:
    known = _own.get(group)
    return None if known is None else known()


def new_gloo(store: dist.Store, rank: int, size: int, hostname: str = "") -> dist.ProcessGroup:
    """Not by dist.new_group: of the same ranks it gives a group the name, and so the store's keys, of one that has gone. Over the
    network that gloo chooses, or that of `hostname`."""
    kind = dist.ProcessGroup.BackendType.GLOO
    options = dist.ProcessGroupGloo._Options()
    options._timeout = dist.default_pg_timeout
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=hostname) if hostname else
                        dist.ProcessGroupGloo.create_default_device()]
    group = dist.ProcessGroup(store, rank, size)
    group._set_default_backend(kind)
    backend = dist.ProcessGroupGloo(store, rank, size, options)
    backend._set_sequence_number_for_group()
    group._register_backend(torch.device("cpu"), kind, backend)
    return group


def host_group(group: dist.ProcessGroup) -> dist.ProcessGroup:
    """That of the group's carrier, which somebody holds if it is one of thinwire's own."""
    if carries_host_memory(group):
        return group
    held = _held(group)
    assert held is not None
    return held.group


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Itself, or a copy in CPU memory."""
    return tensor.cpu()


def broadcast(tensor: torch.Tensor, group: dist.ProcessGroup, deadline_seconds: float) -> None:
    """The values of the group's first rank become those of all, as bytes. The tensor may lie in memory in any way that no two
    of its values share. All ranks of the group are known to call it now."""
    here, options = on_host(tensor).resolve_conj().resolve_neg().contiguous(), dist.BroadcastOptions()
    options.rootRank = 0
    flat = here.view(()).view(1) if here.numel() == 1 else here.view(-1)  # a lone value may have any stride
    _await(host_group(group).broadcast([flat.view(torch.uint8)], options), deadline_seconds)
    if here is not tensor:
        tensor.copy_(here)


def all_reduce(tensor: torch.Tensor, group: dist.ProcessGroup, deadline_seconds: float,
               op: Any = dist.ReduceOp.SUM) -> None:
    """Of a tensor in CPU memory. All ranks of the group are known to call it now: to those that do something else it would be
    a collective of the script's own."""
    options = dist.AllreduceOptions()
    options.reduceOp = op
    _await(host_group(group).allreduce([tensor], options), deadline_seconds)


def _await(work: dist.Work, deadline_seconds: float) -> None:
    try:
        work.wait(datetime.timedelta(seconds=deadline_seconds))
    except RuntimeError as error:
        kind = TimeoutError if "timed out" in str(error).lower() else PeerLostError
        raise kind(f"a collective of torch's, with which thinwire compares what ranks have, failed: {error}") from None


def staged(like: torch.Tensor, count: int) -> torch.Tensor:
    """A float32 vector in CPU memory, from and to which tensors beside `like` are copied fast."""
    return torch.empty(count, dtype=torch.float32, device="cpu", pin_memory=like.device.type == _GPU)
