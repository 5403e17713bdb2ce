"""Networks with every kind of parameter, and one backward pass of them.
SPDX-License-Identifier: Apache-2.0"""
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


class Net(nn.Module):
    """A layer of some kind between two plain ones."""

    def __init__(self, middle):
        super().__init__()
        torch.manual_seed(3)
        self.front = nn.Linear(6, 8)
        self.middle = middle()
        self.back = nn.Linear(8, 4)

    def forward(self, images):
        return self.back(self.middle(torch.relu(self.front(images))))


class Converting(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.inner = nn.Linear(8, 8).to(dtype)

    def forward(self, images):
        return self.inner(images.to(self.inner.weight.dtype)).to(images.dtype)


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8, bias=False, dtype=torch.complex64)

    def forward(self, images):
        turned = self.inner(images.to(torch.complex64))
        return turned.real + 2 * turned.imag


class Bag(nn.Module):
    """Looks up rows of a table by the signs of what comes in."""

    def __init__(self, sparse=True):
        super().__init__()
        self.table = nn.EmbeddingBag(20, 8, sparse=sparse)

    def forward(self, images):
        rows = (images.detach() * 1000).long().remainder(10)[:, :3]
        return images + self.table(rows)


class Scalar(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(0.5))
        self.shift = nn.Parameter(torch.tensor([0.1]))

    def forward(self, images):
        return images * self.gain + self.shift


class Empty(nn.Module):
    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(0, 8))

    def forward(self, images):
        return images + self.nothing.sum()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.other.weight = self.one.weight

    def forward(self, images):
        return self.other(torch.tanh(self.one(images)))


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
        self.one.requires_grad_(False)

    def forward(self, images):
        return self.other(self.one(images))


class Tiny(nn.Module):
    """Every gradient is less than the least float16."""

    def __init__(self):
        super().__init__()
        self.values = nn.Parameter(torch.zeros(8, 4, dtype=torch.float16))

    def forward(self):
        return self.values.float().sum() * 1e-8


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, images):
        return self.used(images)


MIDDLES = {
    "float16": lambda: Converting(torch.float16),
    "bfloat16": lambda: Converting(torch.bfloat16),
    "complex": Complex,
    "sparse": Bag,
    "scalar": Scalar,
    "empty": Empty,
    "tied": Tied,
    "frozen": Frozen,
    "unused": Unused,
    "plain": lambda: nn.Linear(8, 8),
}


# Weights of two programs that round in other places, after STEPS steps; of float16 and bfloat16 in
# units of their own.
CLOSE = {"float16": 2e-3, "bfloat16": 2e-2}


def wrap(name, middle=None, **settings):
    return DistributedDataParallel(Net(middle or MIDDLES[name]), find_unused_parameters=name == "unused",
                                   bucket_cap_mb=0.0001, **settings)


def wrap_for_torch(name):
    """The same network, for gradients that torch itself averages: those of a table are dense.

    Where gloo adds sparse ones beside others, two of its threads write one text at once, which is too
    long to lie in the string itself: torch 2.13 then ends with "malloc(): unaligned tcache chunk"."""
    return wrap(name, (lambda: Bag(sparse=False)) if name == "sparse" else None)


def backward(model, step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    images = torch.randn(8, 6, generator=generator)
    model.zero_grad()
    nn.functional.cross_entropy(model(images), images[:, :4].argmax(1)).backward()


def floats(tensors):
    """All values in one vector; zeros where there is no gradient."""
    parts = []
    for parameter, tensor in tensors:
        tensor = torch.zeros_like(parameter) if tensor is None else tensor.detach().to_dense()
        parts.append((torch.view_as_real(tensor) if tensor.is_complex() else tensor).float().flatten())
    return torch.cat(parts)


def gradients_of(model):
    return floats((parameter, parameter.grad) for parameter in model.parameters())


def weights_of(model):
    return floats((parameter, parameter) for parameter in model.parameters())
