"""Codec auto in PyTorch: decisions, checkpoints, mistakes. SPDX-License-Identifier: Apache-2.0"""
import logging
import os
import tempfile
import unittest

import torch
from torch.nn.parallel import DistributedDataParallel

import thinwire.errors
import nets
from nets import make_net, weights_of
from ranks import on_ranks

PLAN = "thinwire decisions 1\n0\tfp32\n# few bytes\n2\ttopk:density=0.05\n5\tint8\n"


def linked(codec, **settings):
    import thinwire.torch as tw
    model = DistributedDataParallel(make_net(), bucket_cap_mb=0.01)
    return model, tw.compress(model, codec, **settings)


def of_plan(rank, size, path):
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("thinwire").addHandler(handler)
    logging.getLogger("thinwire").setLevel(logging.INFO)
    model, link = linked(f"auto:loss=any,plan={path}")
    codecs, saved = [], None
    for number in range(8):
        if number == 4:
            saved, before = link.state_dict(), {k: v.clone() for k, v in model.state_dict().items()}
        nets.step(model, number, rank)
        codecs.append({row["codec"].partition(":")[0] for row in link.metrics()["streams"]})
    whole = weights_of(model)
    again, other = linked(f"auto:loss=any,plan={path}")
    again.load_state_dict(before)
    other.load_state_dict(saved)
    for number in range(4, 8):
        nets.step(again, number, rank)
    return codecs, link.decisions(), lines, whole, weights_of(again), other.decisions()


def measured(rank, size, folder):
    os.environ["XDG_CACHE_HOME"] = folder
    import thinwire.torch as tw
    model, link = linked("auto")
    for number in range(30):
        nets.step(model, number, rank)
    first = link.decisions()[0]
    link.change("int8")
    nets.step(model, 30, rank)
    plan = tw.plan(make_net(), nets.batch_of(0, rank), link="probe", codecs=["int8"])
    return first, {row["codec"].partition(":")[0] for row in link.metrics()["streams"]}, [step.codec for step in plan]


def mistakes(rank, size):
    told = []
    for codec, settings in (("auto:loss=big", {}), ("auto", {"method": "gather"}), ("auto", {"inside": 2}),
                            ("auto", {"grouping": "model"}), ("auto:plan=/no/such/file", {})):
        try:
            linked(codec, **settings)
            told.append("")
        except thinwire.errors.Error as error:
            told.append(str(error))
    _, link = linked("int8")
    try:
        link.change("auto")
    except thinwire.errors.Error as error:
        told.append(str(error))
    return told


class Auto(unittest.TestCase):
    def test_a_recorded_plan_is_followed_and_a_saved_link_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.txt")
            with open(path, "w") as file:
                file.write(PLAN)
            ranks = on_ranks(2, of_plan, path)
        for codecs, decisions, _, whole, again, resumed in ranks:
            self.assertEqual([sorted(one - {"fp32"}) for one in codecs], 2 * [[]] + 3 * [["topk"]] + 3 * [["int8"]])
            self.assertEqual([one["step"] for one in decisions], [0, 2, 5])
            self.assertEqual(resumed, decisions)
            self.assertTrue(torch.equal(whole, again))
        self.assertIn("codec auto, step 2: few bytes", ranks[0][2])
        self.assertEqual(ranks[1][2], [])

    def test_it_measures_and_explains_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks = on_ranks(2, measured, folder)
        for first, codecs, planned in ranks:
            self.assertEqual(sorted(planned), ["fp32", "int8"])
            self.assertEqual(first["step"], 0)
            self.assertIn("link ", first["why"])
            self.assertIn("int8", codecs)
        self.assertEqual(ranks[0][0], ranks[1][0])

    def test_mistakes_are_explained(self):
        for told in on_ranks(2, mistakes):
            for text, part in zip(told, ("none, small, any", "chooses the method, too", "hierarchies",
                                         "grouping tensor", "plan /no/such/file", "name a codec here")):
                self.assertIn(part, text)
            self.assertEqual(len(told), 6)


if __name__ == "__main__":
    unittest.main()
