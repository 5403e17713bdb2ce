"""Small checkpoints from the command line: tolerance, expanding, resuming, damage. SPDX-License-Identifier: Apache-2.0"""
import hashlib
import json
import pathlib

import program

KEPT = pathlib.Path(__file__).resolve().parents[1] / "python" / "small"
# The demo recipe's network and data, for few steps.
DEMO = {"train.max_steps": 9, "train.checkpoint_every": 3 / 454, "train.evaluate_every": 0,
        "data.test_samples": 200, "data.hold_out": 2000, "run.threads": 1, "checkpoint.keep": 20,
        "checkpoint.compress": "quantised:tolerance=0.02,samples=300,trials=12"}


def arrays_of(path):
    """Names, shapes and bytes of a safetensors file."""
    raw = path.read_bytes()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    header.pop("__metadata__")
    return {name: (entry["dtype"], entry["shape"], raw[begin + entry["data_offsets"][0] : begin + entry["data_offsets"][1]])
            for name, entry in header.items()}


def flip(path):
    """A bit of it."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


class SmallCheckpoints(program.ProgramTest):

    def train(self, *more, code=0, **changes):
        given = {**DEMO, **{key.replace("__", "."): value for key, value in changes.items()}}
        words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        return self.thinwire("train", "demo", "--workers", "2", "--out", "run", *more, *words, code=code)

    def test_the_demo_keeps_the_tolerance_and_goes_on_after_a_restore(self):
        _, err = self.train(train__max_steps=6)
        self.assertRegex(err, r"checkpoint at step 3: [\d,]+ bytes of weights in [\d,]+ \(\d+\.\dx\)")
        folders = sorted((self.folder / "run").glob("checkpoint-*"))
        self.assertEqual([folder.name[-2:] for folder in folders], ["03", "06"])
        for place, folder in enumerate(folders):
            small = json.loads((folder / "progress.json").read_text())["small"]
            self.assertLessEqual(small["loss"], 1.02 * small["exact_loss"])
            self.assertGreater(small["exact_bytes"], 4 * small["bytes"])
            self.assertEqual(small["follows"], place)
            self.assertFalse((folder / "model.safetensors").exists())
        out, err = self.train("--resume", "run")
        self.assertIn("weights are those of a small checkpoint", err)
        self.assertIn("done: 9 steps", out)

        # Of a run's folder, of a checkpoint and of its file: the same weights.
        expanded = []
        for source in ("run", "run/checkpoint-0000000009", "run/checkpoint-0000000009/model-000.small"):
            out, _ = self.thinwire("checkpoint", "expand", source, "--out", "weights.safetensors")
            self.assertRegex(out, r"^weights\.safetensors: \d+ arrays of run/checkpoint-0000000009/model-000\.small, ")
            expanded.append(arrays_of(self.folder / "weights.safetensors"))
        self.assertEqual(expanded[0], expanded[1])
        self.assertEqual(expanded[0], expanded[2])
        self.train("--resume", "run", train__max_steps=12, checkpoint__compress="exact")
        exact = arrays_of(self.folder / "run/checkpoint-0000000012/model.safetensors")
        self.assertEqual({name: entry[:2] for name, entry in exact.items()},
                         {name: entry[:2] for name, entry in expanded[0].items()})

        flip(self.folder / "run/checkpoint-0000000012/model.safetensors")
        _, err = self.thinwire("checkpoint", "expand", "run", "--out", "never.safetensors", code=1)
        self.assertIn("run/checkpoint-0000000012/model.safetensors: damaged", err)
        self.assertFalse((self.folder / "never.safetensors").exists())
        last = self.folder / "run/checkpoint-0000000006/model-001.small"
        aside = last.rename(self.folder / "aside")
        _, err = self.thinwire("checkpoint", "expand", "run/checkpoint-0000000006", code=1)
        self.assertIn("run/checkpoint-0000000006/model-001.small: cannot be read", err)
        aside.rename(last)

        file = self.folder / "run/checkpoint-0000000006/model-000.small"
        flip(file)
        _, err = self.thinwire("checkpoint", "expand", "run/checkpoint-0000000006", code=1)
        self.assertIn("run/checkpoint-0000000006/model-000.small: damaged", err)
        _, err = self.thinwire("checkpoint", "expand", "nowhere", code=1)
        self.assertIn("nowhere: cannot be read", err)

    def test_what_cannot_be_is_said_before_the_run(self):
        _, err = self.train(data__hold_out=0, code=2)
        self.assertIn("checkpoint.compress", err)
        self.assertIn("data.hold_out", err)
        _, err = self.train(checkpoint__compress="quantised:tolerance=x", code=2)
        self.assertIn("tolerance", err)

    def test_files_on_record_expand_to_what_they_did(self):
        self.thinwire("checkpoint", "expand", str(KEPT / "model-001.small"), "--out", "w.safetensors")
        arrays = arrays_of(self.folder / "w.safetensors")
        sums = {name: hashlib.sha256(data).hexdigest() for name, (_, _, data) in arrays.items()}
        self.assertEqual(sums, json.loads((KEPT / "sha256.json").read_text()))


if __name__ == "__main__":
    program.main()
