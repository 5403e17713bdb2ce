"""Predicted steps of a module that is trained: its backward pass is measured, the exchange is played."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import copy
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch import nn

from ..errors import ContractError
from ..planning import Measured, Plan, listed, names_of, planned
from ..streams import TensorSpec
from ._native import probe_link
from ._parameters import Parameter, describe
from ._two_ranks import all_reduce_cost, exchange_seconds, some_of

_UNCOUNTED = 2  # passes that allocate


@contextlib.contextmanager
def _left_alone(module: nn.Module, parameters: list[Parameter]) -> Iterator[None]:
    """Gradients, buffers (running statistics) and random numbers are afterwards what they were."""
    gradients = [one.tensor.grad for one in parameters]
    buffers = [buffer.clone() for buffer in module.buffers()]
    state = torch.get_rng_state()
    for one in parameters:
        one.tensor.grad = None
    try:
        yield
    finally:
        torch.set_rng_state(state)
        for one, gradient in zip(parameters, gradients):
            one.tensor.grad = gradient
        with torch.no_grad():
            for buffer, before in zip(module.buffers(), buffers):
                buffer.copy_(before)


def _timed_pass(parameters: list[Parameter], run: Callable[[], Any]) -> tuple[list[float], float]:
    """When each gradient is complete, and when the pass ends; a gradient that never comes is with the last."""
    ready = [0.0] * len(parameters)
    begin = time.perf_counter()

    def noting(index: int) -> Callable[[torch.Tensor], None]:
        def note(_: torch.Tensor) -> None:
            ready[index] = time.perf_counter() - begin
        return note

    hooks = [one.tensor.register_post_accumulate_grad_hook(noting(i)) for i, one in enumerate(parameters)]
    try:
        run()
        end = time.perf_counter() - begin
    finally:
        for hook in hooks:
            hook.remove()
    for one in parameters:
        one.tensor.grad = None
    return [seconds or end for seconds in ready], end


def _step_seconds(optimizer: torch.optim.Optimizer, steps: int) -> float:
    """Of a copy with parameters and state of its own: the median of so many steps after the first, which makes state."""
    copied = copy.deepcopy(optimizer)
    for group in copied.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    times = []
    for _ in range(1 + steps):
        begin = time.perf_counter()
        copied.step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def probed_link(per_machine: int) -> tuple[str, int, bool]:
    """The slowest of all machines' links, as `plan` takes it, how many ranks there are, and whether the rate is only the least that it may
    be. All ranks of a machine are probed at once, so that each has its part."""
    if not dist.is_initialized():
        raise ContractError('plan: link="probe" measures the link between ranks, and needs '
                            "torch.distributed.init_process_group(\"gloo\") first; or name a link, \"1gbit,0.1ms\"")
    bits, latency, at_least = probe_link(dist.distributed_c10d._get_default_group(), 0.5)
    bits *= per_machine
    rate = f"{bits / 1e9:.3g}gbit" if bits >= 1e9 else f"{bits / 1e6:.3g}mbit" if bits else "none"
    return f"{rate},{max(latency, 1e-7) * 1e3:.3g}ms", dist.get_world_size(), at_least


def plan(module: nn.Module, sample_batch: tuple[Any, Any], *, link: str = "none", ranks: int = 2,
         loss: Optional[Callable[[Any, Any], torch.Tensor]] = None, optimizer: Optional[torch.optim.Optimizer] = None,
         codecs: Optional[Union[str, Iterable[str]]] = None,
         steps: int = 5, optimizer_seconds: Optional[float] = None, own_core: bool = False, per_machine: int = 1,
         inside_link: str = "none", sync: str = "") -> Plan:
    """Says whether compression pays for this module: a table and a verdict when printed, the fastest step first.

        print(tw.plan(model, (inputs, targets), link="1gbit,0.1ms", ranks=8))

    A rank's forward and backward pass over `sample_batch`, which is (inputs, targets), is measured `steps` times;
    `loss(outputs, targets)` is cross entropy unless given. Then a step with DistributedDataParallel, whose all-reduce is
    measured too, with thinwire's fp32 and with each codec is simulated over `link` among `ranks` ranks: docs/choosing.md. Call it
    before the module is wrapped, in one process. With `optimizer`, steps of a copy of it are measured, unless `optimizer_seconds`
    says how long one takes, which it has to if a step needs a closure or sparse gradients. Beside an optimiser other than SGD the
    plan recommends a codec that leaves most values for later steps only if no other codec pays. `own_core` is True if torch's threads leave a core to the exchange. Parameters, gradients, buffers and random numbers
    stay as they are. With link="probe" the link between the ranks of torch.distributed's default group is measured in about
    half a second, and `ranks` is their number; then all ranks call it. `codecs`, `per_machine`, `inside_link` and `sync` (with
    `LocalOptimizer`) are those of thinwire.plan.
    """
    at_least = False
    if link == "probe":
        link, ranks, at_least = probed_link(per_machine)
    parameters = describe(module, set())
    if not parameters:
        raise ContractError("plan: the module has no parameters that are trained")
    if any(one.tensor.device.type != "cpu" for one in parameters):
        raise ContractError("plan: measures modules on the CPU; elsewhere time a step yourself, and call thinwire.plan")
    if not isinstance(sample_batch, (tuple, list)) or len(sample_batch) != 2:
        what = type(sample_batch).__name__
        if isinstance(sample_batch, (tuple, list)):
            what += f" of {len(sample_batch)}"
        raise ContractError(f"plan: sample_batch is (inputs, targets), from which the loss is computed; it is {what}")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise ContractError(f"plan: optimizer is a torch.optim.Optimizer; it is {type(optimizer).__name__}")
    inputs, targets = sample_batch
    measure = loss or nn.functional.cross_entropy
    with _left_alone(module, parameters):
        passes = [_timed_pass(parameters, lambda: measure(module(inputs), targets).backward())
                  for _ in range(_UNCOUNTED + steps)][_UNCOUNTED:]
    end = statistics.median(total for _, total in passes)
    ready = [min(end, statistics.median(times)) for times in zip(*(ready for ready, _ in passes))]
    if optimizer_seconds is None:
        optimizer_seconds = 0.0 if optimizer is None else _step_seconds(optimizer, steps)
    codecs = listed(codecs)
    tensors = [TensorSpec(one.name, tuple(one.shape), one.kind) for one in parameters]
    measured = None
    if not sync:
        some = some_of(tensors)
        measured = Measured(all_reduce_cost(), some, exchange_seconds(some, names_of(codecs)))
    return planned(tensors, end + optimizer_seconds, link=link, ranks=ranks, codecs=codecs, ready_seconds=ready,
                   optimizer_seconds=optimizer_seconds, own_core=own_core, per_machine=per_machine,
                   inside_link=inside_link, sync=sync, measured=measured, at_least=at_least,
                   optimizer="" if optimizer is None or isinstance(optimizer, torch.optim.SGD) else type(optimizer).__name__)
