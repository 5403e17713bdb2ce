"""Local methods, boundaries, optimisers and FSDP2 on a GPU, beside the same on the processor. check_torch.py runs it.

A network's own arithmetic differs between the two by rounding, so what is compared is close, and equal between ranks.
SPDX-License-Identifier: Apache-2.0"""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
SAMPLES, WIDTH = 8, 32


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 36, 32), nn.ReLU(), nn.Linear(32, 4))


def batch_of(step, rank, device):
    draws = torch.Generator().manual_seed(1000 * step + rank)
    images = torch.randn(SAMPLES, 1, 8, 8, generator=draws)
    return images.to(device), images.flatten(1)[:, :4].argmax(1).to(device)


def weights_of(model):
    return torch.cat([getattr(one, "to_local", lambda one=one: one)().detach().flatten().cpu() for one in model.parameters()])


def trained(model, optimizer, rank, device, gives_loss=False):
    for step in range(STEPS):
        images, labels = batch_of(step, rank, device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step(**({"loss": loss} if gives_loss else {}))
    return weights_of(model)


def replicated(codec, **options):
    def run(rank, device):
        import thinwire.torch as tw
        model = DistributedDataParallel(network().to(device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        tw.compress(model, codec, optimizer=optimizer, **options)
        return trained(model, optimizer, rank, device)
    return run


def local(kind, **settings):
    def run(rank, device):
        import thinwire.torch as tw
        model = network().to(device)
        optimizer = getattr(tw, kind)(torch.optim.SGD(model.parameters(), lr=0.05), model, **settings)
        return trained(model, optimizer, rank, device, gives_loss=True)
    return run


def boundary(**settings):
    """A pipeline of two ranks, whose losses are the last rank's."""
    def run(rank, device):
        import thinwire.torch as tw
        torch.manual_seed(4)
        stage = (nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU()),
                 nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, 4)))[rank].to(device)
        side = {"to_rank": 1} if rank == 0 else {"from_rank": 0, "device": device}
        link = tw.Boundary([WIDTH], SAMPLES, **side, **settings)
        optimizer = torch.optim.SGD(stage.parameters(), lr=0.1)
        losses = []
        for step in range(STEPS):
            optimizer.zero_grad()
            images, labels = batch_of(step, 0, device)
            ids = range(SAMPLES)
            if rank == 0:
                link.send(stage(images), ids=ids).backward()
            else:
                loss = nn.functional.cross_entropy(stage(link.receive(ids=ids)), labels)
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
            link.step()
        found = [losses]
        dist.broadcast_object_list(found, 1)
        return torch.tensor(found[0])
    return run


def sharded(codec):
    """HSDP with a shard to a rank: gradients between replicas go by thinwire, those within by the device's own backend."""
    def run(rank, device):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        import thinwire.torch as tw
        mesh = init_device_mesh(device.type, (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard"))
        model = network().to(device)
        fully_shard(model, mesh=mesh["shard"])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        tw.compress(model, codec, replicate=mesh["replicate"], optimizer=optimizer)
        return trained(model, optimizer, rank, device)
    return run


PARTS = {
    "fp32": replicated("fp32"),
    "int8": replicated("int8"),
    "sidco:density=0.1, momentum in the memory": replicated("sidco:density=0.1"),
    "adacomp": replicated("adacomp"),
    "powersgd": replicated("powersgd"),
    "LeaderSGD, int8": local("LeaderSGD", tau=2, codec="int8"),
    "DiLoCo, int8": local("DiLoCo", tau=3, codec="int8"),
    "PeriodicAveraging": local("PeriodicAveraging", tau=2),
    "boundary, int8 with AQ-SGD": boundary(codec="uniform:bits=8,block=tensor", memory="aqsgd:key=sample",
                                           gradient_codec="int8"),
    "boundary, top-k with EF": boundary(codec="topk:density=0.25", memory="ef", gradient_codec="fp16"),
    "HSDP, int8": sharded("int8"),
}


def same_on_all_ranks(values):
    first = values.clone()
    dist.broadcast(first, 0)
    differs = torch.tensor(int(not torch.equal(first, values)))
    dist.all_reduce(differs)
    return differs.item() == 0


def check_models(rank, device):
    """A row of each part: its largest difference from the processor's, and whether ranks have the same where they do there."""
    for name, run in PARTS.items():
        here = run(rank, torch.device("cpu"))
        there = run(rank, device)
        difference = (there - here).abs().max()
        if not difference.isfinite():
            difference.fill_(torch.inf)
        dist.all_reduce(difference, op=dist.ReduceOp.MAX)
        yield {"part": name, "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else "",
               "difference": difference.item(), "largest": here.abs().max().item(),
               "ranks_agree": same_on_all_ranks(there) == same_on_all_ranks(here)}
