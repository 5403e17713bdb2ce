"""Influence from the command line: planted labels are found, output, page, mistakes. SPDX-License-Identifier: Apache-2.0"""
import base64
import json
import re
import struct

import program

# A narrow network on the first 4,000 images, 1 in 20 with a wrong label.
PLANTED = {"model.name": "mlp", "model.hidden": 64, "data.train_samples": 4000, "data.test_samples": 200,
           "data.wrong_labels": 0.05, "train.batch": 32, "train.epochs": 6, "train.evaluate_every": 0,
           "checkpoint.keep": 20, "exchange.codec": "fp32", "run.threads": 1}


class Influence(program.ProgramTest):

    def train(self, out, **changes):
        given = {**PLANTED, **{key.replace("__", "."): value for key, value in changes.items()}}
        words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        return self.thinwire("train", "demo", "--workers", "2", "--out", out, *words)

    def found(self, out, *more):
        text, _ = self.thinwire("influence", out, "--self", "--json", *more)
        report = json.loads(text)
        shares = {share["looked_at"]: share["found"] for share in report["wrong_labels"]["shares"]}
        return report, shares

    def test_self_influence_finds_wrong_labels(self):
        """By chance a tenth of the samples has a tenth of the wrong labels."""
        for name, more in (("exact", {}),
                           ("small", {"data__hold_out": 1000,
                                      "checkpoint__compress": "quantised:tolerance=0.05,samples=500,trials=8"}),
                           ("sidco", {"exchange__codec": "sidco:density=0.01"})):
            self.train(name, **more)
            report, shares = self.found(name)
            planted = report["wrong_labels"]["planted"]
            print(f"{name}: of {planted} wrong labels {100 * shares[0.1]:.1f} % among the top 10 %, "
                  f"{100 * shares[0.05]:.1f} % among the top 5 %")
            self.assertEqual([checkpoint["small"] for checkpoint in report["checkpoints"]], [name == "small"] * 6)
            self.assertGreater(planted, 120)
            self.assertLess(planted, 280)
            self.assertGreater(shares[0.1], 0.5)
            self.assertEqual(len(report["self"]), 10)
            self.assertFalse((self.folder / name / "influence.html").exists())

    def test_tables_json_and_page_say_the_same(self):
        self.train("run", train__epochs=2)
        out, _ = self.thinwire("influence", "run", "--of", "3", "17", "--self", "--most", "4")
        self.assertIn("mlp on fashion-mnist: 4,000 training samples, 2 checkpoints of steps 125 to 250\n", out)
        self.assertIn("\npictures: run/influence.html\n", out)
        report = json.loads(self.thinwire("influence", "run", "--of", "3", "17", "--self", "--most", "4", "--json")[0])
        self.assertEqual([one["index"] for one in report["of"]], [3, 17])
        self.assertEqual([one["step"] for one in report["checkpoints"]], [125, 250])
        for file, address in (("run/report.html", "influence.html"), ("all.html", "run/influence.html")):
            self.thinwire("report", "run", "--out", file)
            self.assertIn(f'"influence":"{address}"', (self.folder / file).read_text())
        page = (self.folder / "run" / "influence.html").read_text()
        for one in report["of"]:
            self.assertIn(f"test sample {one['index']}: label {one['label']}, predicted {one['predicted']}, ", out)
            for name, sign in (("proponents", 1), ("opponents", -1)):
                self.assertEqual(len(one[name]), 4)
                values = [sign * sample["influence"] for sample in one[name]]
                self.assertEqual(values, sorted(values, reverse=True))
                self.assertGreater(values[-1], 0)
                for sample in one[name]:
                    self.assertRegex(out, rf"(?m)^  {sample['index']} +{re.escape(format(sample['influence'], '.4g'))} ")
                    self.assertIn(f"training sample {sample['index']}<br>", page)
        pictures = re.findall(r'<img src="data:image/bmp;base64,([^"]+)" alt="([a-z-]+ sample \d+)">', page)
        self.assertEqual(len(pictures), 2 + 4 * 4 + 4)
        for picture, _ in pictures:
            raw = base64.b64decode(picture, validate=True)
            self.assertEqual(raw[:2], b"BM")
            self.assertEqual(struct.unpack("<IxxxxIIii", raw[2:26]), (len(raw), 54, 40, 28, 28))
        # The page loads nothing.
        self.assertIn("default-src 'none'", page)
        self.assertEqual(re.findall(r"(?:src|href)=\"(?!data:)[^\"]*\"", page), [])
        self.assertNotIn("<script", page)

        # A folder's name is text.
        (self.folder / "run").rename(self.folder / 'a<b>&"')
        self.thinwire("influence", 'a<b>&"', "--self", "--most", "1")
        self.assertIn("<h1>Influence: a&lt;b>&amp;&quot;</h1>", (self.folder / 'a<b>&"' / "influence.html").read_text())
        (self.folder / 'a<b>&"').rename(self.folder / "run")

        self.thinwire("influence", "run", "--of", "3", "--page", "here.html", "--json", "--checkpoints", "1")
        self.assertIn("<td>250</td>", (self.folder / "here.html").read_text())
        self.assertNotIn("<td>125</td>", (self.folder / "here.html").read_text())

    def test_mistakes_are_named(self):
        self.train("run", train__epochs=0.1, checkpoint__keep=2)
        for words, code, message in (
                (["run"], 2, r"nothing to show: give --of INDEX\.\.\., --self, or both"),
                (["run", "--of", "200"], 2, r"there is no test sample 200: the run has 200, 0 to 199"),
                (["run", "--of", "-1"], 2, r"--of"),
                (["run", "--of", "1", "--from", "held-out"], 2, r"holds no samples out \(data\.hold_out = 0\)"),
                (["run", "--of", "1", "--from", "trainign"], 2, r"--from trainign: unknown; known: test, held-out, training"),
                (["run", "--self", "--checkpoints", "3"], 2, r"run has 1 checkpoints? and not 3: .*checkpoint\.keep"),
                (["nowhere", "--self"], 1, r"nowhere: is not there; name a folder that thinwire train wrote with --out"),
                (["run", "--self", "--page", "same", "--scores", "same"], 2, r"--page and --scores: both are same"),
                (["run", "--self", "--page", "no/such/page.html"], 1,
                 r"no/such/page\.html: cannot be written: there is no folder no/such\n"),
                (["run", "--self", "--scores", "no/such/file"], 1, r"no/such/file: cannot be written: there is no")):
            with self.subTest(words=words):
                _, err = self.thinwire("influence", *words, code=code)
                self.assertRegex(err, message)
        (self.folder / "empty").mkdir()
        _, err = self.thinwire("influence", "empty", "--self", code=1)
        self.assertRegex(err, "empty: holds no checkpoint; thinwire train with --out writes them")

    def test_outputs_take_the_place_of_no_saved_file(self):
        self.train("run", train__epochs=0.1)
        [checkpoint] = (self.folder / "run").glob("checkpoint-*")
        saved = {path: path.read_bytes() for path in (self.folder / "run").rglob("*") if path.is_file()}
        for option in ("--scores", "--page"):
            for path in (checkpoint / "model.safetensors", checkpoint / "progress.json", self.folder / "run" / "metrics.jsonl"):
                _, err = self.thinwire("influence", "run", "--self", option, str(path), code=2)
                self.assertIn(f"{path}: has the name of a file of the ", err)
        _, err = self.thinwire("influence", "run", "--self", "--scores", "run/model.safetensors", code=2)
        self.assertIn("run/model.safetensors: would be read in the place of the run's checkpoints", err)
        # Mistakes are found before anything is computed.
        _, err = self.thinwire("influence", "nowhere", "--self", "--page", "no/such/page.html", code=1)
        self.assertIn("no/such/page.html: cannot be written", err)
        for path, content in saved.items():
            self.assertEqual(path.read_bytes(), content, path)
        self.assertFalse((self.folder / "run" / "model.safetensors").exists())


if __name__ == "__main__":
    program.main()
