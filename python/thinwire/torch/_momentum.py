"""Moves an optimiser's momentum into the memories of a link, where it acts before compression."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
import types
import weakref
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, Optional

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ..errors import BadOptionError, ContractError
from ._attached import first_behind_step
from ._clipped import ClippedMeans
from ._first_moment import has_first_moment
from ._native import check_momentum_acts_once, place_momentum
from ._parameters import as_part_of, gets_gradient, has_values
from ._warn import warn_user

_NO_MOMENTUM: Mapping[str, Any] = {"momentum": 0, "dampening": 0, "nesterov": False, "weight_decay": 0}
_TAKEN_OVER = ("momentum", "weight_decay")  # of groups, as steps of derived classes find them changed
_NONE = (0.0, 0.0, False)
_BUFFER = "momentum_buffer"


def _own(group: Mapping[str, Any]) -> tuple[float, float, bool]:
    return float(group["momentum"]), float(group.get("dampening", 0)), bool(group.get("nesterov", False))


def _texts_in(code: types.CodeType) -> set[str]:
    """The texts that a function has as they are, such as the keys that it asks for."""
    found: set[str] = set()
    left = list(code.co_consts)
    while left:
        one = left.pop()
        if isinstance(one, str):
            found.add(one)
        elif isinstance(one, (tuple, frozenset)):
            left.extend(one)
        elif isinstance(one, types.CodeType):
            left.extend(one.co_consts)
    return found


def _leaves_step_to_above(step: Callable[..., Any]) -> bool:
    """Whether a class's own step calls that of the class above, and neither uses nor sets what is taken over meanwhile."""
    code = getattr(step, "__code__", None)
    return code is None or ("step" in code.co_names and _texts_in(code).isdisjoint(_TAKEN_OVER))


def steps_as_sgd(optimizer: torch.optim.Optimizer) -> bool:
    """Whether torch's SGD makes its steps: its class has no step of its own, or one that calls the step of the class above.
    Another, such as that of LARS, may do anything with the momentum of its groups, and so may one that names momentum or
    weight decay, such as that of SGDW."""
    kind = type(optimizer)
    if not isinstance(optimizer, torch.optim.SGD):
        return False
    above = kind.__mro__[:kind.__mro__.index(torch.optim.SGD)]
    # Torch puts functions around the steps of all classes, also of those that have none of their own.
    own = [inspect.unwrap(one.__dict__["step"]) for one in above if "step" in one.__dict__]
    sgd = inspect.unwrap(torch.optim.SGD.step)
    return all(step is sgd or _leaves_step_to_above(step) for step in own)


def _momentum_groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Those of torch's SGD, or a class derived from it whose steps SGD makes, that have momentum."""
    if not steps_as_sgd(optimizer):
        return []
    return [group for group in optimizer.param_groups if group["momentum"] != 0]


class MemoryMomentum:
    """While it is attached the optimiser adds the mean, which has its momentum already, and the
    momentum of its weight decay, which is the same on every rank. Its groups say what they said;
    their learning rate and momentum may change from step to step.

    Between the steps of torch's SGD, whose own code makes the step, `momentum_buffer` holds the
    momentum of the weight decay, and of whatever gradients had been in it before. SGD is linear in
    what it is given, so that what the memories hold on average and this together are SGD's
    momentum.
    """

    def __init__(self, optimizer: torch.optim.SGD, parameters: Iterable[nn.Parameter]) -> None:
        self._optimizer = optimizer
        self._first = _own(_momentum_groups(optimizer)[0])  # what memories are made with
        self.known = {id(parameter) for parameter in parameters}
        strangers = [p for group in _momentum_groups(optimizer) for p in group["params"]
                     if p.requires_grad and id(p) not in self.known]
        if strangers:
            raise BadOptionError(
                f"momentum: {len(strangers)} parameters of the optimizer are not of the model, and a group's "
                "momentum acts on all of its parameters; give them groups without momentum, or momentum=\"optimizer\""
            )
        # The first gradient that memories see would count undampened, as torch counts an
        # optimiser's first.
        if any(group.get("dampening", 0) != 0 and _BUFFER in optimizer.state.get(p, {})
               for group in _momentum_groups(optimizer) for p in group["params"]):
            raise BadOptionError(
                "momentum: an optimizer with dampening that has taken steps cannot be taken over; name it before its "
                "first step and load its state afterwards, or momentum=\"optimizer\""
            )
        self._before_step: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._gradients: list[tuple[nn.Parameter, torch.Tensor, torch.Tensor]] = []  # as exchanged, and as SGD takes them
        self._evaluated: Optional[Callable[[], Any]] = None  # stands for the closure of the step under way
        self._exchanges = 0  # since the last step
        self._is_told = False
        self._clipped = ClippedMeans()
        self._handles: list[Any] = []

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        self._handles = [optimizer.register_step_pre_hook(self._enter),
                         first_behind_step(optimizer, self._leave),
                         # Of a step that failed.
                         optimizer.register_state_dict_pre_hook(lambda _: self._restore()),
                         optimizer.register_load_state_dict_pre_hook(lambda *_: self._restore())]

    def with_memories(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """An exchange's options with the memories that hold the momentum."""
        _, memory, of_rules = place_momentum(dict(options), "memory", self._first)
        rules = [{**rule, "feedback": own} for rule, own in zip(options["rules"], of_rules)]
        return {**options, "feedback": memory, "rules": rules}

    def of_each(self, parameters: Sequence[nn.Parameter]) -> list[tuple[float, float, bool]]:
        """What the groups say now; between two steps of the optimiser."""
        self._restore()  # of a step that failed
        found = {id(p): _own(group) for group in self._optimizer.param_groups for p in group["params"]}
        return [found.get(id(parameter), _NONE) for parameter in parameters]

    def note_exchange(self) -> None:
        self._exchanges += 1

    def look_at_means(self) -> None:
        """Behind a backward pass with an exchange."""
        self._clipped.look(p for group in _momentum_groups(self._optimizer) for p in group["params"])

    @property
    def awaits_step(self) -> bool:
        """Whether there was an exchange since the optimiser's last step."""
        return self._exchanges > 0 and bool(self._handles)

    def has_mean_in(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Whether the optimiser's next step is to use what an exchange has brought of some of these parameters."""
        return self.awaits_step and any(one.grad is not None and has_values(one.grad) for one in parameters)

    def has_mean(self) -> bool:
        return self.has_mean_in(p for group in _momentum_groups(self._optimizer) for p in group["params"])

    def refuse_second_exchange(self) -> None:
        """Raises, when a backward pass begins, where gradients hold what an exchange has brought: a velocity, which the
        memories would take for a gradient and put into their velocity again."""
        if self.has_mean_in(parameter for group in _momentum_groups(self._optimizer) for parameter in group["params"]
                            if gets_gradient(parameter)):
            raise ContractError(
                "backward: gradients were exchanged already since the last step of the optimizer, and .grad still has their "
                "mean. With momentum in the memory a second exchange would put that mean into the momentum again, and training "
                "would diverge: run all backward passes of a step but the last under model.no_sync(), or give compress "
                "momentum=\"optimizer\"; if the earlier gradients are not to be used, call optimizer.zero_grad() before this pass")

    def _look_at_exchanges(self) -> None:
        """Memories count exchanges, which are to be as many as steps of the optimiser."""
        exchanges, self._exchanges = self._exchanges, 0
        if exchanges > 1 and not self._is_told:
            self._is_told = True
            warn_user(
                f"gradients were exchanged {exchanges} times since the last step of the optimizer, and momentum in the memory "
                "acts in every exchange: run all backward passes of a step but the last under no_sync(), call "
                "link.skip_step() before a pass whose gradients are not used, or give momentum=\"optimizer\"")

    def give_back(self, velocities: Mapping[int, torch.Tensor]) -> None:
        """The optimiser's own momentum acts again, from the next step on, and goes on from these:
        the mean over ranks of what memories held of each parameter, by its id."""
        self.detach()
        for group in _momentum_groups(self._optimizer):
            for parameter in group["params"]:
                velocity = velocities.get(id(parameter))
                if velocity is None:
                    continue
                state = self._optimizer.state[parameter]
                buffer = state.get(_BUFFER)
                if parameter.is_complex():
                    velocity = torch.view_as_complex(velocity.view(-1, 2))
                velocity = as_part_of(velocity.to(parameter.device), parameter).to(parameter.dtype)
                # With maximize, SGD's buffer has the velocity of what it subtracts.
                velocity = -velocity if group.get("maximize") else velocity.clone()
                state[_BUFFER] = velocity if buffer is None else buffer.add_(velocity)

    def detach(self) -> None:
        self._restore()
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _enter(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Optional[tuple[Any, Any]]:
        arguments = None
        closure = kwargs.get("closure") or next((one for one in args[1:] if callable(one)), None)
        if self._before_step and closure in (None, self._evaluated):
            return None  # the step of a derived class has called SGD's, with the closure or without
        self._restore()
        if closure is not None:  # gradients come from it, and are the mean when it returns; SGD calls it once
            with torch.enable_grad():
                loss = closure()
            self._evaluated = done = lambda: loss  # noqa: E731
            arguments = (tuple(done if one is closure else one for one in args),
                         {name: done if one is closure else one for name, one in kwargs.items()})
        self._look_at_exchanges()
        self._clipped.look_again(max(group["momentum"] for group in optimizer.param_groups))
        try:
            self._take_momentum(optimizer)
        except BaseException:
            self._restore()
            raise
        return arguments

    def _take_momentum(self, optimizer: torch.optim.Optimizer) -> None:
        """Until _restore: groups have no momentum, and gradients have the momentum of the weight decay."""
        # Of a fused optimiser, which takes a gradient scaler's work over.
        skipped = getattr(optimizer, "found_inf", None)
        scale = getattr(optimizer, "grad_scale", None)
        scale = 1.0 if scale is None else scale.item()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and (skipped is None or skipped.item() == 0):
                    self._add_decay(group, parameter, -scale if group.get("maximize") else scale)
            before = {key: group[key] for key in _NO_MOMENTUM if key in group}
            self._before_step.append((group, before))
            group.update({key: _NO_MOMENTUM[key] for key in before})

    def _leave(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._restore()

    def _restore(self) -> None:
        for group, values in self._before_step:
            # What another hook has set meanwhile stays.
            group.update({key: value for key, value in values.items() if group.get(key) == _NO_MOMENTUM[key]})
        for parameter, exchanged, taken in self._gradients:
            if parameter.grad is taken:  # not behind a step that failed, where another may be there by now
                parameter.grad = exchanged
        self._before_step, self._gradients, self._evaluated = [], [], None

    @torch.no_grad()
    def _add_decay(self, group: Mapping[str, Any], parameter: nn.Parameter, scale: float) -> None:
        momentum, dampening, nesterov = _own(group)
        if momentum != 0 and id(parameter) not in self.known:
            raise ContractError("momentum: a parameter came to the optimizer after compress was called")
        state = self._optimizer.state.get(parameter, {})
        buffer = state.get(_BUFFER) if momentum != 0 else None
        decay = group.get("weight_decay", 0)
        if decay == 0 and buffer is None:
            return
        term = parameter.detach() * decay
        if momentum != 0:
            if buffer is None:
                buffer = term.clone()
                self._optimizer.state[parameter][_BUFFER] = buffer
            else:
                buffer.mul_(momentum).add_(term, alpha=1 - dampening)
            term = term.add(buffer, alpha=momentum) if nesterov else buffer
        taken = (term * scale).add_(parameter.grad)  # which may be sparse
        self._gradients.append((parameter, parameter.grad, taken))
        parameter.grad = taken


def place(
    optimizer: Optional[torch.optim.Optimizer],
    where: str,
    parameters: Sequence[nn.Parameter],
    options: Mapping[str, Any],
) -> Optional[MemoryMomentum]:
    """Where the optimiser's momentum acts in an exchange with these options: to be attached to the
    optimiser if that is in the memories, else nothing."""
    groups = [] if optimizer is None else _momentum_groups(optimizer)
    if where == "memory" and not groups:
        raise BadOptionError("momentum=\"memory\": " + (
            "name the optimizer whose momentum it is: compress(..., optimizer=optimizer)"
            if optimizer is None else f"{type(optimizer).__name__} has no momentum that could act in the memory"))
    if not place_momentum(dict(options), where, _own(groups[0]) if groups else _NONE)[0]:
        return None
    return MemoryMomentum(optimizer, parameters)  # type: ignore[arg-type]


def would_move(optimizer: torch.optim.Optimizer, options: Mapping[str, Any]) -> bool:
    """Whether an exchange that began with these options would have the optimiser's momentum in its memories."""
    groups = _momentum_groups(optimizer)
    try:
        return bool(groups) and place_momentum(dict(options), "auto", _own(groups[0]))[0]
    except BadOptionError:  # the memory of a rule cannot hold it
        return False


def momentum_in(group: Mapping[str, Any]) -> float:
    """That of a group of an optimiser of any kind, or the first of its betas. What is no number may mean anything, and counts
    as 0."""
    betas = group.get("betas")
    for own in (group.get("momentum"), betas[0] if isinstance(betas, Sequence) and betas else None):
        if isinstance(own, Real) or (isinstance(own, torch.Tensor) and own.numel() == 1):
            if float(own) != 0:
                return float(own)
    return 0.0


def coefficient_of(optimizer: torch.optim.Optimizer, known: Container[int]) -> float:
    """The momentum of an optimiser of any kind, or the coefficient of its first moment, in the first group that has one.

    Args:
        known: the ids of the parameters that count.
    """
    for group in optimizer.param_groups:
        if any(id(parameter) in known for parameter in group["params"]):
            own = momentum_in(group)
            if own != 0:
                return own
    return 0.0


def acts_twice(own: float, options: Mapping[str, Any]) -> str:
    """Why an optimiser's momentum of `own` must not act beside these options of an exchange; empty if it may."""
    try:
        check_momentum_acts_once(dict(options), own)
    except BadOptionError as error:
        return str(error)
    return ""


def has_momentum(options: Mapping[str, Any]) -> bool:
    """Whether a memory of these options adds momentum."""
    return acts_twice(1.0, options) != ""


class UnnamedOptimizer:
    """Warns, once, when `compress` was not told of the optimiser that steps these parameters, and it has momentum, or Adam's
    first moment, beside a codec or a memory with which that should not act on the mean.

    Args:
        codec: one that leaves most values for later steps, if there is one and momentum is not meant to act on its bursts.
        settings: of each codec in use, the options of an exchange with this codec alone.
    """

    remedy = ". compress(..., optimizer=optimizer) lets a memory take SGD's momentum over where it can, and refuses the others"

    def __init__(self, codec: Optional[str], settings: Sequence[Mapping[str, Any]],
                 parameters: Iterable[nn.Parameter]) -> None:
        self._codec, self._settings = codec, settings
        self._parameters = {id(parameter) for parameter in parameters}
        self._left = set(self._parameters)  # that no optimiser has stepped
        _waiting.add(self)

    def look(self, optimizer: torch.optim.Optimizer) -> None:
        stepped = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]} & self._parameters
        if not stepped:
            return
        self._left -= stepped
        own = coefficient_of(optimizer, self._parameters)
        if own != 0 and self._tell(optimizer, own) or not self._left:
            self.detach()

    def _tell(self, optimizer: torch.optim.Optimizer, own: float) -> bool:
        """Warns of the momentum of an optimiser, which is `own`, where it may do harm; whether it does."""
        twice = [text for text in (acts_twice(own, options) for options in self._settings) if text]
        if twice:
            warn_user(f"{twice[0]}{self.remedy}")
        elif self._codec is None:
            return False
        elif steps_as_sgd(optimizer):
            self._warn("momentum", "compress(..., optimizer=optimizer) moves it in front of compression, and ")
        elif has_first_moment(optimizer):
            self._warn("first moment", "compress(..., optimizer=optimizer) leaves it out, and ")
        else:
            self._warn("momentum", "")
        return True

    def _warn(self, what: str, remedy: str) -> None:
        warn_user(
            f"codec '{self._codec}' leaves most values for later steps, and the optimizer's {what} acts on the bursts "
            f"in which they arrive, which costs accuracy; {remedy}momentum=\"optimizer\" says that it is meant so; "
            "a codec that sends all values, such as int8, has no bursts")

    def detach(self) -> None:
        _waiting.discard(self)


_waiting: weakref.WeakSet[UnnamedOptimizer] = weakref.WeakSet()  # for a step of their parameters


def _before_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for one in list(_waiting):
        one.look(optimizer)


# One hook for all, for good: torch runs its hooks while it iterates over them, so that none may remove itself.
register_optimizer_step_pre_hook(_before_step)
