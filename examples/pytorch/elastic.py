"""The small GPT of gpt.py on replicas that come and go, by torchft; the lines of thinwire are marked.

    python elastic.py                   # three replicas; one is killed and another starts in its place, a fourth joins

starts torchft's lighthouse and the replicas on this machine. On several, start a lighthouse and a replica on each:

    torchft_lighthouse --min_replicas 1 --bind 0.0.0.0:29510
    TORCHFT_LIGHTHOUSE=http://HOST:29510 python elastic.py --replica 0 --host MY-ADDRESS

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import gzip
import os
import subprocess
import sys
import threading
from datetime import timedelta

os.environ.setdefault("RUST_LOG", "error")  # or torchft prints every quorum

import torch
import torch.distributed as dist
import torchft
from torch import nn
from torchft.coordination import LighthouseServer

from gpt import TEXT, Gpt
from thinwire.torchft import DistributedDataParallel, ProcessGroup  # thinwire


def train(options):
    """One replica. It may start at any time."""
    text = gzip.decompress(TEXT.read_bytes()).decode()
    places = {symbol: i for i, symbol in enumerate(sorted(set(text)))}
    symbols = torch.tensor([places[symbol] for symbol in text])
    model = Gpt(len(places), options.context, options.width, options.layers, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)

    def state():
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load(given):
        model.load_state_dict(given["model"])
        optimizer.load_state_dict(given["optimizer"])

    if options.wait:
        print("ready", flush=True)
        sys.stdin.readline()
    store = dist.TCPStore(options.host, 0, is_master=True, wait_for_workers=False)
    group = ProcessGroup(options.codec, timeout=timedelta(seconds=20))  # thinwire
    manager = torchft.Manager(pg=group, load_state_dict=load, state_dict=state, min_replica_size=1,
                              replica_id=f"replica_{options.replica}_", store_addr=options.host,
                              store_port=store.port, hostname=options.host, rank=0, world_size=1,
                              timeout=timedelta(seconds=20))
    group.attach(manager)  # thinwire
    replicated = DistributedDataParallel(manager, model)
    elastic = torchft.Optimizer(manager, optimizer)
    draws = torch.Generator().manual_seed(options.replica)
    while manager.current_step() < options.steps:
        begins = torch.randint(len(symbols) - options.context - 1, (16,), generator=draws)
        batch = torch.stack([symbols[b : b + options.context + 1] for b in begins])
        elastic.zero_grad()  # finds out who takes part
        loss = nn.functional.cross_entropy(replicated(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        elastic.step()  # if the step counts
        sent = group.metrics()
        fewer = sent["dense_bytes"] / sent["sent_bytes"] if sent.get("dense_bytes") else 1
        print(f"replica {options.replica}: step {manager.current_step()} of {manager.num_participants()} replicas, "
              f"loss {loss.item():.3f}, {fewer:.0f} times fewer bytes", flush=True)
    for lost in group.losses:
        print(f"replica {options.replica}: lost {lost}", flush=True)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    print(f"replica {options.replica}: weights {weights.double().sum().item()!r}", flush=True)
    manager.shutdown(wait=False)
    group.shutdown()


def run_all(options):
    """Three replicas. After a third of the steps the second is killed; then another takes its place, and a fourth
    joins. All are started at once, since it takes seconds to import torch."""
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=2000, quorum_tick_ms=50,
                                  heartbeat_timeout_ms=1000)
    port = lighthouse.address().rsplit(":", 1)[1]
    environment = {**os.environ, "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}"}
    settings = [argument for key in ("steps", "context", "width", "layers", "codec")
                for argument in (f"--{key}", str(getattr(options, key)))]

    def start(number):
        return subprocess.Popen([sys.executable, __file__, "--wait", "--replica", str(number), *settings], text=True,
                                env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def go(*those):
        for replica in those:
            replica.stdin.write("go\n")
            replica.stdin.flush()

    # Reads what a replica prints, so that it need not wait for a full pipe.
    def read(replica):
        replica.lines = []
        replica.reader = threading.Thread(target=lambda: replica.lines.extend(replica.stdout), daemon=True)
        replica.reader.start()

    *first, again, fourth = replicas = [start(number) for number in (0, 1, 2, 1, 3)]
    try:
        for replica in replicas:
            replica.stdout.readline()  # ready
        for replica in (first[2], again, fourth):
            read(replica)
        go(*first)
        killed, weights = False, []
        for line in first[0].stdout:
            print(line, end="", flush=True)
            if ": step " in line and not killed and int(line.split()[3]) >= options.steps // 3:
                killed = True
                first[1].kill()
                go(again, fourth)
            weights += line.split(" weights ")[1:]
        for replica in (first[2], again, fourth):
            replica.reader.join(120)
            for line in replica.lines:
                if " weights " in line or " lost " in line:
                    print(line, end="", flush=True)
                weights += line.split(" weights ")[1:]
    finally:
        for replica in replicas:
            replica.kill()
    lighthouse.shutdown()
    if len(weights) != 4 or len({*weights}) != 1:
        sys.exit(f"weights differ: {weights}")
    print("four replicas end with equal weights")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--replica", type=int, help="one replica with this number; without it, all of them")
    parser.add_argument("--host", default="127.0.0.1", help="the address at which others reach this replica")
    parser.add_argument("--wait", action="store_true", help="for a line on standard input, before it joins")
    parser.add_argument("--codec", default="sidco:density=0.01")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args()
    if options.replica is None:
        run_all(options)
    else:
        train(options)


if __name__ == "__main__":
    main()
