"""Adam and AdamW for gradients whose values arrive late: each arrival counts for the steps that it waited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

import torch
import torch.nn as nn

from thinwire.errors import BadOptionError, ContractError

from ._native import arrivals_count

_WAITED = "waited"


class ArrivalMoments:
    """While it is attached it takes the steps of the optimiser's parameters that a link carries. A value that arrives
    after k steps is, for the first moment, k steps with the k-th part of it, so that what waited does not wait again:

        m <- beta1^k m + (1 - beta1^k) a / k,    v <- beta2 v + (1 - beta2) a^2 in every step
        w <- w - k lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)

    A value that is zero has not arrived: its weight and first moment stay. Where every value arrives in every step
    this is the optimiser's own step. Its groups are read in each step, so that learning rates and betas may change.
    Its state is the optimiser's own, with one more entry, `waited`: the steps since each value arrived.
    """

    def __init__(self, optimizer: torch.optim.Adam, parameters: Iterable[nn.Parameter]) -> None:
        self._optimizer = optimizer
        self._known = {id(parameter) for parameter in parameters}
        for key in ("amsgrad", "differentiable", "capturable"):
            if any(group.get(key) for group in optimizer.param_groups):
                raise BadOptionError(f"momentum: an optimizer with {key}=True cannot count late arrivals for the steps "
                                     f"that they waited; use {key}=False, or momentum=\"auto\"")
        self._gradients: list[tuple[nn.Parameter, torch.Tensor]] = []
        self._handles = [optimizer.register_step_pre_hook(self._enter),
                         optimizer.register_step_post_hook(self._leave)]

    def give_back(self) -> None:
        """The optimiser goes on from its own state by itself."""
        self.detach()
        for state in self._optimizer.state.values():
            state.pop(_WAITED, None)

    def detach(self) -> None:
        self._restore()
        for handle in self._handles:
            handle.remove()

    def _enter(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._restore()  # of a step that failed
        if kwargs.get("closure") is not None or any(callable(one) for one in args[1:]):
            raise ContractError("momentum: an optimizer that counts late arrivals takes no closure; "
                                "call backward before step")
        # Of a fused optimiser, which takes a gradient scaler's work over.
        skipped = getattr(optimizer, "found_inf", None)
        scale = getattr(optimizer, "grad_scale", None)
        take = skipped is None or skipped.item() == 0
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None or id(parameter) not in self._known:
                    continue
                if take:
                    self._step(group, parameter, None if scale is None else scale)
                # The optimiser's own code finds nothing to do.
                self._gradients.append((parameter, parameter.grad))
                parameter.grad = None

    def _leave(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._restore()

    def _restore(self) -> None:
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        self._gradients = []

    @torch.no_grad()
    def _step(self, group: Mapping[str, Any], parameter: nn.Parameter, scale: Optional[torch.Tensor]) -> None:
        state = self._optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        if _WAITED not in state:
            state[_WAITED] = torch.zeros_like(_real(state["exp_avg"]), dtype=torch.float32)
        elif state[_WAITED].dtype != torch.float32:  # load_state_dict gives it the parameter's
            state[_WAITED] = state[_WAITED].float()
        state["step"] += 1
        steps = float(state["step"])
        beta1, beta2 = (float(beta) for beta in group["betas"])
        rate, decay = float(group["lr"]), float(group["weight_decay"])
        decoupled = bool(group.get("decoupled_weight_decay", isinstance(self._optimizer, torch.optim.AdamW)))

        weights, first, second = _real(parameter), _real(state["exp_avg"]), _real(state["exp_avg_sq"])
        gradient, waited = _real(parameter.grad), state[_WAITED]
        if decay != 0 and decoupled:
            weights.mul_(1 - rate * decay)
        waited += 1
        arrived = gradient != 0
        before = weights[arrived]
        k = waited[arrived].to(before.dtype)
        total = gradient[arrived].to(before.dtype)
        if scale is not None:
            total = total / scale
        if group["maximize"]:
            total = -total
        if decay != 0 and not decoupled:
            total = total + before * k * decay
        mean = torch.lerp(total / k, first[arrived], torch.pow(beta1, k))
        second.mul_(beta2)
        square = second[arrived].addcmul_(total, total, value=1 - beta2)
        root = (square / (1 - beta2**steps)).sqrt_().add_(group["eps"])
        weights[arrived] = before - (mean * k).div_(root).mul_(rate / (1 - beta1**steps))
        first[arrived], second[arrived] = mean, square
        waited[arrived] = 0


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """A view of complex values as pairs."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor.detach()


def count_arrivals(
    optimizer: Optional[torch.optim.Optimizer], where: str, parameters: Sequence[nn.Parameter]
) -> Optional[ArrivalMoments]:
    """Attached to torch's Adam or AdamW if `where` is "arrival", else nothing.

    Args:
        where: what `compress` has as `momentum`.
    """
    if where == "memory" or not arrivals_count(where):  # "memory" is for place
        return None
    if not isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)):
        raise BadOptionError("momentum=\"arrival\": " + (
            "name the Adam or AdamW: compress(..., optimizer=optimizer)" if optimizer is None
            else f"is for torch's Adam and AdamW, not {type(optimizer).__name__}"))
    return ArrivalMoments(optimizer, parameters)
