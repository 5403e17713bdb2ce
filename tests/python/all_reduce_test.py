#!/usr/bin/env python3
"""all_reduce: the mean that the documents promise, and what its reports say."""

# SPDX-License-Identifier: Apache-2.0
import dataclasses
import json
import unittest

import numpy as np
from cases import codec_names, heavy_tail, normal, same_bits
from state_test import read

import thinwire


class Means(unittest.TestCase):
    def test_fp32_is_the_mean_to_the_bit(self):
        for ranks in range(1, 6):
            for shape in ((1000,), (3, 7), (), (0,)):
                arrays = [normal(shape, rank) for rank in range(ranks)]
                total = arrays[0]
                for array in arrays[1:]:
                    total = total + array
                expected = np.asarray(total * np.float32(1 / ranks))
                with self.subTest(ranks=ranks, shape=shape):
                    mean, reports = thinwire.all_reduce(arrays)
                    self.assertTrue(same_bits(mean, expected))
                    self.assertEqual(len(reports), ranks)

    def test_rules_combine_the_ranks_and_name_those_left_out(self):
        arrays = [np.full(10, value, np.float32) for value in (1, 2, 3, 4, 1000)]
        for exchange in ("auto", "gather"):
            for combine, mean, unchosen in (
                ("mean", 202, ()),
                ("median", 3, ()),
                ("trimmed_mean:f=1", 3, ()),
                ("cge:f=1", 2.5, (4,)),
                ("krum:f=1,m=2", 2.5, (0, 3, 4)),
                ("smea:f=1", 2.5, (4,)),
            ):
                with self.subTest(exchange=exchange, combine=combine):
                    found, reports = thinwire.all_reduce(arrays, exchange=exchange, combine=combine)
                    np.testing.assert_allclose(found, np.full(10, mean), rtol=1e-6)
                    for report in reports:
                        self.assertEqual((report.left_out, report.unchosen), ((), unchosen))
        arrays[4][3] = np.nan
        found, reports = thinwire.all_reduce(arrays, exchange="gather", combine="median")
        np.testing.assert_array_equal(found, np.full(10, 2.5, np.float32))
        for report in reports:
            self.assertEqual(report.left_out, ((4, "non-finite values"),))
            self.assertEqual((report.participants, report.skipped), (4, False))
        with self.assertRaisesRegex(thinwire.UnknownNameError, "did you mean 'median'"):
            thinwire.all_reduce(arrays, combine="medain")

    def test_every_codec_gives_the_mean_of_what_decodes(self):
        for spec in codec_names():
            codec = thinwire.Codec(spec)
            arrays = [heavy_tail((30, 40), rank) for rank in range(3)]
            with self.subTest(codec=spec):
                try:
                    mean, reports = thinwire.all_reduce(arrays, codec, "gather", "none")
                except thinwire.UnsupportedError:
                    continue  # codecs that only their own exchange can carry
                expected = np.zeros((30, 40))
                for rank, array in enumerate(arrays):
                    payload = codec.encoder((30, 40)).encode(array, salt=rank)
                    expected += codec.decoder((30, 40)).decode(payload) / 3.0
                    if codec.info.fixed_size:
                        self.assertEqual(reports[rank].streams[0].payload_bytes, len(payload))
                if not codec.info.unbiased:  # those may draw by things that only ranks know
                    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-9)

    def test_residuals_lose_nothing_over_steps(self):
        for spec in codec_names():
            stores = [thinwire.Store() for _ in range(3)]
            given, arrived, largest = np.zeros(3000), np.zeros(3000), 0
            with self.subTest(codec=spec):
                try:
                    for step in range(4):
                        arrays = [heavy_tail(3000, 10 * step + rank) for rank in range(3)]
                        mean, _ = thinwire.all_reduce(
                            arrays, spec, "gather", "residual", stores=stores, step=step
                        )
                        given += np.mean(arrays, axis=0, dtype=np.float64)
                        arrived += mean
                        largest = max(largest, 3 * abs(mean).max(), abs(given).max())
                except thinwire.UnsupportedError:
                    continue
                for store in stores:
                    (residual,) = (
                        array
                        for name, array in read(store.state())[0].items()
                        if name.endswith("/feedback/residual")
                    )
                    arrived += residual / 3.0
                # each step rounds what travels, in fp32
                np.testing.assert_allclose(arrived, given, rtol=0, atol=2e-6 * largest)

    def test_named_arrays_keep_names_kinds_and_order(self):
        arrays = [
            {"w": normal((20, 30), rank), "b": normal(20, 9 + rank)} for rank in range(2)
        ]
        result = thinwire.all_reduce(arrays, "topk:density=0.1", kinds={"b": "bias"})
        self.assertEqual(list(result.mean), ["w", "b"])
        half = np.float32(0.5)
        self.assertTrue(same_bits(result.mean["b"], (arrays[0]["b"] + arrays[1]["b"]) * half))
        self.assertLessEqual(np.count_nonzero(result.mean["w"]), 120)
        whole = thinwire.all_reduce(arrays, "topk:density=0.1", kinds="bias", grouping="model")
        self.assertEqual([stream.values for stream in whole.reports[0].streams], [620])

    def test_one_threshold_is_learnt_for_all_tensors(self):
        stores = [thinwire.Store() for _ in range(2)]
        arrays = [{"large": 8 * normal((20, 30), rank), "small": normal((40, 50), 9 + rank)} for rank in range(2)]
        for step in range(2):
            result = thinwire.all_reduce(arrays, "topk:density=0.1", stores=stores, step=step, feedback="none",
                                         grouping="global", kinds="linear")
            streams = result.reports[0].streams
            if step == 0:  # each tensor by itself
                self.assertEqual([stream.kept for stream in streams], [stream.target for stream in streams])
        self.assertEqual(sum(stream.target for stream in streams), 260)
        self.assertLess(abs(sum(stream.kept for stream in streams) - 260), 52)
        self.assertLess(min(stream.kept / stream.target for stream in streams), 0.5)
        with self.assertRaisesRegex(thinwire.UnsupportedError, "grouping global.*codecs that have: topk, "):
            thinwire.all_reduce(arrays, "int8", grouping="global")

    def test_schedules_count_in_epochs_of_steps(self):
        kept = [
            thinwire.all_reduce(
                [normal(1000)], "fp32 | 1: topk:density=0.1", step=step, steps_per_epoch=3
            ).reports[0].streams[0].kept
            for step in range(5)
        ]
        self.assertEqual(kept, [1000, 1000, 1000, 100, 100])
        with self.assertRaisesRegex(thinwire.BadOptionError, "give steps_per_epoch"):
            thinwire.all_reduce([normal(1000)], "fp32 | 1: topk:density=0.1")

    def test_same_arguments_same_bits_and_inputs_untouched(self):
        arrays = [heavy_tail(5000, rank) for rank in range(4)]
        before = [array.copy() for array in arrays]
        means = [thinwire.all_reduce(arrays, "sidco", seed=3, step=9).mean for _ in range(2)]
        self.assertTrue(same_bits(*means))
        for array, copy in zip(arrays, before):
            self.assertTrue(same_bits(array, copy))


class Reports(unittest.TestCase):
    def test_count_bytes_and_values(self):
        arrays = [heavy_tail(10_000, rank) for rank in range(4)]
        mean, reports = thinwire.all_reduce(arrays, "topk:density=0.01", step=7)
        for rank, report in enumerate(reports):
            (stream,) = report.streams
            self.assertEqual((report.step, report.skipped, report.fault), (7, False, None))
            self.assertEqual((stream.values, stream.kept, stream.target), (10_000, 100, 100))
            self.assertEqual(report.dense_bytes, 2 * 3 * 4 * 10_000 // 4)
            self.assertEqual(stream.frame_bytes, stream.payload_bytes + 48)
            self.assertGreaterEqual(report.sent_bytes, 3 * (8 + stream.frame_bytes))
            norm = float(np.linalg.norm(arrays[rank].astype(np.float64)))
            self.assertAlmostEqual(stream.gradient_norm, norm, places=6)
        sent = sum(report.sent_bytes for report in reports)
        self.assertEqual(sum(report.received_bytes for report in reports), sent)
        json.dumps([dataclasses.asdict(report) for report in reports])

    def test_faults_name_the_rank(self):
        arrays = [normal(100, rank) for rank in range(3)]
        arrays[1][5] = np.nan
        with self.assertRaisesRegex(thinwire.NonFiniteError, "rank 1"):
            thinwire.all_reduce(arrays)
        stores = [thinwire.Store() for _ in range(3)]
        good = [normal(100, rank) for rank in range(3)]
        thinwire.all_reduce(good, "topk", stores=stores)
        states = [store.state() for store in stores]
        mean, reports = thinwire.all_reduce(arrays, "topk", stores=stores, skip_faults=True, step=1)
        self.assertFalse(mean.any())
        self.assertEqual([store.state() for store in stores], states)
        for report in reports:
            self.assertTrue(report.skipped)
            self.assertEqual(report.fault, thinwire.Fault("non-finite", 1, "values"))


class Mistakes(unittest.TestCase):
    def test_are_told_before_anything_runs(self):
        good = [normal(10), normal(10)]
        for arrays in ([], normal(10), {"w": normal(10)}, [normal(10), normal(11)]):
            with self.assertRaises(thinwire.ContractError):
                thinwire.all_reduce(arrays)
        with self.assertRaisesRegex(thinwire.DTypeError, "rank 1, values: dtype is float64"):
            thinwire.all_reduce([good[0], good[1].astype(float)])
        with self.assertRaisesRegex(thinwire.ContractError, r"rank 1 has arrays \['v'\]"):
            thinwire.all_reduce([{"w": good[0]}, {"v": good[1]}])
        with self.assertRaisesRegex(thinwire.ContractError, "kinds names"):
            thinwire.all_reduce([{"w": good[0]}], kinds={"v": "bias"})
        with self.assertRaisesRegex(thinwire.ContractError, "one store for each rank"):
            thinwire.all_reduce(good, stores=[thinwire.Store()])
        zeros = [{name: 0} for name in ("steps_per_epoch", "deadline", "bucket_bytes")]
        for wrong in (*zeros, {"deadline": float("nan")}, {"step": -1}):
            with self.assertRaisesRegex(thinwire.ContractError, next(iter(wrong))):
                thinwire.all_reduce(good, **wrong)
        store = thinwire.Store()
        with self.assertRaisesRegex(thinwire.ContractError, "one store for two ranks"):
            thinwire.all_reduce(good, stores=[store, store])

    def test_names_are_checked(self):
        good = [normal(10), normal(10)]
        wrong = {"codec": "sing", "exchange": "magic", "feedback": "elephant", "grouping": "both"}
        for name, value in dict(wrong, kinds="fish").items():
            with self.assertRaisesRegex(thinwire.UnknownNameError, value):
                thinwire.all_reduce(good, **{name: value})
        with self.assertRaisesRegex(thinwire.UnsupportedError, "use gather"):
            thinwire.all_reduce(good, "topk", exchange="dense")


if __name__ == "__main__":
    unittest.main()
