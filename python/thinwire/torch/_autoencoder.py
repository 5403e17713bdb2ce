"""tw.Encoder and tw.Decoder: trained matrices that narrow what crosses a boundary, and widen it again."""

# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import torch
from torch import nn

from ._arguments import Arguments, explains_keywords


def _orthonormal(features: int, code: int, seed: int) -> torch.Tensor:
    """`code` orthonormal columns of `features` values, the same in every process."""
    normal = torch.randn(features, code, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.linalg.qr(normal)[0].float()


class _Matrix(nn.Module):
    """A linear map of one dimension of its input."""

    def __init__(self, weight: torch.Tensor, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.contiguous())
        self.dim = dim

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(values.movedim(self.dim, -1), self.weight).movedim(-1, self.dim)

    def extra_repr(self) -> str:
        to, of = self.weight.shape
        return f"{of}, {to}, dim={self.dim}"


def _checked(name: str, features: int, code: int, dim: int, seed: int) -> torch.Tensor:
    check = Arguments(name)
    check.counts(1, features=features)
    check.whole(1, features, code=code)
    check.whole(-8, 7, dim=dim)
    check.seed(seed)
    return _orthonormal(features, code, seed)


class Encoder(_Matrix):
    """The end of a stage in front of a boundary: a code of `code` values in the place of `features`.

    Its weight (code x features) has orthonormal rows at first. The stage's optimiser trains it, by the gradient of the
    code, which comes back over the boundary. docs/pipeline.md, Autoencoders, says more.

    Args:
        features: the number of features of the activation.
        code: the number of values of the code, at most as many.
        dim: the dimension with the features; 1 for the channels of images.
        seed: of the first weights; the Decoder's must be the same.

    Raises:
        thinwire.errors.BadOptionError: a number is out of its range.
    """

    @explains_keywords
    def __init__(self, features: int, code: int, *, dim: int = -1, seed: int = 0) -> None:
        super().__init__(_checked("Encoder", features, code, dim, seed).t(), dim)


class Decoder(_Matrix):
    """The beginning of a stage behind a boundary: `features` values from a code of `code`.

    Its weight (features x code) is at first the transpose of the Encoder's, so that both together project.

    Args:
        code, features, dim, seed: as those of the Encoder.

    Raises:
        thinwire.errors.BadOptionError: a number is out of its range.
    """

    @explains_keywords
    def __init__(self, code: int, features: int, *, dim: int = -1, seed: int = 0) -> None:
        super().__init__(_checked("Decoder", features, code, dim, seed), dim)
