"""Factored models from the command line: table, JSON and file agree; mistakes. SPDX-License-Identifier: Apache-2.0"""
import json
import re

import program

# A narrow network on the first 4,000 images.
SMALL = {"model.name": "mlp", "model.hidden": 64, "data.train_samples": 4000, "data.test_samples": 500,
         "train.batch": 32, "train.epochs": 2, "train.evaluate_every": 0, "exchange.codec": "fp32", "run.threads": 1}


def shapes_of(path):
    """Names and shapes of a safetensors file."""
    raw = path.read_bytes()
    header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


class Factored(program.ProgramTest):

    def train(self, out, **changes):
        given = {**SMALL, **{key.replace("__", "."): value for key, value in changes.items()}}
        words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        return self.thinwire("train", "demo", "--workers", "2", "--out", out, *words)

    def test_table_json_and_file_say_the_same(self):
        self.train("run")
        report = json.loads(self.thinwire("factor", "run", "--rank", "6", "--json", "--calibration", "900")[0])
        text, _ = self.thinwire("factor", "run", "--rank", "6", "--calibration", "900", "--out", "thin.safetensors")
        self.assertIn("mlp on fashion-mnist, checkpoint of step 250; outputs of 900 of 4,000 training samples\n", text)
        self.assertIn("\nfactored weights: thin.safetensors\n", text)
        shapes = shapes_of(self.folder / "thin.safetensors")
        self.assertEqual(shapes, {"hidden1.weight.left": [64, 6], "hidden1.weight.right": [6, 784], "hidden1.bias": [64],
                                  "hidden2.weight.left": [64, 6], "hidden2.weight.right": [6, 64], "hidden2.bias": [64],
                                  "output.weight.left": [10, 6], "output.weight.right": [6, 64], "output.bias": [10]})
        values = 0
        for shape in shapes.values():
            values += shape[0] * (shape[1] if len(shape) > 1 else 1)
        self.assertEqual(report["factored"], values)
        self.assertEqual(report["factored"], sum(layer["factored"] for layer in report["layers"]))
        for layer in report["layers"]:
            self.assertRegex(text, rf"(?m)^ *{layer['name']} +{layer['rows']} x {layer['columns']} +6 +"
                                   rf"{100 * layer['share']:.2f}% +{layer['parameters']:,} +{layer['factored']:,}$")
        for name, key in (("as trained", "trained"), ("factored by outputs", "by_outputs"),
                          ("by the weights' singular values, same ranks", "by_weights")):
            self.assertRegex(text, rf"(?m)^ *{re.escape(name)} +{100 * report[key]['error']:.2f}% +{report[key]['loss']:.4f}$")
        summary = self.summary("run")
        self.assertAlmostEqual(report["trained"]["error"], summary["final_test_error"])

        # All of the variance: a layer of full rank has no smaller factors.
        whole = json.loads(self.thinwire("factor", "run/", "--keep", "1", "--json")[0])
        self.assertEqual([layer["rank"] for layer in whole["layers"][1:]], [None, None])
        self.assertAlmostEqual(whole["by_outputs"]["loss"], whole["trained"]["loss"], places=4)
        # Less of it, fewer values.
        sizes = [json.loads(self.thinwire("factor", "run", "--keep", keep, "--json")[0])["factored"]
                 for keep in ("0.5", "0.8", "0.95")]
        self.assertEqual(sizes, sorted(sizes))
        self.assertLess(sizes[0], sizes[2])

    def test_ranks_end_where_the_samples_do_and_it_says_so(self):
        self.train("run", train__epochs=0.1)
        text, _ = self.thinwire("factor", "run", "--rank", "8", "--calibration", "2")
        self.assertIn("hidden1: its outputs at calibration vary in 1 of 64 directions, so the rank is no higher\n", text)
        self.assertIn("More samples may determine more: --calibration is 2, of 4,000; 0: all\n", text)
        text, _ = self.thinwire("factor", "run", "--rank", "8")
        self.assertNotIn("at calibration", text)

    def test_outputs_say_more_than_weights(self):
        self.train("run")
        report = json.loads(self.thinwire("factor", "run", "--rank", "4", "--json")[0])
        self.assertLess(report["by_outputs"]["loss"], report["by_weights"]["loss"])

    def test_small_checkpoints_are_factored_too(self):
        self.train("run", data__hold_out=1000, train__epochs=1,
                   checkpoint__compress="quantised:tolerance=0.05,samples=500,trials=8")
        report = json.loads(self.thinwire("factor", "run", "--rank", "8", "--json")[0])
        self.assertLess(report["factored"], report["parameters"] / 2)

    def test_mistakes_are_named(self):
        self.train("run", train__epochs=0.1)
        for words, code, message in (
                ([], 2, r"RUN is required"),
                (["run", "--rank", "0"], 2, r"--rank"),
                (["run", "--keep", "1.5"], 2, r"--keep"),
                (["run", "--keep", "0"], 2, r"keep is 0\.0+, but must be a share above 0"),
                (["run", "--keep", "0.9", "--rank", "3"], 2, r"--rank and --keep: give one of them"),
                (["run", "--calibration", "-1"], 2, r"--calibration"),
                (["run", "--rnak", "3"], 2, r"unknown option '--rnak'; did you mean '--rank'\?"),
                (["run", "--out", "run/model.safetensors"], 2, r"would be read in the place of the run's checkpoints"),
                (["run", "--out", "run/recipe.toml"], 2, r"run/recipe\.toml: has the name of a file of the run in that folder"),
                (["run", "--out", "no/such/file"], 1, r"no/such/file: cannot be written: there is no folder no/such\n"),
                (["nowhere", "--out", "no/such/file"], 1, r"no/such/file: cannot be written"),
                (["run", "--data", "nowhere"], 2, r"--data nowhere: no such folder"),
                (["nowhere"], 1, r"nowhere: is not there; name a folder that thinwire train wrote with --out")):
            with self.subTest(words=words):
                _, err = self.thinwire("factor", *words, code=code)
                self.assertRegex(err, message)
        (self.folder / "empty").mkdir()
        _, err = self.thinwire("factor", "empty", code=1)
        self.assertRegex(err, "empty: holds no checkpoint; thinwire train with --out writes them")


if __name__ == "__main__":
    program.main()
