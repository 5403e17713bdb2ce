"""Compressed gradients in DistributedDataParallel scripts. SPDX-License-Identifier: Apache-2.0"""
import gc
import os
import threading
import time
import unittest
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
from nets import batch_of, make_net, weights_of
from ranks import on_ranks
from states import memories_of


def train(rank, codec, steps, settings=None, first=0, model=None, link=None):
    """Trains and returns model and link; codec None is torch's own exchange."""
    if model is None:
        model = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
    if codec is not None and link is None:
        import thinwire.torch as tw
        link = tw.compress(model, codec, **(settings or {}))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(first, first + steps):
        images, labels = batch_of(step, rank)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    return model, link


def plain_and_fp32(rank, size):
    plain, _ = train(rank, None, 8)
    ours, link = train(rank, "fp32", 8)
    return (weights_of(plain) - weights_of(ours)).abs().max().item(), link.metrics()


def every_codec(rank, size, codecs):
    found = {}
    for codec in codecs:
        model, link = train(rank, codec, 5)
        found[codec] = (weights_of(model), link.metrics())
    return found


def with_rules(rank, size):
    model, link = train(rank, "topk:density=0.1", 4,
                        {"rules": {"0.*": "fp32", "*.bias": "fp16"}})
    return weights_of(model), [s["name"] for s in link.metrics()["streams"]]


def resumed(rank, size):
    straight, _ = train(rank, "topk:density=0.05", 8)
    first, link = train(rank, "topk:density=0.05", 4)
    saved = link.state_dict()
    again = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
    again.load_state_dict(first.state_dict())
    import thinwire.torch as tw
    new = tw.compress(again, "topk:density=0.05")
    new.load_state_dict(saved)
    train(rank, "topk:density=0.05", 4, first=4, model=again, link=new)
    return torch.equal(weights_of(again), weights_of(straight)), saved


def goes_on_from(rank, size, saved):
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net())
    link = tw.compress(model, "topk:density=0.05")
    link.load_state_dict(saved)
    train(rank, "topk:density=0.05", 2, model=model, link=link)
    return weights_of(model), link.state_dict()


def not_finite(rank, size):
    model, link = train(rank, "topk:density=0.05", 2)
    before = memories_of(link)
    images, labels = batch_of(2, rank)
    if rank == 1:
        images[0, 0, 0, 0] = float("nan")
    model.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    seen = [bool(p.grad.isnan().any()) for p in model.parameters()]
    after = memories_of(link)
    same = torch.equal(before, after)
    return seen, same, link.metrics()["fault"]


def loses_a_rank(rank, size):
    # Without torch's own broadcast of batch norm before each forward pass, which would fail first.
    model = DistributedDataParallel(make_net(), broadcast_buffers=False)
    model, link = train(rank, "int8", 2, {"deadline_seconds": 10}, model=model)
    if rank == 1:
        os._exit(0)
    try:
        train(rank, "int8", 3, first=2, model=model, link=link)
    except thinwire.errors.Error as error:
        return f"{type(error).__name__}: {error}"
    return "nobody noticed"


def never_finite(rank, size):
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net())
    tw.compress(model, "fp32", max_skipped=2)
    found = []
    for step in range(4):
        images, labels = batch_of(step, rank)
        try:
            model.zero_grad()
            nn.functional.cross_entropy(model(images * float("nan")), labels).backward()
        except Exception as error:
            found.append((step, type(error).__name__, str(error)))
            if len(found) == 2:
                return found
    return found


def accumulates(rank, size):
    def run(codec):
        model = DistributedDataParallel(make_net(), find_unused_parameters=True,
                                        gradient_as_bucket_view=True)
        if codec:
            import thinwire.torch as tw
            tw.compress(model, codec)
        with model.no_sync():
            images, labels = batch_of(0, rank)
            nn.functional.cross_entropy(model(images), labels).backward()
        images, labels = batch_of(1, rank)
        nn.functional.cross_entropy(model(images), labels).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])
    return (run(None) - run("fp32")).abs().max().item()


def dropped(rank, size):
    """Whether a link and its thread are gone when nobody has the model any more."""
    model, link = train(rank, "topk:density=0.1", 2)
    ends = weakref.ref(link)
    before = sum(thread.name == "thinwire" for thread in threading.enumerate())
    del model, link
    gc.collect()
    for _ in range(100):
        after = sum(thread.name == "thinwire" for thread in threading.enumerate())
        if ends() is None and after == 0:
            break
        time.sleep(0.1)
    return before, after, ends() is None


def begins_anew(rank, size):
    """Goes on in a group of its own, when a backward pass failed on all ranks with gradients on their way."""
    codec = "topk:density=0.1"
    whole, _ = train(rank, codec, 4)
    model, link = train(rank, codec, 2)
    net = model.module

    def fail(_):
        raise ValueError("of the script")

    handle = next(net.parameters()).register_hook(fail)  # the last to be ready
    try:
        train(rank, None, 1, first=2, model=model)
    except ValueError:
        handle.remove()
    state = link.state_dict()
    del model, link
    gc.collect()
    model = DistributedDataParallel(net, bucket_cap_mb=0.01, process_group=dist.new_group(backend="gloo"))
    import thinwire.torch as tw
    link = tw.compress(model, codec)
    link.load_state_dict(state)
    train(rank, None, 2, first=2, model=model)
    return weights_of(model), weights_of(whole)


def mistakes(rank, size):
    import thinwire.torch as tw
    found = []
    for codec, settings in (("topkk", {}), ("topk:densty=1", {}), ("topk", {"method": "dense"}),
                            ("topk", {"rules": {"nothing*": "fp32"}})):
        try:
            tw.compress(DistributedDataParallel(make_net()), codec, **settings)
        except thinwire.errors.Error as error:
            found.append(f"{type(error).__name__}: {error}")
    try:
        tw.compress(DistributedDataParallel(make_net()), "fp16" if rank else "fp32")
    except thinwire.errors.MismatchError as error:
        found.append(str(error))
    return found


class Compress(unittest.TestCase):
    def test_fp32_is_plain_ddp_to_rounding(self):
        for size in (2, 3):
            for difference, metrics in on_ranks(size, plain_and_fp32):
                self.assertLess(difference, 1e-6)
                self.assertEqual(metrics["step"], 8)
                self.assertGreater(metrics["sent_bytes"], metrics["dense_bytes"] // 2)

    def test_every_codec_gives_the_same_bits_on_all_ranks(self):
        codecs = [codec.name for codec in thinwire.codecs()]
        self.assertIn("sidco", codecs)
        first, second = on_ranks(2, every_codec, codecs)
        for codec in codecs:
            self.assertTrue(torch.equal(first[codec][0], second[codec][0]), codec)
            self.assertTrue(first[codec][0].isfinite().all(), codec)
            self.assertFalse(first[codec][1]["skipped"], codec)

    def test_rules_choose_codecs_by_name(self):
        (weights, streams), (other, _) = on_ranks(2, with_rules)
        self.assertTrue(torch.equal(weights, other))
        self.assertIn("4.weight", streams)

    def test_a_saved_state_continues_bit_for_bit(self):
        results = on_ranks(2, resumed)
        self.assertTrue(all(same for same, _ in results))
        saved = [state for _, state in results]
        at_three = on_ranks(3, goes_on_from, saved)
        self.assertTrue(torch.equal(at_three[0][0], at_three[2][0]))
        with self.assertRaisesRegex(AssertionError, "give the states of all 2 old ranks"):
            on_ranks(3, goes_on_from, saved[:1])

    def test_a_nan_on_one_rank_reaches_every_optimiser_and_leaves_the_memory(self):
        for seen, same, fault in on_ranks(2, not_finite):
            self.assertTrue(all(seen))
            self.assertTrue(same)
            self.assertIn("rank 1", fault)

    def test_a_lost_rank_is_named_in_time(self):
        began = time.monotonic()
        self.assertRegex(on_ranks(2, loses_a_rank, lost={1})[0], "^PeerLostError.*rank 1")
        self.assertLess(time.monotonic() - began, 60)

    def test_too_many_steps_that_are_not_finite_end_training(self):
        for first, second in on_ranks(2, never_finite):
            step, kind, error = first
            self.assertEqual((step, kind), (1, "NonFiniteError"))
            self.assertIn("2 steps in a row were skipped", error)
            # What ended a link stays what every backward pass says; DistributedDataParallel may be first.
            self.assertEqual(second[0], 2)

    def test_accumulation_unused_parameters_and_bucket_views(self):
        for difference in on_ranks(2, accumulates):
            self.assertLess(difference, 1e-6)

    def test_a_new_link_in_a_new_group_goes_on_behind_a_backward_pass_that_failed(self):
        for found, whole in on_ranks(2, begins_anew):
            self.assertTrue(torch.equal(found, whole))

    def test_a_link_goes_with_its_model(self):
        self.assertEqual(on_ranks(2, dropped), [(1, 0, True)] * 2)

    def test_mistakes_name_the_choices(self):
        for found in on_ranks(2, mistakes):
            self.assertEqual(len(found), 5, found)
            self.assertIn("UnknownNameError", found[0])
            self.assertIn("known: fp32", found[0])
            self.assertIn("density", found[1])
            self.assertIn("use gather", found[2])
            self.assertIn("nothing*", found[3])
            self.assertIn("codec", found[4])


if __name__ == "__main__":
    unittest.main()
