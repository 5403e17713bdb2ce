"""One table of several codecs. SPDX-License-Identifier: Apache-2.0"""
import json

import program
from program import settings


class Compare(program.ProgramTest):

    def test_table_on_the_screen_and_in_files(self):
        for _ in range(2):  # again into the same folder: done anew
            out, err = self.thinwire("compare", "demo", "--workers", "2", "--out", "both",
                                     "--codecs", "fp32; adacomp", *settings())
        self.assertIn("[1/2] fp32", err)
        self.assertIn("[2/2] adacomp", err)
        self.assertRegex(out, r"codec +test error +bytes per step and rank +wire ratio +codec "
                         r"ratio +seconds\n")
        self.assertRegex(out, r"fp32 +\d+\.\d\d% +[\d,]+ +0\.99x +1\.00x +\d+")
        rows = json.loads((self.folder / "both" / "compare.json").read_text())
        self.assertEqual([row["codec"].split(":")[0] for row in rows], ["fp32", "adacomp"])
        self.assertEqual(rows[0]["steps"], rows[1]["steps"])
        self.assertLess(rows[1]["sent_bytes_per_step"], rows[0]["sent_bytes_per_step"])
        table = (self.folder / "both" / "compare.md").read_text().splitlines()
        self.assertEqual(len(table), 4)
        self.assertTrue(all(line.startswith("|") and line.endswith("|") for line in table))
        self.assertEqual(self.summary("both/2-adacomp")["steps"], 6)

    def test_a_run_that_was_cut_off_goes_on_with_the_same_settings_only(self):
        def compare(**changes):
            (self.folder / "one" / "1-fp32" / "summary.json").unlink(missing_ok=True)  # as if it had not come to its end
            _, err = self.thinwire("compare", "demo", "--workers", "2", "--out", "one", "--codecs", "fp32",
                                   *settings(**changes))
            return err

        compare()
        self.assertIn("resumed at step 6", compare())
        err = compare(optimizer__lr=0.25)
        self.assertRegex(err, r"! one/1-fp32: the unfinished run is of another recipe \(optimizer\.lr: \S+ before, "
                              r"0\.25 now\); begins anew\n")
        self.assertNotIn("resumed", err)
        self.thinwire("train", "demo", "--workers", "2", "--out", "straight",
                      *settings(optimizer__lr=0.25, exchange__codec="fp32"))
        self.assertEqual(self.summary("one/1-fp32")["weights_xxh3"], self.summary("straight")["weights_xxh3"])

    def test_a_course_keeps_its_semicolon(self):
        self.thinwire("compare", "demo", "--workers", "2", "--out", "one", "--codecs", "topk:density=warmup(0.01;1);",
                      *settings())
        rows = json.loads((self.folder / "one" / "compare.json").read_text())
        self.assertEqual([row["codec"] for row in rows], ["topk:density=warmup(0.01;1)"])

    def test_groups_of_workers_have_bytes_of_each_level(self):
        self.thinwire("compare", "demo", "--workers", "4", "--out", "one", "--codecs", "fp32",
                      *settings(exchange__inside=2))
        row, = json.loads((self.folder / "one" / "compare.json").read_text())
        self.assertGreater(row["inside_bytes_per_step"], 0)
        self.assertEqual(row["inside_bytes_per_step"] + row["between_bytes_per_step"],
                         row["sent_bytes_per_step"])

    def test_the_recipe_s_own_codec_is_among_the_usual_ones(self):
        own = {"topk:density=0.05": "sidco:density=0.01", "sidco:density=0.1": "adacomp",
               "fp32": None}
        for codec, third in own.items():
            _, err = self.thinwire("compare", "demo", "--workers", "2",
                                   "--set", f"exchange.codec={codec}", *settings())
            self.assertIn("[1/3] fp32\n", err)
            self.assertIn(f"[2/3] {codec if third else 'adacomp'}\n", err)
            self.assertIn(f"[3/3] {third or 'sidco:density=0.01'}\n", err)

    def test_without_a_folder_nothing_is_written(self):
        out, _ = self.thinwire("compare", "demo", "--workers", "2", "--codecs", "fp32",
                               *settings())
        self.assertIn("fp32", out)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_table_that_cannot_be_printed_is_a_failure(self):
        command = [self.program, "compare", "demo", "--codecs", "fp32", "--out", "one", *settings()]
        _, err = self.run_command(["bash", "-c", '"$@" >/dev/full', "bash", *command], code=1)
        self.assertIn("thinwire: standard output cannot be written: No space left", err)
        self.assertTrue((self.folder / "one" / "compare.md").exists())


if __name__ == "__main__":
    program.main()
