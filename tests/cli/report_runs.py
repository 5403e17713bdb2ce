"""Tests of reports: what is in the page, and that a browser draws it. SPDX-License-Identifier: Apache-2.0"""
import json
import os
import re
import shutil
import unittest

import program
from program import settings


def data_of(page):
    """What the page's script reads."""
    text = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S).group(1)
    return json.loads(text)


class Report(program.ProgramTest):

    def page(self, path):
        return (self.folder / path).read_text()

    def train(self, out, *more, **changes):
        return self.thinwire("train", "demo", "--workers", "2", "--out", out,
                             *settings(**{"train__evaluate_every": "1", **changes}), *more)

    def write_run(self, name, lines, summary=None):
        folder = self.folder / name
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        if summary is not None:
            (folder / "summary.json").write_text(json.dumps(summary))

    def step(self, step, **more):
        return {"step": step, "epoch": step / 10, "loss": 1 / step, "seconds": step / 2,
                "sent_bytes": 100, "skipped": False, **more}

    def test_the_page_has_what_the_run_wrote(self):
        out, _ = self.train("run", "--report", exchange__codec="topk:density=0.05",
                            run__stream_metrics="true")
        self.assertRegex(out, r"charts +run/report.html")
        page = self.page("run/report.html")
        data = data_of(page)
        self.assertEqual(data["title"], "demo")
        [run] = data["runs"]
        lines = self.metrics("run")
        steps = [line for line in lines if "loss" in line]
        self.assertEqual(run["series"]["step"], [line["step"] for line in steps])
        for shown, line in zip(run["series"]["loss"], steps):
            self.assertAlmostEqual(shown, line["loss"], delta=1e-4 * abs(line["loss"]))
        total = 0
        for shown, line in zip(run["series"]["sent"], steps):
            total += line["sent_bytes"]
            self.assertAlmostEqual(shown, total, delta=1e-4 * total)
        stream = steps[0]["streams"][0]
        self.assertAlmostEqual(run["series"][f"layer/{stream['stream']}/rest_norm"][0],
                               stream["rest_norm"], delta=1e-4 * stream["rest_norm"])
        tests = [line for line in lines if "test_error" in line]
        self.assertEqual([test["step"] for test in run["tests"]], [line["step"] for line in tests])
        self.assertEqual(run["settings"]["exchange.codec"], "topk:density=0.05")
        self.assertEqual(run["skipped"], 0)
        self.assertTrue("Chart.js v" in page)
        # No address is loaded: the policy forbids it, and no element asks for one.
        self.assertTrue("default-src 'none'" in page)
        self.assertEqual(re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=[^>]*>", page), [])

    def test_the_page_says_which_codec_each_tensor_had_when(self):
        (self.folder / "plan.txt").write_text("thinwire decisions 1\n0\tfp32\n# few bytes\n2\tint8\n")
        self.train("run", "--report", exchange__codec="auto:plan=plan.txt")
        [run] = data_of(self.page("run/report.html"))["runs"]
        first, second = run["codecs"]
        self.assertEqual((first["step"], list(first["codecs"])), (1, ["fp32"]))
        self.assertEqual((second["step"], second["why"]), (3, "few bytes"))
        self.assertIn("int8:block=256", second["codecs"])
        self.assertTrue(all("weight" in name for name in second["codecs"]["int8:block=256"]))

    def test_compare_and_sweep_write_the_page_of_their_runs(self):
        out, _ = self.thinwire("compare", "demo", "--workers", "2", "--codecs", "fp32;int8", "--out",
                               "both", *settings())
        self.assertIn("charts: both/report.html", out)
        self.assertEqual([run["name"] for run in data_of(self.page("both/report.html"))["runs"]],
                         ["1-fp32", "2-int8"])
        again, _ = self.thinwire("report", "both", "--out", "again.html", "--title", "demo")
        self.assertEqual(again, "again.html\n")
        self.assertTrue(self.page("again.html") == self.page("both/report.html"))

        quoted = [f'"{key}" = {json.dumps(value)}' if not value.isdigit() else f'"{key}" = {value}'
                  for key, value in program.TINY.items()]
        (self.folder / "two.toml").write_text("\n".join(
            ['title = "Seeds"', 'recipe = "demo"', "workers = 2", "seeds = [1, 2]", "[settings]",
             *quoted, "[variants.plain]", '"exchange.codec" = "fp32"', ""]))
        self.thinwire("sweep", "two.toml", "--out", "all")
        data = data_of(self.page("all/report.html"))
        self.assertEqual(data["title"], "Seeds")
        self.assertEqual(len(data["runs"]), 2)

    def test_a_run_that_still_goes_on(self):
        self.write_run("run", [self.step(1), self.step(2)])
        with open(self.folder / "run" / "metrics.jsonl", "a") as file:
            file.write('{"step":3,"loss":0.')
        (self.folder / "run" / "recipe.toml").write_text('[exchange]\ncodec = "int8"\n')
        self.thinwire("report", "run")
        [run] = data_of(self.page("run/report.html"))["runs"]
        self.assertEqual((run["steps"], run["finished"]), (2, False))
        self.assertEqual(run["settings"], {"exchange.codec": "int8"})

    def test_a_summary_of_another_kind_is_of_no_finished_run(self):
        self.write_run("run", [self.step(1)], {"finished": "yes"})
        self.thinwire("report", "run")
        [run] = data_of(self.page("run/report.html"))["runs"]
        self.assertFalse(run["finished"])

    def test_a_long_run_is_a_short_page(self):
        self.write_run("run", [self.step(i) for i in range(1, 5001)])
        self.thinwire("report", "run")
        [run] = data_of(self.page("run/report.html"))["runs"]
        self.assertLessEqual(len(run["series"]["loss"]), 1200)
        self.assertGreaterEqual(len(run["series"]["loss"]), 600)
        self.assertEqual(run["series"]["step"][-1], 5000)
        self.assertEqual(run["series"]["sent"][-1], 500000)

    def test_faults_are_listed_and_rounds_and_boundaries_shown(self):
        fault = {"what": "non finite", "rank": 1, "stream": "fc.weight"}
        way = {"values": 100, "payload_bytes": 40}
        self.write_run("run", [
            self.step(1, skipped=True, fault=fault),
            self.step(2, round={"global": True, "leader": 3, "sent_bytes": 7, "seconds": 0.5}),
            self.step(3, pipeline={"idle_share": 0.25, "boundaries": [
                {"behind": "block1", "forward": way, "backward": way}]}),
            self.step(4, lost=[{"rank": 2, "why": "silent"}], unchosen=[0]),
            self.step(5, left_out=[{"rank": 3, "why": "silence"}]),
            self.step(6, left_out=[{"rank": 3, "why": "silence"}], unchosen=[3]),
            self.step(7, joined=[2], ranks=4),
            self.step(8, round={"round": 5, "step": 8, "begun": 5, "fragment": 1, "ranks": [0, 1, 3],
                                "skipped": "corrupt", "culprit": 3, "where": "b"})])
        self.thinwire("report", "run")
        [run] = data_of(self.page("run/report.html"))["runs"]
        self.assertEqual(run["events"], [{"step": 1, "what": "skipped: non finite, rank 1, fc.weight"},
                                         {"step": 4, "what": "worker 2 lost: silent"},
                                         {"step": 7, "what": "worker 2 joined"},
                                         {"step": 8, "what": "round 5 skipped: corrupt, rank 3, b"},
                                         {"step": 8, "what": "rank 0 left out: 1 of 8 steps for the rule's choice"},
                                         {"step": 8, "what": "rank 3 left out: 2 of 8 steps for silence, "
                                                             "1 of 8 steps for the rule's choice"}])
        self.assertEqual((run["skipped"], run["skipped_rounds"], run["more_events"]), (1, 1, 0))
        self.assertEqual(run["series"]["left_out"], [0, 0, 0, 1, 1, 2, 0, 0])
        self.assertEqual(run["series"]["round/staleness"][7], 3)
        self.assertEqual(run["series"]["round/attendance"][7], 3)
        self.assertEqual(run["leaders"], [[2, 3]])
        self.assertEqual(run["series"]["round/global/seconds"][1], 0.5)
        self.assertEqual(run["series"]["boundary/forward after block1/payload_bytes"][2], 40)

    def test_of_many_events_and_changes_it_is_said_how_many_are_not_listed(self):
        self.write_run("run", [
            *(self.step(i, skipped=True, codecs={"fp32" if i % 2 else "int8": ["a"]}) for i in range(1, 251)),
            self.step(251, lost=[{"rank": 2, "why": "silent"}])])
        self.thinwire("report", "run")
        [run] = data_of(self.page("run/report.html"))["runs"]
        self.assertEqual((len(run["events"]), run["more_events"]), (201, 50))
        self.assertEqual(run["events"][-1]["what"], "worker 2 lost: silent")
        self.assertEqual((len(run["codecs"]), run["more_codecs"]), (200, 50))

    def test_lines_that_cannot_be_read_are_counted_and_cost_no_report(self):
        self.write_run("good", [self.step(1)])
        self.write_run("bad", [])
        lines = [json.dumps(self.step(1)), "", '{"step": 2, "loss": NaN}', '{"step": "three"}', "[]",
                 json.dumps({**self.step(4), "times": 7, "kinds": [], "round": 1, "lost": "all", "left_out": [[]],
                             "codecs": {"fp32": "a"}, "streams": [{"stream": 1}], "pipeline": {"boundaries": [{"behind": 1}]}})]
        (self.folder / "bad" / "metrics.jsonl").write_text("\n".join(lines) + "\n")
        (self.folder / "bad" / "summary.json").write_text("[]")
        self.thinwire("report", "good", "bad")
        good, bad = data_of(self.page("report.html"))["runs"]
        self.assertEqual((good["steps"], good["events"]), (1, []))
        self.assertEqual(bad["series"]["step"], [1, 4])
        self.assertEqual([event["what"] for event in bad["events"]], [
            "summary.json: holds no JSON object, and is left out",
            "rank -1 left out: 1 of 4 steps for unknown reason",
            "metrics.jsonl: 4 lines are no step or test and are left out; the first is line 2"])

    def test_many_runs_of_many_layers_are_a_page_of_bounded_size(self):
        stream = {"values": 1234567, "kept": 12345, "target": 12345, "payload_bytes": 123456,
                  "rest_norm": 0.123456, "gradient_norm": 0.123456}
        for run in range(30):
            self.write_run(f"all/{run}", [self.step(i, streams=[{"stream": f"layer{k}.weight", **stream} for k in range(60)])
                                          for i in range(1, 401)])
        self.thinwire("report", "all")
        self.assertLess((self.folder / "all" / "report.html").stat().st_size, 22e6)
        runs = data_of(self.page("all/report.html"))["runs"]
        self.assertTrue(all(len(run["series"]["loss"]) == 200 for run in runs))

    def test_names_are_text_wherever_they_stand(self):
        name = "</script><script>alert(1)</script> @data@ \\u003c"
        self.write_run("run", [self.step(1, kinds={name: {"values": 4, "payload_bytes": 8}})],
                       {"finished": True, "codec": name})
        self.thinwire("report", "run", "--title", name)
        page = self.page("run/report.html")
        self.assertFalse("alert(1)</script>" in page)  # assertNotIn would print the whole page
        self.assertEqual(data_of(page)["title"], name)

    def test_runs_of_one_name_are_told_apart(self):
        for above in ("a", "b"):
            self.write_run(f"{above}/seed1", [self.step(1)])
        out, _ = self.thinwire("report", "a/seed1", "b/seed1/")
        self.assertEqual(out, "report.html\n")
        self.assertEqual([run["name"] for run in data_of(self.page("report.html"))["runs"]],
                         ["a/seed1", "b/seed1"])
        for above in ("c/x", "d/x"):
            self.write_run(f"{above}/seed1", [self.step(1)])
        self.thinwire("report", "a/seed1", "c/x/seed1", "d/x/seed1", "c/x/../x", os.fspath(self.folder / "a"))
        self.assertEqual([run["name"] for run in data_of(self.page("report.html"))["runs"]],
                         ["a/seed1", "c/x/seed1", "d/x/seed1"])

    def test_mistakes_are_named(self):
        _, err = self.thinwire("report", "nowhere", code=1)
        self.assertRegex(err, "nowhere: is not there; name a folder that train, compare or sweep wrote")
        (self.folder / "empty").mkdir()
        _, err = self.thinwire("report", "empty", code=1)
        self.assertRegex(err, "empty: holds no run: metrics.jsonl is neither here nor one folder below")
        _, err = self.thinwire("train", "demo", "--report", *settings(), code=2)
        self.assertRegex(err, "--report: .*give --out too")
        self.write_run("good", [self.step(1)])
        _, err = self.thinwire("report", "good", "--out", "no/such/folder.html", code=1)
        self.assertRegex(err, "no/such/folder.html: cannot be written")


class Browser(program.ProgramTest):
    """In headless Chromium, where it is installed and can run at all; ./x test installs it."""

    def setUp(self):
        super().setUp()
        self.chromium = shutil.which("chromium")
        if self.chromium is None:
            self.skipTest("chromium is not installed")
        (self.folder / "empty.html").write_text("<p>drawn</p>")
        try:
            page, err = self.opened("empty.html", "--dump-dom")
        except AssertionError as why:
            self.skipTest(f"chromium does not run here: {why}")
        if "<p>drawn</p>" not in page:
            self.skipTest(f"chromium does not run here: {err}")

    def opened(self, page, *arguments):
        command = [self.chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--user-data-dir=" + str(self.folder / "profile"), "--virtual-time-budget=10000",
                   *arguments, "--enable-logging=stderr", "file://" + os.fspath(self.folder / page)]
        return self.run_command(command)

    def test_everything_is_drawn_and_nothing_complains(self):
        self.thinwire("compare", "demo", "--workers", "2", "--codecs", "fp32;topk:density=0.05", "--out",
                      "both", *settings(train__evaluate_every="1"))
        page, err = self.opened("both/report.html", "--dump-dom")
        self.assertNotIn("CONSOLE", err)
        self.assertRegex(page, r'<body data-charts="5">')
        self.assertIn('<section id="influence" hidden', page)
        self.assertIn("<h1 id=\"title\">demo</h1>", page)
        rows = re.findall(r"<tr>.*?</tr>", page.split('id="results"')[1].split("</table>")[0])
        self.assertEqual(len(rows), 3)
        self.assertIn("2-topk-density-0.05", rows[2])
        self.assertIn("In these the runs differ.", page)

    def test_what_one_run_alone_has_is_drawn(self):
        way = {"values": 100, "payload_bytes": 40}
        lines = [{"step": i, "epoch": i / 10, "loss": 1.0, "seconds": i, "sent_bytes": 5,
                  "skipped": i == 2, "round": {"global": True, "leader": i % 2, "sent_bytes": 7, "seconds": 1},
                  "pipeline": {"idle_share": 0.5, "boundaries": [{"behind": "b", "forward": way}]}}
                 for i in range(1, 9)]
        (self.folder / "run?1").mkdir()
        (self.folder / "run?1" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (self.folder / "run?1" / "influence.html").write_text("")
        self.thinwire("report", "run?1", "--out", "report.html")
        page, err = self.opened("report.html", "--dump-dom")
        self.assertNotIn("CONSOLE", err)
        for text in ("Leaders", "Bytes of a global round", "Boundaries", "skipped: unknown reason",
                     '<a href="run%3F1/influence.html">run?1</a>'):
            self.assertIn(text, page)

    def test_what_is_missing_costs_nothing_else(self):
        lines = [{"step": i, "epoch": i / 10, "loss": 1.0, "seconds": i, "kinds": {"linear": {"values": 4}},
                  "pipeline": {"boundaries": [{"behind": "b", "forward": {"values": 4}}]},
                  "codecs": {"fp32": [f"layer{k}.weight" for k in range(20)]},
                  "round": {"step": i, "begun": i - 2, "ranks": [0, 1], "skipped": "corrupt"}} for i in range(1, 251)]
        (self.folder / "run").mkdir()
        (self.folder / "run" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.thinwire("report", "run")
        page, err = self.opened("run/report.html", "--dump-dom")
        self.assertNotIn("CONSOLE", err)
        self.assertRegex(page, r'<body data-charts="\d+">')
        for text in ("By layer, or kind of tensor", "Boundaries", "Steps between begin and end of a round",
                     "Workers that took part in a round", "20 tensors: layer0.weight, layer1.weight, layer2.weight, ...",
                     "layer18.weight, layer19.weight", "50 more changes are not listed",
                     "Skipped: 0 steps, 250 rounds. 50 more events are not listed."):
            self.assertTrue(text in page, text)

    def test_it_fits_a_phone_and_a_desktop_in_light_and_dark(self):
        self.thinwire("compare", "demo", "--workers", "2", "--codecs", "fp32;int8", "--out", "both",
                      *settings(train__evaluate_every="1"))
        pictures = {}
        for theme, flags in (("light", []), ("dark", ["--blink-settings=preferredColorScheme=0"])):
            for width in (500, 1280):
                picture = self.folder / f"{theme}-{width}.png"
                self.opened("both/report.html", f"--window-size={width},1600", f"--screenshot={picture}", *flags)
                pictures[theme, width] = picture.read_bytes()
                self.assertGreater(len(pictures[theme, width]), 20000)  # an empty page takes 5 kB
        self.assertEqual(len(set(pictures.values())), 4)


if __name__ == "__main__":
    program.main()
