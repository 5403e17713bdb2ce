"""Local methods: an optimiser around an optimiser, by which workers communicate only in rounds."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Callable, Optional, Union

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ..codec import Codec
from ..errors import ContractError, MismatchError, UnsupportedError
from ._arguments import Arguments, explains_keywords
from ._flat import FlatParameters
from ._held import Held
from ._local_state import local_states
from ._loggers import Loggers
from ._memory import carrier_of
from ._native import LocalWorker
from ._parameters import describe
from ._reports import rows_of_round
from ._rest import begin_as_first
from ._saved import of_rank, to_tensor, together


class LocalOptimizer(torch.optim.Optimizer):
    """An optimiser around any other, whose workers communicate by a local method of thinwire.

    All ranks build it alike, and begin with rank 0's parameters and buffers. Contiguous float32
    parameters become views of one vector. The model is not wrapped in DistributedDataParallel:
    gradients are not exchanged.

    Args:
        optimizer: takes the local steps, over parameters of the model; each worker keeps its own state.
        model: the model whose trained parameters the workers exchange in rounds.
        method: "leader:tau=64,groups=2", docs/leader-sgd.md; the subclasses write it.
        codec: compresses rounds; codecs other than fp32 send differences to what all ranks have. Its
            schedules count rounds: "warmup(0.001;100steps)".
        feedback, exchange: the memory that keeps what a codec leaves out, and the collective of means;
            "auto" is what suits the method. Methods without means, leader and gossip, take nothing else.
        process_group: a process group; all ranks if absent. Beside one of nccl alone thinwire makes one of gloo.
        host: the name of this rank's host, if groups are hosts; the system's name if absent.
        max_skipped: this many bad rounds in a row end training; 0: never.
        deadline_seconds: the longest wait for another rank.

    Raises:
        thinwire.errors.Error: a name or option is wrong, or ranks differ; the text says where.
    """

    # A gradient scaler then calls step even where a gradient is not finite: other workers wait in a round.
    _step_supports_amp_scaling = True

    _needs_loss = False

    @explains_keywords
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        method: str,
        *,
        codec: Union[str, Codec] = "fp32",
        feedback: str = "auto",
        exchange: str = "auto",
        process_group: Optional[dist.ProcessGroup] = None,
        host: str = "",
        seed: int = 0,
        max_skipped: int = 5,
        deadline_seconds: float = 60.0,
    ) -> None:
        check = Arguments(type(self).__name__)
        check.kind("optimizer", optimizer, torch.optim.Optimizer)
        check.kind("model", model, nn.Module)
        codec = check.codec(codec)
        check.texts(method=method, feedback=feedback, exchange=exchange, host=host)
        check.seed(seed)
        check.counts(max_skipped=max_skipped)
        check.seconds(deadline_seconds=deadline_seconds)
        if isinstance(model, DistributedDataParallel):
            raise ContractError("a local method takes the model itself: DistributedDataParallel would "
                                "average every gradient")
        group = dist.group.WORLD if process_group is None else process_group
        if group is None:
            raise ContractError("a local method needs torch.distributed.init_process_group first")
        self._held = Held(optimizer, model)
        self.optim = optimizer
        # Of its own, in which torch registers hooks: the inner optimiser's run before the round.
        self._optimizer_step_post_hooks = OrderedDict()
        self._method, self._codec = method, codec
        parameters = describe(model, set())
        self._flat = FlatParameters(parameters, type(self).__name__)
        options = {"method": method, "codec": codec, "feedback": feedback, "exchange": exchange,
                   "seed": seed, "max_skipped": max_skipped, "host": host}
        tensors = [(p.name, list(p.tensor.shape), p.kind) for p in parameters]
        self._tensors = {name: shape for name, shape, _ in tensors}
        carrier = carrier_of(group)
        self._rank_of_world = dist.get_rank()
        self._worker = LocalWorker(carrier.group, tensors, self._flat.values, options, deadline_seconds)
        self._carrier = carrier  # behind the worker, which is to end before it
        self._needs_loss = self._worker.needs_loss
        self._flat.scatter()
        begin_as_first(model, self._flat.knows, group, self._worker.tell_all, deadline_seconds)
        self._gradient = torch.empty_like(self._flat.values) if self._worker.adjusts_gradient else None
        self._loggers = Loggers()
        self._last: dict[str, Any] = {}
        self._totals = {"rounds": 0, "total_sent_bytes": 0, "total_received_bytes": 0, "peak_sent_bytes": 0}

    # What is not here is the inner optimiser's: state, defaults, other hooks.
    def __getattr__(self, name: str) -> Any:
        if name == "optim":  # not yet built, as in copies
            raise AttributeError(name)
        return getattr(self.optim, name)

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.optim.state

    # copy.deepcopy and pickle come here.
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedError(f"{type(self).__name__}: it cannot be copied or saved whole, because it holds this worker's place "
                               "among the others: save its state_dict()")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._method!r}, codec={self._codec!r}, {self.optim!r})"

    def step(  # type: ignore[override]
        self, closure: Optional[Callable[[], Any]] = None, *, loss: Any = None
    ) -> Any:
        """Takes one step of the inner optimiser, and then, if one is due, a round. Hooks for the end of a step
        (`register_step_post_hook`) run last.

        Args:
            loss: the loss of this worker's batch, for methods that choose a leader; if there is a closure,
                its result is taken.
        """
        if self._needs_loss and loss is None and closure is None:
            raise ContractError("a leader is chosen by its loss: optimizer.step(loss=loss)")
        self._held.check()
        bad = bool(getattr(self, "found_inf", 0))  # set by a gradient scaler, for this step
        scale = getattr(self, "grad_scale", None)
        value = None
        if not bad:
            if scale is not None:
                self._divide_gradients(scale)
            value = self._step_alone(closure)
        judged = value if loss is None else loss
        with torch.no_grad():
            report = self._worker.after_step(
                self._flat.gather(), math.inf if bad or judged is None else float(judged)
            )
            self._flat.scatter()  # some methods move parameters in steps without a round
            if report is not None:
                self._count(report)
        for hook in list(self._optimizer_step_post_hooks.values()):
            hook(self, () if closure is None else (closure,), {} if loss is None else {"loss": loss})
        return value

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        given = param_group["params"]
        if not isinstance(given, (torch.Tensor, set)):  # of a set torch says that it has no order
            given = param_group["params"] = list(given)
        for one in [given] if isinstance(given, torch.Tensor) else given:
            if not self._flat.knows(one[1] if isinstance(one, tuple) else one):
                raise ContractError("a parameter came to the optimiser that the model had not, or did not "
                                    "train, when the local method was built")
        self.optim.add_param_group(param_group)

    def metrics(self) -> dict[str, Any]:
        """Returns the report of the last round on this rank; empty before the first.

        Returns:
            round, step, skipped, fault, global, fragment (-1: of the whole model), begun (the step after which
            its values were taken), ranks, losses (of these; inf: not finite), leaders, leader
            (-1: none), values, payload_bytes, sent_bytes, received_bytes, between_bytes, seconds;
            and rounds, total_sent_bytes, total_received_bytes, peak_sent_bytes (of the round that sent
            most) since this object was built.
        """
        return {**self._last, **self._totals} if self._last else {}

    def log_to(self, writer: Any, tag: str = "thinwire") -> None:
        """Writes the numbers of every round at this worker's step; writers are those of `Link.log_to`."""
        self._loggers.add(writer, tag)

    @contextlib.contextmanager
    def centre(self) -> Iterator[None]:
        """A context in which the model has the parameters to evaluate: the method's centre, or the workers' mean.

        All ranks enter it. Afterwards the parameters are the worker's own again, to the bit. Running
        statistics of batch norm are not changed: measure them again for a centre.
        """
        own = self._flat.gather().clone()
        middle = torch.empty_like(own)
        self._worker.centre(own, middle)
        self._put(middle)
        try:
            yield
        finally:
            self._put(own)

    def leave(self) -> None:
        """Says that this worker takes no more steps; asynchronous workers go on without it."""
        self._worker.leave()

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
        """Returns the inner optimiser's state, with this rank's part of the method's state under a key of this
        rank's own, for torch.distributed.checkpoint."""
        inner = self.optim.state_dict()
        own = {"method": self._method, "codec": self._codec, "rank": self._worker.rank,
               "world_size": self._worker.size, "tensors": self._tensors,
               "state": to_tensor(self._worker.save())}
        return {**inner, **of_rank({**inner, "thinwire": own}, self._rank_of_world)}

    def load_state_dict(self, state_dict: Any) -> None:
        """Loads a state. All ranks call it, after the caller loaded the model's parameters.

        Args:
            state_dict: the result of this rank's `state_dict`; or those of all old ranks in any order, if
                their number differs: inner optimisers then get the state of old rank r mod n. Or the state of
                the inner optimiser alone, from a run without thinwire: the method then starts afresh, and all
                begin with rank 0's parameters.

        Raises:
            thinwire.errors.Error: on all ranks; the optimiser is then unchanged. MismatchError: the state is
                of another rank, method or model; CorruptError: it is not what was saved.
        """
        before = self.optim.state_dict()
        try:
            self._load(state_dict)
        except BaseException:
            self.optim.load_state_dict(before)
            raise

    def _load(self, state_dict: Any) -> None:
        def read() -> Optional[list[list[tuple[Any, ...]]]]:
            inner, ours = local_states(self._worker.rank, self._worker.size, state_dict,
                                       self._method, self._codec, self._tensors)
            self.optim.load_state_dict(inner)
            return ours

        states = together(self._worker.tell_all, "load_state_dict", read)
        kinds = self._worker.tell_all("the inner optimiser's" if states is None else "thinwire's")
        if len(set(kinds)) > 1:
            raise MismatchError("load_state_dict: the state is " + ", ".join(
                f"{kind} on rank {rank}" for rank, kind in enumerate(kinds)))
        if states is None:
            self._worker.restart(self._flat.gather())
            self._flat.scatter()
        else:
            self._worker.load(states)

    def _step_alone(self, closure: Optional[Callable[[], Any]]) -> Any:
        """A step of the inner optimiser, by the gradients that the closure forms, or by those that are there."""
        if closure is None:
            self._adjust_gradients()
            return self.optim.step()

        def adjusted() -> Any:
            value = closure()
            self._adjust_gradients()
            return value

        return self.optim.step(adjusted)

    def _divide_gradients(self, scale: torch.Tensor) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.div_(scale)

    def _adjust_gradients(self) -> None:
        """Adds the method's own, if it has one."""
        if self._gradient is None:
            return
        with torch.no_grad():
            self._flat.gather_gradients(self._gradient)
            self._worker.adjust_gradient(self._flat.gather(), self._gradient)
            self._flat.scatter_gradients(self._gradient)

    def _put(self, values: torch.Tensor) -> None:
        with torch.no_grad():
            self._flat.values.copy_(values)
            self._flat.scatter()

    def _count(self, report: dict[str, Any]) -> None:
        self._last = report
        self._totals["rounds"] += 1
        self._totals["total_sent_bytes"] += report["sent_bytes"]
        self._totals["total_received_bytes"] += report["received_bytes"]
        self._totals["peak_sent_bytes"] = max(self._totals["peak_sent_bytes"], report["sent_bytes"])
        self._loggers.write(report["step"], lambda _: rows_of_round(self.metrics()))


def _text(name: str, **options: Any) -> str:
    """Writes the method as text for the engine, which sets options that are None."""
    written = [f"{key}={str(value).lower() if isinstance(value, bool) else value}"
               for key, value in options.items() if value is not None]
    return f"{name}:{','.join(written)}" if written else name


class LeaderSGD(LocalOptimizer):
    """Leader SGD [Teng et al., NeurIPS 2019]: all workers are pulled to the best of them.

        optimizer = tw.LeaderSGD(torch.optim.SGD(model.parameters(), lr=0.1), model, tau=64)
        ...
        optimizer.step(loss=loss)

    Args:
        tau: steps between two pulls to the best of the group.
        tau_global: steps between two pulls to the best of all, a multiple of tau; 2 tau if absent.
        pull, pull_global: strength of a pull, per communication: the paper's lambda.
        groups: number of groups of neighbouring ranks; 0: one for each host.
        window: losses whose mean judges a worker.
        asynchronous, patience: workers at speeds of their own, docs/leader-sgd.md.
        common: as LocalOptimizer takes them.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        *,
        tau: int = 64,
        tau_global: Optional[int] = None,
        pull: Optional[float] = None,
        pull_global: Optional[float] = None,
        groups: Optional[int] = None,
        window: Optional[int] = None,
        asynchronous: Optional[bool] = None,
        patience: Optional[float] = None,
        **common: Any,
    ) -> None:
        method = _text("leader", tau=tau, tau_global=2 * tau if tau_global is None else tau_global,
                       pull=pull, pull_global=pull_global, groups=groups, window=window,
                       asynchronous=asynchronous, patience=patience)
        super().__init__(optimizer, model, method, **common)


class PeriodicAveraging(LocalOptimizer):
    """Local SGD: all workers become their mean every `tau` steps [Stich, ICLR 2019]."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, model: nn.Module, *, tau: int = 64, **common: Any
    ) -> None:
        super().__init__(optimizer, model, _text("average", tau=tau), **common)


class ElasticAveraging(LocalOptimizer):
    """Elastic averaging: workers and a centre pull each other [Zhang et al., NIPS 2015].

    Args:
        rate: the paper's beta; a worker is pulled by rate / n to a variable centre, by rate to the mean.
        centre: "variable", a centre with its own parameters, or "mean", the mean of all workers.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        *,
        tau: int = 64,
        rate: Optional[float] = None,
        centre: Optional[str] = None,
        **common: Any,
    ) -> None:
        super().__init__(optimizer, model, _text("easgd", tau=tau, rate=rate, centre=centre), **common)


class DiLoCo(LocalOptimizer):
    """An outer Nesterov step along the way that the mean of all workers went [Douillard et al., 2023].

    With any of `fragments`, `order`, `delay` and `mix` it is Streaming DiLoCo [Douillard et al., arXiv 2501.18512]:
    parts of the model have their rounds in turn, and rounds overlap the steps.

        optimizer = tw.DiLoCo(inner, model, tau=100, fragments=4, delay=5, mix=0.5, codec="int4")

    Args:
        tau: steps between two rounds; with fragments, of each.
        rate, momentum: learning rate and momentum of the outer step.
        fragments: parts of the model, of whole layers, each with its own round; as the engine chooses if absent.
        order: "strided", layers of a fragment are every so many-th one, or "sequential", neighbours.
        delay: steps that a round overlaps, fewer than tau.
        mix: share of a worker's own parameters that is left after a round; 0: all continue from the outer step.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        *,
        tau: int = 500,
        rate: Optional[float] = None,
        momentum: Optional[float] = None,
        fragments: Optional[int] = None,
        order: Optional[str] = None,
        delay: Optional[int] = None,
        mix: Optional[float] = None,
        **common: Any,
    ) -> None:
        parts = {"fragments": fragments, "order": order, "delay": delay, "mix": mix}
        streams = any(value is not None for value in parts.values())
        super().__init__(optimizer, model, _text("streaming" if streams else "diloco", tau=tau, rate=rate,
                                                 momentum=momentum, **parts), **common)


class SparseLoCo(LocalOptimizer):
    """An outer step on what a sparse codec sends of a decaying sum of differences [Sarfi et al., arXiv 2508.15706].

    Args:
        rate: learning rate of the outer step.
        beta: share of what is owed that is left after a round; it takes the place of an outer momentum.
        codec: the paper keeps 1 to 3 % of every 4,096 values in 2 bits.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        model: nn.Module,
        *,
        tau: int = 30,
        rate: Optional[float] = None,
        beta: Optional[float] = None,
        codec: Any = "topk:density=0.02,block=4096,values=int2",
        **common: Any,
    ) -> None:
        super().__init__(optimizer, model, _text("sparseloco", tau=tau, rate=rate, beta=beta), codec=codec, **common)
