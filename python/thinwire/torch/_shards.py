"""The link of a sharded model's own collectives: FSDP2's reduce-scatter of gradients and all-gather of weights."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch import nn

from ..errors import BadOptionError, CorruptError, MismatchError, UnsupportedError
from ._exchange import Exchange, engine_options
from ._failed_pass import FailedPass
from ._fit import Unfit
from ._forgotten import watch
from ._fsdp2 import AllGather, ReduceScatter, all_gather_single, send_unused, travelling
from ._link import Link
from ._link_state import fitting, link_states, saved_state
from ._memory import carrier_of, device_of, on_host
from ._momentum import UnnamedOptimizer, coefficient_of
from ._native import Gather, check_momentum_acts_once
from ._optimizer import unnamed_of
from ._parameters import Parameter, decides, every_parameter, local_part, plainly_named
from ._reshard import Shard, arrays_of, shard_of, whole_of
from ._saved import Saved, entries, from_tensor, of_rank, to_tensor, together
from ._sharded import sharded_modules, sharded_parameters
from ._warn import warn_user

_EIGHT_BITS = "loco"
_COUNTED = ("dense_bytes", "sent_bytes", "received_bytes", "device_to_host_bytes", "host_to_device_bytes",
            "compress_seconds", "wire_seconds", "decompress_seconds")


class _Allocates:
    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


def _shard_shape(parameter: nn.Parameter, ranks: int) -> list[int]:
    """Of every rank's shard in a message: FSDP2 pads the first dimension, and others must be divisible."""
    dim = parameter.placements[0].dim
    shape = list(parameter.shape)
    shape[dim] = -(-shape[dim] // ranks)
    return shape


class Reduction(_Allocates, ReduceScatter):
    """The reduce-scatter of one module. Row r of its input is rank r's shards of all parameters in turn; each of these
    is a tensor of the exchange, which rank r owns.

    Args:
        parameters: those that are trained, in the order of messages.
        scaler: the GradScaler whose scale gradients have.
    """

    def __init__(self, group: dist.ProcessGroup, parameters: Sequence[Parameter], options: Mapping[str, Any],
                 deadline_seconds: float, scaler: Optional[torch.amp.GradScaler]) -> None:
        ranks = dist.get_world_size(group)
        self._ranks, self._rank, self._scaler = ranks, dist.get_rank(group), scaler
        shapes = [_shard_shape(one.tensor, ranks) for one in parameters]
        self._sizes = [math.prod(shape) for shape in shapes]
        self._names = [one.name for one in parameters]
        self.wholes = {one.name: whole_of(one.tensor) for one in parameters}
        # Of no memory: they say the shape alone.
        self._parts = [[nn.Parameter(torch.empty(shape, device="meta")) for shape in shapes] for _ in range(ranks)]
        tensors = [Parameter(f"{one.name}#{rank}", one.kind, part, one.path)
                   for rank, parts in enumerate(self._parts) for one, part in zip(parameters, parts)]
        owners = [rank for rank in range(ranks) for _ in parameters]
        rules = {pattern: settings for pattern, settings in options["rules"].items()
                 if any(decides(pattern, one) for one in parameters)}
        device = device_of((one.name, local_part(one.tensor)) for one in parameters)
        self.exchange = Exchange(group, tensors, {**options, "rules": rules, "owners": owners}, deadline_seconds,
                                 device=device)
        self.report: Optional[dict[str, Any]] = None  # of the last step
        self.steps = 0
        self.unnamed: Optional[UnnamedOptimizer] = None  # ends with the module, even if the script keeps no link

    def load(self, saved: list[list[tuple[Any, ...]]], steps: int) -> None:
        """Goes on behind so many steps with what old ranks saved. Called by all ranks; where it fails nothing changes."""
        self.exchange.load(saved, steps)
        self.steps = steps

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup,
                 op: Any, async_op: bool = False) -> None:
        if op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):
            raise UnsupportedError(f"a link reduces shards by AVG and SUM, not {op}: call "
                                   "set_force_sum_reduction_for_comms(True) where set_gradient_divide_factor is called")
        if input_tensor.numel() != self._ranks * sum(self._sizes):
            raise UnsupportedError(
                f"FSDP2 reduces {input_tensor.numel()} values of a module whose parameters {self._names[0]!r} ... have "
                f"{self._ranks * sum(self._sizes)}: some have no gradient, or were frozen or unfrozen after compress. "
                "Parameters without a gradient need torch 2.13")
        scale = 1.0 if self._scaler is None else self._scaler.get_scale()
        # In float32: small gradients, for which there is a scale, would be zero in float16 without it.
        given = input_tensor if scale == 1 else input_tensor.to(torch.float32).div_(scale)
        rows = given.view(self._ranks, -1)
        for row, parts in zip(rows, self._parts):
            for part, values in zip(parts, row.split(self._sizes)):
                self.exchange.start(part, values.view(part.shape))
        self.report = self.exchange.wait()
        self.steps += 1
        factor = scale * (self._ranks if op == dist.ReduceOp.SUM else 1)
        torch.mul(rows[self._rank], factor, out=output_tensor) if factor != 1 else output_tensor.copy_(rows[self._rank])


class WeightGather(_Allocates, AllGather):
    """The all-gather of one module's weights. Every rank uses what messages decode to, of its own shard, too."""

    def __init__(self, group: dist.ProcessGroup, parameters: Sequence[Parameter], codec: str, seed: int,
                 deadline_seconds: float) -> None:
        ranks = dist.get_world_size(group)
        shapes = [(one.name, _shard_shape(one.tensor, ranks), one.kind) for one in parameters]
        self._ranks = ranks
        self._size = sum(math.prod(shape) for _, shape, _ in shapes)
        self._all = ranks * self._size
        carrier = carrier_of(group)
        self._gather = Gather(carrier.group, [[(f"{name}#{rank}", shape, kind) for name, shape, kind in shapes]
                                      for rank in range(ranks)], codec, seed, deadline_seconds)
        self._carrier = carrier  # behind what gathers, which is to end before it
        self.name = parameters[0].name
        self.step = 0  # of the codec's random numbers; a saved state has it
        self.calls = self.sent_bytes = self.received_bytes = 0

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup,
                 async_op: bool = False) -> None:
        if dist.get_world_size(group) != self._ranks:
            # Where reshard_after_forward is a number, the ranks of a smaller group hand out what was gathered by all.
            all_gather_single(output_tensor, input_tensor, group=group)
            return
        if input_tensor.numel() != self._size or not input_tensor.is_floating_point():
            raise UnsupportedError(
                f"FSDP2 gathers {input_tensor.numel()} values of type {input_tensor.dtype} of a module whose "
                f"parameters {self.name!r} ... have {self._size}: parameters of one module need one type, and no "
                "extensions")
        is_float = output_tensor.dtype == torch.float32 and output_tensor.is_contiguous()
        is_here = output_tensor.device.type == "cpu"
        found = output_tensor if is_float and is_here else torch.empty(self._all, dtype=torch.float32, device="cpu")
        report = self._gather.gather(self.step, on_host(input_tensor.to(torch.float32, copy=True)), found)
        self.step += 1
        self.calls += 1
        self.sent_bytes += report["sent_bytes"]
        self.received_bytes += report["received_bytes"]
        if report["skipped"]:
            if "corrupt" in report["fault"]:
                raise CorruptError(f"all-gather of weights: {report['fault']}")
            found.fill_(math.nan)  # as every rank would have had from a weight that is not finite
        if found is not output_tensor:
            output_tensor.copy_(found)


class ShardsLink(Link):
    """Connects the collectives of a sharded model to thinwire; `compress` returns it. Has its counters and state. Every
    module on which fully_shard was called has steps of its own, because FSDP2 needs its shard when the module's
    reduce-scatter returns.

    Args:
        weights: the codec of gathered weights; None: torch gathers them.
        optimizer, momentum: as for `compress`. The optimiser's momentum stays where it is.
    """

    def __init__(self, model: nn.Module, options: dict[str, Any], deadline_seconds: float,
                 scaler: Optional[torch.amp.GradScaler], weights: Optional[str],
                 optimizer: Optional[torch.optim.Optimizer], momentum: str) -> None:
        trained = {id(one.tensor): one for one in sharded_parameters(model)}
        every = [one for one in every_parameter(model) if hasattr(one.tensor, "placements")]
        names = {id(one.tensor): one for one in plainly_named(every)}
        for pattern in options["rules"]:
            if not any(decides(pattern, one) for one in trained.values()):
                raise BadOptionError(f"compress: the rule '{pattern}' fits no parameter")
        self._carried = {*trained}
        if optimizer is not None:
            check_momentum_acts_once(engine_options([*trained.values()], options), coefficient_of(optimizer, self._carried))
        self._rank_of_world = dist.get_rank()
        self._reductions: dict[str, Reduction] = {}
        self._gathers: list[WeightGather] = []
        self._resumed = False
        for module in sharded_modules(model):
            own = [names[id(one)] for one in travelling(module) if id(one) in names]
            if not own:
                continue
            group = own[0].tensor.device_mesh.get_group()
            reduced = [trained[id(one.tensor)] for one in own if id(one.tensor) in trained]
            if reduced:
                reduction = Reduction(group, reduced, options, deadline_seconds, scaler)
                self._reductions[reduced[0].name] = reduction
                send_unused(module)
                module.set_custom_reduce_scatter(reduction)
            if weights is not None:
                gather = WeightGather(group, own, weights, options["seed"], deadline_seconds)
                self._gathers.append(gather)
                module.set_custom_all_gather(gather)
        self._warn_of_memory(sum(local_part(one.tensor).numel() for one in trained.values()))
        if optimizer is None:
            unnamed = unnamed_of([one.exchange for one in self._reductions.values()], momentum,
                                 [one.tensor for one in trained.values()])
            for reduction in self._reductions.values():
                reduction.unnamed = unnamed
        FailedPass(model)
        watch(self)

    def __repr__(self) -> str:
        first = next(iter(self._reductions.values())).exchange
        return f"{type(self).__name__}({first.settings['codec']!r}, {len(self._carried)} parameters)"

    def _between_steps(self, call: str) -> None:
        """Of what a script can ask of other links."""
        raise UnsupportedError(f"{call}: not of the collectives of a sharded model, whose modules have steps of their "
                               'own; a link between replicas has it, compress(..., replicate=mesh["replicate"])')

    def log_to(self, writer: Any, tag: str = "thinwire", *, layers: bool = False) -> None:
        self._between_steps("log_to")

    def carries(self, parameter: torch.Tensor) -> bool:
        return id(parameter) in self._carried

    def has_exchanged(self) -> bool:
        return self._steps_done() > 0

    def lacks_state(self) -> bool:
        return not self._resumed and any(one.exchange.remembered_shapes() for one in self._reductions.values())

    def _warn_of_memory(self, shards: int) -> None:
        size = 0
        for reduction in self._reductions.values():
            for name, shape in reduction.exchange.remembered_shapes().items():
                if name.endswith("/residual") or name.endswith("/velocity"):
                    size += math.prod(shape) * (1 if self._is_eight_bits(reduction) else 4)
        if size > 4 * shards:
            warn_user(
                f"the memory of this codec keeps {size:,} bytes on every rank, for all values of the model, beside "
                f"{4 * shards:,} bytes of its own shards: it keeps what was lost of the gradients that go to other "
                'ranks. feedback="loco" keeps about one byte a value, feedback="none" nothing; or compress between '
                "replicas")

    @staticmethod
    def _is_eight_bits(reduction: Reduction) -> bool:
        return str(reduction.exchange.settings["feedback"]).partition(":")[0] == _EIGHT_BITS

    def metrics(self) -> dict[str, Any]:
        """Counters of the last step of every module on this rank, added up.

        Returns:
            step (steps done), skipped (of any module), fault, dense_bytes (what an uncompressed reduce-scatter would
            send), sent_bytes, received_bytes, device_to_host_bytes and host_to_device_bytes (copied from and to a GPU),
            wire_ratio, compress_seconds, wire_seconds, decompress_seconds, modules (of each, by the name of its first
            parameter, skipped, unchosen and bytes; unchosen are the ranks to which a robust rule gave no weight), and
            weights: gathers, sent_bytes and received_bytes since the link was made. Empty before the first step.
        """
        reports = {name: one.report for name, one in self._reductions.items() if one.report is not None}
        if not reports:
            return {}
        found: dict[str, Any] = {key: sum(one[key] for one in reports.values()) for key in _COUNTED}
        found["step"] = self._steps_done()
        found["skipped"] = any(one["skipped"] for one in reports.values())
        found["fault"] = next((one["fault"] for one in reports.values() if one["skipped"]), "")
        found["wire_ratio"] = found["dense_bytes"] / found["sent_bytes"] if found["sent_bytes"] else 1.0
        found["modules"] = {name: {key: one[key] for key in ("skipped", "unchosen", "dense_bytes", "sent_bytes",
                                                         "received_bytes")}
                            for name, one in reports.items()}
        found["weights"] = {"gathers": sum(one.calls for one in self._gathers),
                            "sent_bytes": sum(one.sent_bytes for one in self._gathers),
                            "received_bytes": sum(one.received_bytes for one in self._gathers)}
        return found

    def _steps_done(self) -> int:
        return max((one.steps for one in self._reductions.values()), default=0)

    def state_dict(self) -> dict[str, Any]:
        """Returns this rank's memories, for its checkpoint. Call it between two steps."""
        modules = {name: saved_state(one.exchange, one.steps, False) for name, one in self._reductions.items()}
        first = next(iter(self._reductions.values())).exchange
        return of_rank({"rank": first.rank, "world_size": first.size, "steps": self._steps_done(), "modules": modules,
                        "gathers": {one.name: one.step for one in self._gathers}}, self._rank_of_world)

    def load_state_dict(self, saved: Saved, strict: bool = True) -> Unfit:
        """Loads a state. All ranks call it, between two steps.

        Args:
            saved: the result of this rank's `state_dict`, or those of all old ranks, if there were more or fewer: each
                rank then has the mean of what they held.
            strict: False loads what fits, as `Link.load_state_dict`.

        Raises:
            thinwire.errors.Error: on all ranks. MismatchError: the state is of another rank or model; CorruptError: it
                is not what was saved.
        """
        first = next(iter(self._reductions.values())).exchange
        modules, gathers = together(first.tell_all, "load_state_dict",
                                    lambda: (self._modules_in(first, saved), self._gathers_in(saved)))
        first.agree("load_state_dict", [f"gathers of '{name}' {step}" for name, step in gathers.items()])
        kept = {name: together(first.tell_all, "load_state_dict",
                               lambda: fitting(link_states(one.exchange, modules[name]), one.exchange, strict))
                for name, one in self._reductions.items() if name in modules}
        unfit = Unfit([], [], [])
        before = {name: (self._reductions[name].exchange.save(), self._reductions[name].steps) for name in kept}
        changed: list[str] = []
        try:
            for name, (arrays, left_out) in kept.items():
                self._reductions[name].load(arrays, int(modules[name][0]["steps"]))
                changed.append(name)
                for names, more in zip(unfit, left_out):
                    names.extend(more)
        except Exception:
            for name in changed:  # the one that failed is as it was
                self._load_own(name, *before[name])
            raise
        for gather in self._gathers:
            gather.step = gathers[gather.name]
        self._resumed = True
        return unfit

    def _load_own(self, name: str, arrays: list[tuple[Any, ...]], steps: int) -> None:
        """What this rank's own memories were; every rank has those of all others for it."""
        exchange = self._reductions[name].exchange
        try:
            self._reductions[name].load([arrays] * exchange.size, steps)
        except Exception as error:  # a lost rank, of which the first error tells
            warn_user(f"load_state_dict: '{name}' could not go back to what it was: {error}")

    def decisions(self) -> list[dict[str, Any]]:
        """Codec "auto" is refused here, so there are none."""
        return []

    def _modules_in(self, exchange: Exchange, saved: Saved) -> dict[str, list[Mapping[str, Any]]]:
        """The states of each module, by its name."""
        found = entries(saved)
        if not found or any("modules" not in one for one in found):
            raise MismatchError("the state is of something else than a link of shards")
        names = [*found[0]["modules"]]
        if names != [*self._reductions]:
            raise MismatchError(f"the state is of modules that begin with {names}, this model has "
                                f"{[*self._reductions]}; call fully_shard on the same modules")
        sizes = {int(one["world_size"]) for one in found}
        modules = {name: [one["modules"][name] for one in found] for name in names}
        if sizes == {exchange.size}:
            return modules
        ranks = sorted(int(one["rank"]) for one in found)
        if len(sizes) > 1 or ranks != [*range(max(sizes))]:
            raise MismatchError(f"the state is of a model in {sorted(sizes)} shards, this one has {exchange.size}: give the "
                                f"states of all old ranks, not of {ranks}; from torch.distributed.checkpoint by "
                                f"Checkpoint(..., world_size={max(sizes)})")
        return {name: [_in_other_shards(self._reductions[name], one) for one in heads] for name, heads in modules.items()}

    def _gathers_in(self, saved: Saved) -> dict[str, int]:
        """The steps of the modules' gathers; 0 of those that an earlier version saved, or a link without weights=."""
        gathers = entries(saved)[0].get("gathers", {})
        return {one.name: int(gathers.get(one.name, 0)) for one in self._gathers}


def _in_other_shards(reduction: Reduction, head: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of a module on one old rank, as if its gradients had gone to as many ranks as there are now."""
    old, new, exchange = int(head["world_size"]), reduction.exchange.size, reduction.exchange
    shard = shard_of(from_tensor(int(head["rank"]), head["state"]), head)
    held, values = shard.values(), {}
    for name, key in held:
        base, _, rank = name.rpartition("#")
        if rank != "0" or base not in reduction.wholes:
            continue
        parts = reduction.wholes[base].again([held[f"{base}#{one}", key] for one in range(old)], new, padded=True)
        values.update(((f"{base}#{one}", key), part) for one, part in enumerate(parts))
    shapes = {one.name: one.shape for one in exchange.parameters}
    tensors = {codec: {name: shapes[name] for name in exchange.shapes.get(codec, {})} for codec in head["tensors"]}
    arrays = arrays_of(values, shard.arrays, Shard([], shapes, {}), exchange.remembered_shapes())
    return {**head, "state": to_tensor(arrays), "tensors": tensors}
