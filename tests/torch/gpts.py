"""A small GPT, sharded by fully_shard, its batches and steps. SPDX-License-Identifier: Apache-2.0"""
import unittest

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

TOKENS, WIDTH, LENGTH = 24, 18, 6  # a width that 4 shards do not divide
FROM_2_13 = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 13)


def needs_2_13(reason):
    return unittest.skipUnless(FROM_2_13, "torch before 2.13 " + reason)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = self.query_key_value(self.norm(x)).chunk(3, dim=-1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.down(nn.functional.gelu(self.up(x)))


class Gpt(nn.Module):
    def __init__(self, blocks=2):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x).clone()  # FSDP2 warns of views


class Checkpointed(Gpt):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x).clone()


def make_gpt(seed=1):
    torch.manual_seed(seed)
    return Gpt()


def make_checkpointed(reentrant):
    torch.manual_seed(1)
    return Checkpointed(reentrant)


def make_compiled():
    model = make_gpt()
    for block in model.blocks:
        block.compile(backend="aot_eager")
    return model


def mesh_of(replicas, shards):
    from torch.distributed.device_mesh import init_device_mesh
    return init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("replicate", "shard"))


def sharded(model, mesh, **settings):
    from torch.distributed.fsdp import fully_shard
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **settings)
    return fully_shard(model, mesh=mesh, **settings)


def tokens_of(step, rank):
    """Counts upwards, from another start on each rank: what follows is not hard to learn."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    starts = torch.randint(TOKENS, (4, 1), generator=generator)
    return (starts + torch.arange(LENGTH + 1)) % TOKENS


def loss_of(model, step, rank):
    tokens = tokens_of(step, rank)
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def train(model, optimizer, rank, steps, first=0):
    losses = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss = loss_of(model, step, rank)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def shards_of(model):
    """This rank's, one after another; of gradients or parameters."""
    return torch.cat([one.detach().to_local().flatten() for one in model.parameters()])


def gradients_of(model):
    return {name: one.grad.to_local().clone() for name, one in model.named_parameters() if one.grad is not None}


# Gradients of three backward passes add up, sent after each of them or after the last alone.
def without_communication(model, rank):
    for micro in range(3):
        model.set_requires_gradient_sync(micro == 2)
        loss_of(model, micro, rank).backward()


def with_communication(model, rank):
    for micro in range(3):
        loss_of(model, micro, rank).backward()


class FallingScaler:
    """Stands for a GradScaler whose scale halves after the first step."""
    scale = 1024.0

    def get_scale(self):
        return self.scale


def with_and_without_scaler(linked, rank):
    """The gradients of the second step, without their scale, of linked(scaler=) models."""
    found = []
    for scaler in (None, FallingScaler()):
        model, _ = linked(scaler=scaler)
        for step in range(2):
            model.zero_grad()
            scale = scaler.get_scale() if scaler else 1.0
            (loss_of(model, step, rank) * scale).backward()
            if scaler:
                scaler.scale /= 2
        found.append({name: one / scale for name, one in gradients_of(model).items()})
    return found
