"""A small GPT on characters of Shakespeare with DistributedDataParallel; the two lines of thinwire are marked.

    torchrun --nproc-per-node 2 gpt.py --codec powersgd:rank=4

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import gzip
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw  # thinwire

TEXT = pathlib.Path(__file__).resolve().parents[2] / "data" / "tinyshakespeare" / "input.txt.gz"


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for part in self.qkv(self.norms[0](x)).chunk(3, dim=2))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Gpt(nn.Module):
    def __init__(self, symbols, context, width, layers, heads):
        super().__init__()
        self.symbols, self.places = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)

    def forward(self, x):
        x = self.symbols(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(x)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--codec", default="powersgd:rank=4")
    parser.add_argument("--text", type=pathlib.Path, default=TEXT)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(1)
    text = gzip.decompress(options.text.read_bytes()).decode()
    alphabet = sorted(set(text))
    places = {symbol: i for i, symbol in enumerate(alphabet)}
    symbols = torch.tensor([places[symbol] for symbol in text])
    model = DistributedDataParallel(Gpt(len(alphabet), options.context, options.width, options.layers, 4))
    link = tw.compress(model, options.codec, rules={"*symbols*": "int8", "head.*": "int8"})  # thinwire
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    draws = torch.Generator().manual_seed(dist.get_rank())
    for step in range(options.steps):
        begins = torch.randint(len(symbols) - options.context - 1, (16,), generator=draws)
        text = torch.stack([symbols[b : b + options.context + 1] for b in begins])
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and (step + 1) % max(1, options.steps // 10) == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}, {link.metrics()['wire_ratio']:.0f} times fewer bytes")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
