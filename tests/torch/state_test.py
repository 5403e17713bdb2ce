"""Saved states of links and local optimisers, and those that are not the right ones. SPDX-License-Identifier: Apache-2.0"""
import copy
import pathlib
import tempfile
import time
import unittest
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire
from nets import make_net, train, weights_of
from ranks import on_ranks
from states import content

TOPK = "topk:density=0.05"


def linked(net=None, codec=TOPK, **settings):
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net() if net is None else net)
    return model, tw.compress(model, codec, **settings)


def trained(rank, steps=3, **settings):
    model, link = linked(**settings)
    train(model, torch.optim.SGD(model.parameters(), lr=0.05), rank, steps)
    return model, link


def gather(value):
    everywhere = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, value)
    return everywhere


def error_of(action):
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def same_state(one, other):
    one, other = content(one), content(other)
    return one["steps"] == other["steps"] and torch.equal(one["state"], other["state"])


def wrong_ranks(rank, size):
    _, link = trained(rank)
    before = link.state_dict()
    states = gather(before)
    found = []
    for given in (states[0], [states[0], states[0]], states[:1] * 3, [], {"weights": 1}, [7]):
        began = time.monotonic()
        found.append((error_of(lambda: link.load_state_dict(given)), time.monotonic() - began))
    unchanged = same_state(before, link.state_dict())
    link.load_state_dict(states if rank else states[::-1])
    return found, unchanged, same_state(before, link.state_dict())


def other_step(rank, size):
    model, link = trained(rank)
    early = link.state_dict()
    train(model, torch.optim.SGD(model.parameters(), lr=0.05), rank, 1)
    late = link.state_dict()
    error = error_of(lambda: link.load_state_dict(early if rank else late))
    return error, same_state(late, link.state_dict())


def by_itself(rank, size, folder):
    """Saved and loaded by torch.distributed.checkpoint without tw.Checkpoint, and with it across."""
    import thinwire.torch as tw
    _, link = trained(rank)
    dcp.save({"link": link}, checkpoint_id=folder)
    same = []
    for wrap in (lambda one: one, tw.Checkpoint):
        _, new = linked()
        dcp.load({"link": wrap(new)}, checkpoint_id=folder)
        same.append(same_state(link.state_dict(), new.state_dict()))
    return same, link.state_dict()


def by_itself_alone(rank, size, folder):
    import thinwire.torch as tw
    _, link = linked()
    error = error_of(lambda: dcp.load({"link": link}, checkpoint_id=folder))
    dcp.load({"link": tw.Checkpoint(link, world_size=2)}, checkpoint_id=folder)
    return error, content(link.state_dict())["steps"]


def local_by_itself(rank, size, folder):
    import thinwire.torch as tw

    def made():
        net = make_net(seed=rank)
        return net, tw.DiLoCo(torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), net, tau=2)

    net, optimizer = made()
    train(net, optimizer, rank, 5)
    weights = weights_of(net).clone()
    dcp.save({"optimizer": optimizer}, checkpoint_id=folder)
    train(net, optimizer, rank, 3, first=5)
    again, other = made()
    train(again, other, rank, 1)  # has state of its own to load into
    with torch.no_grad():
        torch.nn.utils.vector_to_parameters(weights, again.parameters())
    dcp.load({"optimizer": other}, checkpoint_id=folder)
    train(again, other, rank, 3, first=5)
    return torch.equal(weights_of(net), weights_of(again)), weights_of(net)


class Wrapped(nn.Module):
    """As torch.compile and checkpoint_wrapper do it."""

    def __init__(self, module, name):
        super().__init__()
        setattr(self, name, module)
        self._name = name

    def forward(self, x):
        return getattr(self, self._name)(x)


def wrapped_ones(rank, size):
    """A state of the plain model under wrappers, and the other way round; with rules by either name."""
    wrappers = {"_orig_mod": lambda net: Wrapped(net, "_orig_mod"),
                "module": lambda net: Wrapped(Wrapped(net, "module"), "module"),
                "inside": lambda net: nn.Sequential(*net[:4], Wrapped(net[4], "_checkpoint_wrapped_module"),
                                                    net[5], Wrapped(net[6], "_fsdp_wrapped_module"))}
    found = {}
    for name, wrap in wrappers.items():
        straight, _ = trained(rank, 6)
        plain, link = trained(rank, 3)
        model, new = linked(wrap(make_net()))
        model.module.load_state_dict(dict(zip(model.module.state_dict(), plain.module.state_dict().values())))
        new.load_state_dict(link.state_dict())
        train(model, torch.optim.SGD(model.parameters(), lr=0.05), rank, 3, first=3)
        back = linked()[1]
        back.load_state_dict(new.state_dict())
        found[name] = (torch.equal(weights_of(model), weights_of(straight)),
                       same_state(back.state_dict(), new.state_dict()))
    compiled, link = linked(torch.compile(make_net(), backend="eager"))
    link.load_state_dict(trained(rank)[1].state_dict())
    found["compiled"] = content(link.state_dict())["steps"] == 3
    for pattern in ("_orig_mod.4.*", "4.*"):
        linked(Wrapped(make_net(), "_orig_mod"), rules={pattern: "fp32"})
    return found


def other_models(rank, size):
    net = make_net()
    net[4], net[6] = nn.Linear(6 * 36, 16), nn.Linear(16, 4)
    net.extra = nn.Linear(4, 3)
    state = trained(rank)[1].state_dict()
    found = {}
    for name, codec in (("by tensor", TOPK), ("as one", "sidco:density=0.05")):
        state = trained(rank, codec=codec)[1].state_dict()
        model, link = linked(net, codec)
        before = link.state_dict()
        strict = error_of(lambda: link.load_state_dict(state))
        unchanged = same_state(before, link.state_dict())
        unfit = link.load_state_dict(state, strict=False)
        kept = {array[0] for array in thinwire._state.read_state(
            "", content(link.state_dict())["state"].numpy().tobytes()) if any(array[4])}
        found[name] = (strict, unchanged, unfit, kept, content(link.state_dict())["steps"])
    _, link = linked(feedback="none")
    found["memory"] = error_of(lambda: link.load_state_dict(trained(rank)[1].state_dict()))
    _, link = linked(codec="int8")
    found["codec"] = error_of(lambda: link.load_state_dict(trained(rank)[1].state_dict()))
    return found


def earlier(state, prefix=""):
    """The state as the earliest versions wrote it: by codec, no seal, no tensors, no key for each rank."""
    state = dict(content(state))
    (codec,) = state["tensors"]
    arrays = [(prefix + array[0], *array[1:])
              for array in thinwire._state.read_state("", state["state"].numpy().tobytes())
              if not array[0].startswith("thinwire/seal")]
    for key in ("state", "tensors", "shared"):
        del state[key]
    state["states"] = {codec: torch.frombuffer(bytearray(thinwire._state.write_state(arrays)), dtype=torch.uint8)}
    return state


def earlier_ones(rank, size):
    _, link = trained(rank)
    found = []
    for prefix in ("", "_orig_mod.", "module.0."):
        _, new = linked()
        error = error_of(lambda: new.load_state_dict(earlier(link.state_dict(), prefix)))
        found.append((error, same_state(new.state_dict(), link.state_dict())))
    net = make_net()
    net[6] = nn.Linear(32, 5)
    _, other = linked(net)
    found.append((error_of(lambda: other.load_state_dict(earlier(link.state_dict()))), False))
    return found


def flipped(rank, size):
    model, link = trained(rank, feedback="ef21")
    before = link.state_dict()
    found = []
    for strip in (lambda state: state, lambda state: {"rank 0": (earlier(state),)}):
        damaged = strip(link.state_dict())
        entry = content(damaged)
        state = entry["state"] if "state" in entry else entry["states"][TOPK]
        if rank == 1:
            state[-2] ^= 64  # the exponent of the last value, which is of a mean_estimate
        began = time.monotonic()
        found.append((error_of(lambda: link.load_state_dict(damaged)), time.monotonic() - began))
    same = same_state(before, link.state_dict())
    train(model, torch.optim.SGD(model.parameters(), lr=0.05), rank, 1, first=3)
    return found, same and link.metrics()["step"] == 4


def resumes_without(rank, size):
    """How often it is said that a state was not loaded, in runs that differ in one thing."""
    import thinwire.torch as tw

    def run(codec, loads_link, loads_optimizer, steps_before=0):
        first, link = linked(codec=codec)
        momentum = torch.optim.SGD(first.parameters(), lr=0.05, momentum=0.9)
        train(first, momentum, rank, 2)
        model = DistributedDataParallel(make_net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        train(model, optimizer, rank, steps_before)
        if loads_optimizer:
            optimizer.load_state_dict(momentum.state_dict())
        new = tw.compress(model, codec)
        if loads_link:
            new.load_state_dict(link.state_dict())
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            train(model, optimizer, rank, 3)
        return sum("load_state_dict" in str(one.message) for one in said)

    return {"forgotten": run(TOPK, False, True), "loaded": run(TOPK, True, True), "new": run(TOPK, False, False),
            "no memory": run("fp32", False, True), "warmed up": run(TOPK, False, False, steps_before=2)}


def local(rank, **settings):
    import thinwire.torch as tw
    net = make_net(seed=rank)
    return net, tw.DiLoCo(torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), net, tau=2, **settings)


def wrong_local_states(rank, size):
    net, optimizer = local(rank)
    train(net, optimizer, rank, 3)
    states = gather(optimizer.state_dict())
    plain = copy.deepcopy(optimizer.optim.state_dict())
    broken = content(gather(optimizer.state_dict())[rank])
    if rank == 1:
        broken["thinwire"]["state"][-2] ^= 64
    train(net, optimizer, rank, 2, first=3)  # goes on from there, so that what is loaded differs from what is there
    found = []
    for given in (states[0], {"weights": 1}, plain if rank else states[0], broken,
                  {**plain, "param_groups": []} if rank else plain):
        momentum = [s["momentum_buffer"].clone() for s in optimizer.optim.state.values()]
        own = content(optimizer.state_dict())["thinwire"]["state"]
        began = time.monotonic()
        error = error_of(lambda: optimizer.load_state_dict(given))
        late = time.monotonic() - began
        same = torch.equal(own, content(optimizer.state_dict())["thinwire"]["state"]) and all(
            torch.equal(a, s["momentum_buffer"]) for a, s in zip(momentum, optimizer.optim.state.values()))
        found.append((error, late, same))
    train(net, optimizer, rank, 3)  # goes on
    return found


def adopts(rank, size):
    """A run of plain SGD, whose state a local method takes over; and one that never ended."""
    before = make_net()
    sgd = torch.optim.SGD(before.parameters(), lr=0.05, momentum=0.9)
    train(before, sgd, 0, 3)
    plain = sgd.state_dict()

    def begun():
        net, optimizer = local(rank)
        train(net, optimizer, rank, 1)  # somewhere else, between two rounds
        net.load_state_dict(before.state_dict())
        optimizer.load_state_dict(copy.deepcopy(plain))
        return net, optimizer

    net, optimizer = begun()
    same = all(torch.equal(a["momentum_buffer"], b["momentum_buffer"])
               for a, b in zip(sgd.state.values(), optimizer.optim.state.values()))
    train(net, optimizer, rank, 4)
    straight = make_net()
    straight.load_state_dict(before.state_dict())
    import thinwire.torch as tw
    inner = torch.optim.SGD(straight.parameters(), lr=0.05, momentum=0.9)
    inner.load_state_dict(copy.deepcopy(plain))
    fresh = tw.DiLoCo(inner, straight, tau=2)
    train(straight, fresh, rank, 4)
    old_form = {**optimizer.optim.state_dict(), "thinwire": content(optimizer.state_dict())["thinwire"]}
    optimizer.load_state_dict(old_form)  # as earlier versions wrote it
    return same, torch.equal(weights_of(net), weights_of(straight)), weights_of(net)


class Links(unittest.TestCase):
    def test_the_state_of_another_rank_is_refused_naming_both(self):
        first, second = on_ranks(2, wrong_ranks)
        for found, unchanged, loaded in (first, second):
            self.assertTrue(unchanged)
            self.assertTrue(loaded)
            for error, seconds in found:
                self.assertLess(seconds, 20)
                self.assertRegex(error, "^MismatchError", found)
        own = "state of rank 0 was given to rank 1"
        self.assertIn(own, second[0][0][0])
        self.assertIn("rank 1: " + own, first[0][0][0])
        self.assertIn("no state of thinwire", first[0][4][0])

    def test_states_of_different_steps_are_refused(self):
        for error, same in on_ranks(2, other_step):
            self.assertRegex(error, "^MismatchError: load_state_dict.*step 3' on rank 1, 'step 4' on rank 0")
            self.assertTrue(same)

    def test_distributed_checkpoint_keeps_ranks_apart_without_help(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = on_ranks(2, by_itself, folder)
            self.assertEqual([same for same, _ in ranks], [[True, True]] * 2)
            self.assertFalse(same_state(ranks[0][1], ranks[1][1]))
            ((error, steps),) = on_ranks(1, by_itself_alone, folder)
            self.assertIn("world_size=2", error)
            self.assertEqual(steps, 3)

    def test_what_wrappers_add_to_names_does_not_matter(self):
        for found in on_ranks(2, wrapped_ones):
            self.assertEqual(found, {"_orig_mod": (True, True), "module": (True, True), "inside": (True, True),
                                     "compiled": True})

    def test_the_state_of_another_model_is_refused_tensor_by_tensor(self):
        for found in on_ranks(2, other_models):
            for name in ("by tensor", "as one"):
                strict, unchanged, unfit, kept, steps = found[name]
                self.assertTrue(unchanged)
                self.assertRegex(strict, "^MismatchError: the state does not fit the model")
                self.assertIn("missing in the state: extra.weight, extra.bias", strict)
                self.assertIn("size mismatch for 4.weight: [32, 216] in the state, [16, 216] here", strict)
                self.assertEqual(unfit.missing_keys, ["extra.weight", "extra.bias"])
                self.assertEqual(unfit.mismatched_keys, ["4.weight", "4.bias", "6.weight"])
                self.assertEqual(steps, 3)
            self.assertIn("0.weight/feedback/residual", found["by tensor"][3])
            self.assertNotIn("4.weight/feedback/residual", found["by tensor"][3])
            self.assertNotIn("model/feedback/residual", found["as one"][3])
            self.assertIn("memory '", found["memory"])
            self.assertIn("state of codecs", found["codec"])

    def test_states_of_earlier_versions_load(self):
        for found in on_ranks(2, earlier_ones):
            self.assertEqual(found[:2], [("none", True)] * 2)
            self.assertIn("missing in the state: 0.weight", found[2][0])
            self.assertIn("size mismatch for 6.weight: [128] in the state, [160] here", found[3][0])

    def test_a_flipped_bit_is_found_and_its_rank_is_named_on_all(self):
        for found, same in on_ranks(2, flipped):
            (sealed, early), (shared, late) = found
            self.assertRegex(sealed, "^CorruptError.*state of rank 1.* is not what was saved")
            self.assertRegex(shared, "^MismatchError.*mean_estimate', which all ranks share, is not on rank 1")
            self.assertLess(max(early, late), 20)
            self.assertTrue(same)

    def test_states_are_there_behind_the_process_group(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(on_ranks(2, behind_the_group, str(pathlib.Path(folder) / "second")), [[True, True]] * 2)

    def test_a_resumed_run_that_forgets_the_link_is_told_once(self):
        for said in on_ranks(2, resumes_without):
            self.assertEqual(said, {"forgotten": 1, "loaded": 0, "new": 0, "no memory": 0, "warmed up": 0})


def behind_the_group(rank, size, store):
    """Whether states are the same behind destroy_process_group."""
    import thinwire.torch as tw
    model, local = DistributedDataParallel(make_net()), make_net()
    link = tw.compress(model, "topk:density=0.05")
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), rank, 2)
    owners = [link, tw.PeriodicAveraging(torch.optim.SGD(local.parameters(), lr=0.1), local)]
    before = [content(owner.state_dict()) for owner in owners]
    dist.barrier()
    dist.destroy_process_group()
    behind = [content(owner.state_dict()) for owner in owners]
    same = [torch.equal(*(one.get("thinwire", one)["state"] for one in pair)) for pair in zip(before, behind)]
    dist.init_process_group("gloo", store=dist.FileStore(store, size), rank=rank, world_size=size)
    return same


class LocalOptimizers(unittest.TestCase):
    def test_wrong_states_are_errors_on_all_ranks_at_once(self):
        first, second = on_ranks(2, wrong_local_states)
        for found in (first, second):
            for error, seconds, same in found:
                self.assertRegex(error, "^[A-Z]\\w*Error: .", found)
                self.assertLess(seconds, 20)
                self.assertTrue(same, found)
        self.assertIn("state of rank 0 was given to rank 1", first[0][0])
        self.assertIn("state of rank 0 was given to rank 1", second[0][0])
        self.assertIn("neither a local optimiser's", first[1][0])
        self.assertIn("thinwire's on rank 0, the inner optimiser's on rank 1", first[2][0])
        self.assertRegex(first[3][0], "CorruptError.*state of rank 1")

    def test_the_state_of_a_plain_optimiser_is_adopted(self):
        first, second = on_ranks(2, adopts)
        for same, continues, _ in (first, second):
            self.assertTrue(same)
            self.assertTrue(continues)
        self.assertTrue(torch.equal(first[2], second[2]))

    def test_distributed_checkpoint_keeps_workers_apart_without_help(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = on_ranks(2, local_by_itself, str(pathlib.Path(folder) / "checkpoint"))
        self.assertEqual([same for same, _ in ranks], [True, True])


if __name__ == "__main__":
    unittest.main()
