#!/usr/bin/env python3
"""Small checkpoints: files on record give the arrays that they gave, others a clean error."""

# SPDX-License-Identifier: Apache-2.0
import hashlib
import json
import pathlib
import random
import shutil
import tempfile
import unittest

import numpy as np

import thinwire
from thinwire import _core
from thinwire._state import write_state

KEPT = pathlib.Path(__file__).resolve().parent / "small"


def sums_of(arrays):
    return {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in arrays.items()}


def write_manifest(folder, **changes):
    """As the trainer does, of the files that are there."""
    manifest = {"format": "thinwire checkpoint", "version": 2}
    manifest["files"] = {"optimizer.safetensors": {"bytes": 8, "xxh3": "0"}}
    files = sorted(folder.glob("model*"))
    for file in files:
        content = file.read_bytes()
        xxh3 = f"{_core.file_checksum(content):016x}"
        manifest["files"][file.name] = {"bytes": len(content), "xxh3": xxh3}
    if files[0].suffix == ".small":
        manifest["small"] = {"follows": len(files) - 1}
    (folder / "progress.json").write_text(json.dumps({**manifest, **changes}))


def flip(file):
    raw = bytearray(file.read_bytes())
    raw[-3] ^= 1
    file.write_bytes(raw)


class Expand(unittest.TestCase):
    def setUp(self):
        self.recorded = json.loads((KEPT / "sha256.json").read_text())
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)

    def tearDown(self):
        self._folder.cleanup()

    def test_a_file_a_checkpoint_and_a_run_are_read(self):
        self.assertEqual(sums_of(thinwire.expand_checkpoint(KEPT / "model-001.small")), self.recorded)
        self.assertEqual(sums_of(thinwire.expand_checkpoint(KEPT)), self.recorded)
        for step in (5, 12):
            shutil.copytree(KEPT, self.folder / f"checkpoint-{step:010}")
        (self.folder / "checkpoint-0000000005" / "model-001.small").unlink()
        arrays = thinwire.expand_checkpoint(str(self.folder), to=self.folder / "w.safetensors")
        self.assertEqual(sums_of(arrays), self.recorded)
        again = thinwire.expand_checkpoint(self.folder / "w.safetensors")
        self.assertEqual(sums_of(again), self.recorded)
        self.assertEqual({n: a.shape for n, a in again.items()}, {n: a.shape for n, a in arrays.items()})
        earlier = thinwire.expand_checkpoint(self.folder / "checkpoint-0000000005")
        self.assertNotEqual(sums_of(earlier), self.recorded)

    def test_clusters_and_exact_arrays_are_arrays(self):
        arrays = thinwire.expand_checkpoint(KEPT)
        weight, bias = arrays["hidden1.weight"], arrays["hidden1.bias"]
        self.assertEqual((weight.dtype, bias.dtype), (np.float32, np.float32))
        self.assertEqual(weight.shape, (bias.size, 784))
        self.assertLess(len(np.unique(weight)), weight.size // 10)
        self.assertTrue(weight.flags.writeable)

    def test_what_is_missing_or_damaged_is_named(self):
        with self.assertRaisesRegex(thinwire.IoError, "nowhere"):
            thinwire.expand_checkpoint("nowhere")
        with self.assertRaisesRegex(thinwire.IoError, "holds neither"):
            thinwire.expand_checkpoint(self.folder)
        (self.folder / "file.txt").write_text("")
        (self.folder / "w.tmp").mkdir()
        for to in ("file.txt/w.safetensors", "w"):  # in no folder; beside a folder of the temporary name
            with self.assertRaisesRegex(thinwire.IoError, "cannot be written"):
                thinwire.expand_checkpoint(KEPT, to=self.folder / to)
        (self.folder / "progress.json").write_text(
            '{"format": "thinwire checkpoint", "version": 2, "files": {"model.safetensors": {"bytes": Infinity, "xxh3": "0"}}}')
        with self.assertRaisesRegex(thinwire.CorruptError, "truncated or foreign"):
            thinwire.expand_checkpoint(self.folder)
        (self.folder / "progress.json").unlink()
        shutil.copy(KEPT / "model-001.small", self.folder)
        with self.assertRaisesRegex(thinwire.IoError, "model-000.small"):
            thinwire.expand_checkpoint(self.folder)
        shutil.copy(KEPT / "model-001.small", self.folder / "model-000.small")
        with self.assertRaisesRegex(thinwire.MismatchError, "model-000.small: follows another file"):
            thinwire.expand_checkpoint(self.folder)

    def test_a_chain_is_the_one_that_its_folder_lists(self):
        kept = self.folder / "checkpoint-0000000005"
        shutil.copytree(KEPT, kept)
        write_manifest(kept)
        for path in (kept, self.folder):
            self.assertEqual(sums_of(thinwire.expand_checkpoint(path)), self.recorded)
        shutil.copy(KEPT / "model-000.small", kept / "model-002.small")  # of nobody
        self.assertEqual(sums_of(thinwire.expand_checkpoint(kept)), self.recorded)
        shutil.copy(KEPT / "model-000.small", kept / "model-001.small")
        with self.assertRaisesRegex(thinwire.BadLengthError, "model-001.small: truncated or foreign"):
            thinwire.expand_checkpoint(kept)
        (kept / "model-001.small").unlink()
        for path in (kept, self.folder):
            with self.assertRaisesRegex(thinwire.IoError, "model-001.small: cannot be read"):
                thinwire.expand_checkpoint(path)

    def test_a_file_takes_the_place_of_no_saved_one(self):
        kept = self.folder / "checkpoint-0000000005"
        shutil.copytree(KEPT, kept)
        (self.folder / "recipe.toml").write_text("a run's")
        saved = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        for path in (kept / "model-001.small", kept / "optimizer.safetensors", self.folder / "recipe.toml"):
            with self.assertRaisesRegex(thinwire.BadOptionError, f"{path}: has the name of a file of the "):
                thinwire.expand_checkpoint(kept, to=path)
        with self.assertRaisesRegex(thinwire.BadOptionError, "would be read in the place of the run's checkpoints"):
            thinwire.expand_checkpoint(kept, to=self.folder / "model.safetensors")
        for _ in range(2):  # over its own file, too
            thinwire.expand_checkpoint(kept, to=kept / "w.safetensors")
        with self.assertRaisesRegex(thinwire.BadOptionError, "is the file that is read"):
            thinwire.expand_checkpoint(kept / "w.safetensors", to=kept / "w.safetensors")
        for path, content in saved.items():
            self.assertEqual(path.read_bytes(), content)

    def test_an_exact_model_is_compared_with_its_checksum(self):
        self.assertEqual(_core.file_checksum(b""), 0x2D06800538D394C2)
        kept = self.folder / "checkpoint-0000000005"
        kept.mkdir()
        model = kept / "model.safetensors"
        model.write_bytes(write_state([("w", 0, 1, [2], bytes(8))]))
        write_manifest(kept)
        paths = (model, kept, self.folder)
        for path in paths:
            self.assertEqual(thinwire.expand_checkpoint(path)["w"].tolist(), [0, 0])
        flip(model)
        for path in paths:
            with self.assertRaisesRegex(thinwire.CorruptError, "model.safetensors: damaged"):
                thinwire.expand_checkpoint(path, to=self.folder / "w.safetensors")
        self.assertFalse((self.folder / "w.safetensors").exists())
        (kept / "progress.json").unlink()
        self.assertNotEqual(thinwire.expand_checkpoint(kept)["w"].tolist(), [0, 0])

    def test_a_damaged_list_is_refused(self):
        shutil.copytree(KEPT, self.folder, dirs_exist_ok=True)
        manifest = self.folder / "progress.json"
        damages = ({"files": {}}, {"files": 1}, {"small": {"follows": 2}}, {"small": {}}, {"format": "x"})
        for changes in damages:
            write_manifest(self.folder, **changes)
            with self.assertRaisesRegex(thinwire.CorruptError, "progress.json"):
                thinwire.expand_checkpoint(self.folder)
        write_manifest(self.folder, version=3)
        with self.assertRaisesRegex(thinwire.UnsupportedError, "progress.json"):
            thinwire.expand_checkpoint(self.folder)
        write_manifest(self.folder)
        good = manifest.read_bytes()
        draw = random.Random(5)
        for _ in range(300):
            raw = bytearray(good)
            raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
            manifest.write_bytes(raw)
            try:
                self.assertEqual(sums_of(thinwire.expand_checkpoint(self.folder)), self.recorded)
            except thinwire.Error:
                pass
        manifest.write_bytes(good[:-4])
        with self.assertRaisesRegex(thinwire.CorruptError, "progress.json: truncated"):
            thinwire.expand_checkpoint(self.folder)

    def test_a_shape_that_numpy_cannot_hold_is_named(self):
        file = self.folder / "weights.safetensors"
        file.write_bytes(write_state([("odd", 0, 1, [0, 2**62], b"")]))
        with self.assertRaisesRegex(thinwire.CorruptError, f"{file}: array 'odd' has a shape"):
            thinwire.expand_checkpoint(file, to=self.folder / "w.safetensors")
        self.assertFalse((self.folder / "w.safetensors").exists())

    def test_another_name_is_read_or_refused(self):
        first = sums_of(thinwire.expand_checkpoint(KEPT / "model-000.small"))
        for name in ("weights.small", "weights", "weights.safetensors", "model-007.small"):
            shutil.copy(KEPT / "model-000.small", self.folder / name)
            self.assertEqual(sums_of(thinwire.expand_checkpoint(self.folder / name)), first)
        shutil.copy(KEPT / "model-001.small", self.folder / "later.small")
        with self.assertRaisesRegex(thinwire.MismatchError, "later.small: follows another .*model-000.small"):
            thinwire.expand_checkpoint(self.folder / "later.small")
        (self.folder / "bad.small").write_bytes(b"weights of another program, in its own format")
        with self.assertRaisesRegex(thinwire.CorruptError, "bad.small: not a small model"):
            thinwire.expand_checkpoint(self.folder / "bad.small")

    def test_a_file_is_replaced_whole_and_hides_no_checkpoint(self):
        kept = self.folder / "checkpoint-0000000005"
        shutil.copytree(KEPT, kept)
        for place in (self.folder, kept):
            with self.assertRaisesRegex(thinwire.BadOptionError, "weights.safetensors"):
                thinwire.expand_checkpoint(kept, to=place / "model.safetensors")
            thinwire.expand_checkpoint(kept, to=place / "weights.safetensors")
            self.assertFalse((place / "model.safetensors").exists())
            self.assertFalse((place / "weights.safetensors.tmp").exists())
        (self.folder / "other").mkdir()
        thinwire.expand_checkpoint(kept, to=self.folder / "other" / "model.safetensors")
        for bad in (self.folder / "nowhere" / "w", self.folder / "other"):
            with self.assertRaisesRegex(thinwire.IoError, f"{bad}: cannot be written"):
                thinwire.expand_checkpoint(kept, to=bad)
        self.assertEqual([f.name for f in self.folder.iterdir() if f.name.endswith(".tmp")], [])

    def test_every_damage_is_an_error(self):
        shutil.copy(KEPT / "model-000.small", self.folder)
        good = (KEPT / "model-001.small").read_bytes()
        draw = random.Random(4)
        for _ in range(300):
            raw = bytearray(good)
            if draw.random() < 0.3:
                del raw[draw.randrange(len(raw)) :]
            else:
                raw[draw.randrange(len(raw))] ^= draw.randrange(1, 256)
            (self.folder / "model-001.small").write_bytes(raw)
            with self.assertRaisesRegex(thinwire.Error, "model-001.small"):
                thinwire.expand_checkpoint(self.folder)


if __name__ == "__main__":
    unittest.main()
