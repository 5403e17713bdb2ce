"""Compressed gradients for torchft, whose replicas come and go.

    from thinwire.torchft import DistributedDataParallel, ProcessGroup

    group = ProcessGroup("sidco:density=0.01")
    manager = Manager(pg=group, min_replica_size=1, ...)
    group.attach(manager)
    model = DistributedDataParallel(manager, model)

docs/elastic.md has the rest.
"""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import logging
import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, Optional, Union

try:
    import torchft  # noqa: F401 - first: says what is missing
    from torchft import process_group as _groups
    from torchft.ddp import DistributedDataParallel as _Replicated
except ImportError as error:
    raise ImportError(
        "thinwire.torchft needs torchft: `pip install torchft`, or `pip install torchft-nightly` "
        f"({error})"
    ) from error

import torch
import torch.distributed as dist

from .codec import Codec
from .errors import BadOptionError, ContractError, CorruptError, Error, NonFiniteError, UnsupportedError
from .torch._arguments import Arguments, Rules, exchange_options
from .torch._first_moment import leaving_most
from .torch._kinds import REAL, check_type
from .torch._lossy import warn_of_loss
from .torch._memory import on_host
from .torch._momentum import UnnamedOptimizer, has_momentum
from .torch._native import Engine, check_options, close_group
from .torch._parameters import Parameter, by_plain_names, codecs_of, decides, describe, listed
from .torch._warn import warn_user

__all__ = ["DistributedDataParallel", "Loss", "ProcessGroup"]

_log = logging.getLogger("thinwire")


class Loss(NamedTuple):
    """A replica that was lost, and with it what its memory of one vector owed."""

    generation: int
    """The number of the group that it was in."""
    rank: int
    """Its rank there."""
    vector: str
    """The vector whose memory it was."""
    owed: float
    """The l2 norm of what it owed when replicas last told each other, at the beginning of a step."""
    steps: int
    """Steps that counted since then, 0 or 1 unless it came back in between; what it left out in these is not in
    `owed`."""


_Tensors = list[tuple[str, list[int], str]]  # names, shapes and kinds


class _Vector:
    """What one call of a step averages: an exchange, in whichever group it was last."""

    def __init__(self, name: str, tensors: _Tensors) -> None:
        self.name, self.tensors = name, tensors
        self.counts = [math.prod(shape) for _, shape, _ in tensors]
        self.engine: Optional[Engine] = None
        self.generation = 0
        self.step: Optional[int] = None  # of the manager, in which its last step was, until that is settled


class _Finished(dist._Work):
    """Work that is over. What failed is in its future alone: torchft looks for it there, and reports it."""

    def __init__(self, result: list[torch.Tensor], error: Optional[BaseException] = None) -> None:
        super().__init__()
        self._future: torch.futures.Future[Any] = torch.futures.Future()
        if error is None:
            self._future.set_result(result)
        else:
            self._future.set_exception(error)

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future


class _Optimizer(UnnamedOptimizer):
    """That of replicas, whose momentum thinwire does not take over."""

    remedy = ("; replicas that come and go have no optimizer= that takes SGD's momentum over: see docs/elastic.md, Momentum")

    def _warn(self, what: str, remedy: str) -> None:
        warn_user(f"codec '{self._codec}' leaves most values for later steps, and the optimizer's {what} acts on the bursts in "
                  f"which they arrive, which costs accuracy{self.remedy}")


class ProcessGroup(_groups.ProcessGroupGloo):
    """A process group for torchft's Manager that sends what it averages through a codec.

    Every vector that a step averages has memories of its own, by its place among the calls of the
    step. Under `thinwire.torchft.DistributedDataParallel` codecs see the parameters in it one by one,
    by name and shape, as with `thinwire.torch.compress`; under other wrappers they see one flat vector.
    Call `attach` with the manager before the first step.

    Args:
        codec: "name:key=value", or a `thinwire.Codec`.
        rules, feedback, method, grouping, seed: as for `thinwire.torch.compress`. Rules and the codec
            powersgd need `thinwire.torchft.DistributedDataParallel`. A memory that follows the mean
            (ef21) is refused.
        smallest: vectors with fewer values than this are sent uncompressed, by gloo.
        fragments: of torchft's DiLoCo, the number of its model fragments, each of which then has
            memories of its own.
        timeout: the longest wait for another replica.

    Raises:
        thinwire.errors.Error: a name or option is wrong; the text says which.
    """

    def __init__(
        self,
        codec: Union[str, Codec] = "sidco:density=0.01",
        *,
        rules: Optional[Rules] = None,
        feedback: str = "auto",
        method: str = "auto",
        grouping: str = "auto",
        seed: int = 0,
        smallest: int = 1024,
        fragments: int = 1,
        timeout: timedelta = timedelta(seconds=60),
    ) -> None:
        super().__init__(timeout=timeout)
        self._options = {
            **exchange_options("ProcessGroup", scaler=None, deadline_seconds=timeout.total_seconds(),
                               feedback=feedback, method=method, combine="mean", grouping=grouping,
                               bucket_kb=2048, steps_per_epoch=None, seed=seed, max_skipped=0, norms=False,
                               weighted=True, inside=1),
            "codec": Arguments("ProcessGroup").codec(codec), "rules": [], "hold": True, "debts": True,
        }
        for what, number in (("smallest", smallest), ("fragments", fragments)):
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ContractError(f"ProcessGroup: {what}={number!r} is not a whole number of at least 1")
        self._rules = Arguments("ProcessGroup").rules(rules or {})
        check_options({**self._options, "rules": self._with_defaults(by_plain_names([], self._rules))})
        warn_of_loss(self._options, list(self._rules.values()))
        self._smallest, self._fragments = smallest, fragments
        self._parameters: list[Parameter] = []  # of the call that is about to be made, where they are known
        self._watch: Optional[_Optimizer] = None
        self._manager: Any = None
        self._vectors: dict[str, _Vector] = {}
        self._generation = 0
        self._joined: Optional[dist.ProcessGroup] = None  # the group of this generation
        self._at: tuple[int, int] = (0, -1)  # the generation and the manager's step of the calls that are counted
        self._calls = 0
        self._report: dict[str, int] = {}
        self._owed: dict[int, float] = {}  # by rank: the sum of squares over the vectors of the step
        self._losses: list[Loss] = []
        self._heard: set[tuple[int, int, str]] = set()  # generations, ranks and vectors of replicas that were lost

    def attach(self, manager: Any) -> None:
        """Names the manager that has this group. It says which steps count and which replicas take part."""
        for name in ("current_step", "is_participating", "num_participants"):
            if not callable(getattr(manager, name, None)):
                raise ContractError(f"attach: a {type(manager).__name__} is no torchft.Manager: it has no {name}()")
        self._manager = manager
        _attached[manager] = weakref.ref(self)

    def _with_defaults(self, rules: list[dict[str, str]]) -> list[dict[str, str]]:
        return [{**{key: self._options[key] for key in ("feedback", "method", "grouping")}, **rule} for rule in rules]

    def _check_rules(self, parameters: Sequence[Parameter]) -> None:
        left = list(parameters)
        for pattern in self._rules:
            if not any(decides(pattern, one) for one in left):
                raise BadOptionError(f"ProcessGroup: the pattern '{pattern}' of rules decides for no parameter; there are "
                                     f"{listed([one.name for one in left])}")
            left = [one for one in left if not decides(pattern, one)]

    def _look_for_optimizer(self, parameters: Sequence[Parameter]) -> None:
        """Has the optimiser that steps them looked at, at its first step."""
        rules = self._with_defaults(by_plain_names(parameters, self._rules))
        options = {**self._options, "rules": rules}
        in_use = set(codecs_of(parameters, options["codec"], rules).values())
        bursts = [codec for codec in leaving_most(options) if codec in in_use]
        settings = [{**options, **one, "rules": []} for one in (options, *rules) if one["codec"] in in_use]
        if bursts or any(has_momentum(one) for one in settings):
            self._watch = _Optimizer(bursts[0] if bursts else None, settings, [one.tensor for one in parameters])

    @contextlib.contextmanager
    def _of(self, parameters: list[Parameter]) -> Iterator[None]:
        """The next call averages their gradients, one after another."""
        self._parameters = parameters
        try:
            yield
        finally:
            self._parameters = []

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Replicas that were lost without handing over what they owed, as far as this replica knows."""
        return tuple(self._losses)

    @property
    def debts(self) -> dict[int, float]:
        """By replica, numbered as the last step's group numbers them: the l2 norm of what its memories owed at the
        beginning of the last step. The same on all replicas. Empty before the first step."""
        return {rank: math.sqrt(squares) for rank, squares in sorted(self._owed.items())}

    def metrics(self) -> dict[str, int]:
        """What this replica sent in its last step: sent_bytes, and dense_bytes that an uncompressed all-reduce
        would send; vectors, participants and generation. Empty before the first step."""
        return dict(self._report)

    def getBackendName(self) -> str:
        return "thinwire-torchft-gloo"

    def _create_pg(self, store: Any, rank: int, world_size: int) -> dist.ProcessGroup:
        self._leave()
        group = super()._create_pg(store, rank, world_size)
        # Ranks come from different generations, and must take one that is new to all.
        store.set(f"thinwire/generation/{rank}", str(self._generation))
        told = [int(store.get(f"thinwire/generation/{one}")) for one in range(world_size)]
        self._generation = max(told) + 1
        self._joined = group
        return group

    def shutdown(self) -> None:
        self._leave()
        super().shutdown()

    def _leave(self) -> None:
        """Ends the old group's threads, beside what goes on."""
        if self._joined is not None:
            # Not a daemon: the interpreter would unwind it through C++ at its end.
            threading.Thread(target=close_group, args=(self._joined,), daemon=False, name="thinwire").start()
            self._joined = None

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> Any:
        op = getattr(opts, "reduceOp", opts)
        if not (op == dist.ReduceOp.SUM or op == dist.ReduceOp.AVG) or len(tensors) != 1 or not self._takes(tensors[0]):
            return super().allreduce(tensors, opts)
        try:  # an error ends the step on all replicas, by the manager, and not this replica alone
            self._require_type(tensors[0])
            self._average(tensors[0], is_sum=op == dist.ReduceOp.SUM)
        except (Error, RuntimeError) as error:
            _log.warning("thinwire.torchft: %s", error)
            return _Finished(tensors, error)
        return _Finished(tensors)

    def _takes(self, tensor: torch.Tensor) -> bool:
        return tensor.is_floating_point() and tensor.numel() >= self._smallest

    def _require_type(self, tensor: torch.Tensor) -> None:
        if tensor.dtype not in REAL:
            raise UnsupportedError(f"ProcessGroup: a {tensor.dtype} tensor was given; it must be float32, bfloat16 or "
                                   "float16")

    def _average(self, tensor: torch.Tensor, is_sum: bool) -> None:
        manager = self._manager
        if manager is None:
            raise ContractError("ProcessGroup: call attach(manager) before the first step, so that it is known which "
                                "steps count")
        if self._joined is None:
            raise ContractError("ProcessGroup: there is no group of replicas yet; start_quorum makes one")
        vector = self._vector_of_call(manager.current_step(), tensor)
        self._join(vector)
        engine = vector.engine
        if not manager.is_participating():
            engine.abstain()
        flat = on_host(tensor).contiguous().view(-1)
        if flat.data_ptr() == tensor.data_ptr():
            flat = flat.clone()  # settling a failed step writes to what was given, where the step's repetition lies by then
        vector.step = manager.current_step()
        for index, part in enumerate(flat.split(vector.counts)):
            engine.start(index, part)
        report = engine.wait()
        if report["skipped"] and report["participants"] > 0:  # the manager then skips the step on all replicas
            raise NonFiniteError(report["fault"]) if "corrupt" not in report["fault"] else CorruptError(report["fault"])
        if is_sum:
            # The manager divides the sum by this number, which in its first step also counts replicas that heal.
            flat.mul_(manager.num_participants())
        tensor.copy_(flat.view(tensor.shape))
        self._report["vectors"] += 1
        self._report["participants"] = report["participants"]
        for key in ("sent_bytes", "received_bytes", "dense_bytes"):
            self._report[key] += report[key]
        for rank, owed in enumerate(report["owed"]):
            self._owed[rank] = self._owed.get(rank, 0.0) + owed * owed

    def _vector_of_call(self, step: int, tensor: torch.Tensor) -> _Vector:
        """All replicas make the same calls in a step. What the step before left open is settled first."""
        if self._at != (self._generation, step):
            self._at, self._calls = (self._generation, step), 0
            self._report = {"generation": self._generation, "vectors": 0, "participants": 0, "sent_bytes": 0,
                            "received_bytes": 0, "dense_bytes": 0}
            self._owed = {}
            self._settle(step)
        name = f"{step % self._fragments}.{self._calls}" if self._fragments > 1 else str(self._calls)
        self._calls += 1
        tensors = self._tensors(name, tensor)
        vector = self._vectors.get(name)
        if vector is not None and vector.tensors != tensors:
            owed = 0.0 if vector.engine is None else vector.engine.owed()
            _log.warning("thinwire.torchft: vector %s has %d values, and had %d; its memory begins anew, and a norm of "
                         "%.3g that it owed is lost. With DiLoCo, give ProcessGroup the number of its fragments",
                         name, tensor.numel(), sum(vector.counts), owed)
            if vector.engine is not None:
                self._losses.append(Loss(vector.generation, vector.engine.rank, name, owed, 0))
            vector = None
        if vector is None:
            vector = self._vectors[name] = _Vector(name, tensors)
        return vector

    def _tensors(self, name: str, tensor: torch.Tensor) -> _Tensors:
        """Those of the parameters, where they are known, or one."""
        if self._parameters:
            return [(one.name, one.shape, one.kind) for one in self._parameters]
        codec = self._options["codec"].split(":")[0]
        if self._rules or codec == "powersgd":
            what = "rules need the names of parameters" if self._rules else "powersgd factorises matrices"
            raise UnsupportedError(f"ProcessGroup: {what}, and a flat vector was given; wrap the model in "
                                   "thinwire.torchft.DistributedDataParallel, which says what is in it, or choose "
                                   "another codec, such as sidco:density=0.01")
        return [(name, [tensor.numel()], "other")]

    def _settle(self, step: int) -> None:
        """The manager's step has grown past those that count, also where this replica did not see that they do: it
        healed from one that did."""
        for vector in self._vectors.values():
            if vector.step is not None:
                vector.engine.settle(step > vector.step)
                vector.step = None

    def _decides(self, pattern: str) -> bool:
        """Whether it is the first of the rules that fits a parameter of this call."""
        first = (next((rule for rule in self._rules if decides(rule, one)), None) for one in self._parameters)
        return pattern in first

    def _join(self, vector: _Vector) -> None:
        if vector.generation == self._generation:
            return
        if vector.engine is None:
            own = {pattern: rule for pattern, rule in self._rules.items() if self._decides(pattern)}
            options = {**self._options, "rules": self._with_defaults(by_plain_names(self._parameters, own))}
            vector.engine = Engine.join(self._joined, vector.tensors, options, self._timeout.total_seconds(), self._generation)
        else:
            vector.engine.regroup(self._joined, self._generation)
        vector.generation = self._generation
        joined = vector.engine.joined()
        for generation, rank, owed, since in joined["lost"]:
            loss = Loss(generation, rank, vector.name, owed, joined["step"] - since)
            if loss[:3] in self._heard:  # it is said again until a step has counted
                continue
            self._heard.add(loss[:3])
            self._losses.append(loss)
            _log.warning("thinwire.torchft: rank %d of generation %d was lost, and with it what it owed of vector %s: a norm "
                         "of %.3g as of %d steps ago", rank, generation, vector.name, owed, loss.steps)


# By manager: the group that it was attached to, and the parameters of models that it has.
_attached: weakref.WeakKeyDictionary[Any, weakref.ref[ProcessGroup]] = weakref.WeakKeyDictionary()
_models: weakref.WeakKeyDictionary[Any, dict[int, Parameter]] = weakref.WeakKeyDictionary()


def _group_of(manager: Any) -> Optional[ProcessGroup]:
    return _attached[manager]() if manager in _attached else None


class DistributedDataParallel(_Replicated):
    """torchft's, whose replicas go on if another one is lost in the backward pass, with every version of torchft, and
    which tells the process group the names and shapes of parameters."""

    def __init__(self, manager: Any, module: torch.nn.Module, **settings: Any) -> None:
        parameters = describe(module, set())
        group = _group_of(manager)
        if group is not None:
            for one in parameters:
                check_type(one, "DistributedDataParallel", REAL)
            group._check_rules(parameters)
            group._look_for_optimizer(parameters)
        _models.setdefault(manager, {}).update((id(one.tensor), one) for one in parameters)
        super().__init__(manager, module, **settings)

    # Without annotations: torch compares them with its classes, and they are texts in this file.
    @staticmethod
    def _comm_hook(state, bucket):  # type: ignore[no-untyped-def, override]
        group, names = _group_of(state), _models.get(state, {})
        known = [names[id(one)] for one in bucket.parameters() if id(one) in names]
        whole = len(known) == len(bucket.parameters())
        # torchft 0.2.0 asserts in its own hook that no error came before. The manager knows of errors, and the
        # step does not count.
        with group._of(known) if group is not None and whole else contextlib.nullcontext():
            state.allreduce(bucket.buffer()).wait()
        future: torch.futures.Future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future
