"""Event files, read by TensorBoard's own reader; exits with 77, skipped, without it. SPDX-License-Identifier: Apache-2.0"""
import struct
import sys

import program
from program import settings

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
except ImportError as error:
    print(f"no reader of TensorBoard: {error}")
    sys.exit(77)


def single(number):
    """As event files have it."""
    return struct.unpack("f", struct.pack("f", number))[0]


class TensorBoard(program.ProgramTest):

    def scalars(self, out):
        read = EventAccumulator(str(self.folder / out), size_guidance={"scalars": 0})
        read.Reload()
        return {tag: [(event.step, event.value) for event in read.Scalars(tag)]
                for tag in read.Tags()["scalars"]}

    def event_files(self, out):
        return sorted((self.folder / out).glob("events.out.tfevents.*.thinwire"))

    def test_the_numbers_of_metrics_are_those_of_the_events(self):
        self.thinwire("train", "demo", "--workers", "2", "--out", "run", "--tensorboard", *settings())
        scalars = self.scalars("run")
        lines = [line for line in self.metrics("run") if "loss" in line]
        for key in ("loss", "learning_rate", "sent_bytes", "rest_norm"):
            self.assertEqual(scalars[key], [(line["step"], single(line[key])) for line in lines], key)
        self.assertEqual(scalars["times/compute"], [(line["step"], single(line["times"]["compute"])) for line in lines])
        self.assertEqual(len(scalars["kinds/linear/kept"]), 6)
        self.assertEqual(scalars["test_error"], [(6, single(self.summary("run")["final_test_error"]))])
        self.assertNotIn("skipped", scalars)

    def test_a_resumed_run_takes_the_place_of_what_followed_its_checkpoint(self):
        run = ["train", "demo", "--workers", "2", "--tensorboard", *settings(train__checkpoint_every=0.001)]
        self.thinwire(*run, "--out", "run")
        whole = self.scalars("run")["loss"]
        first = sorted((self.folder / "run").glob("checkpoint-*"))[0]
        self.assertLess(int(first.name[-10:]), 6)
        self.thinwire(*run, "--resume", f"run/{first.name}")
        self.assertEqual(len(self.event_files("run")), 2)
        self.assertEqual(self.scalars("run")["loss"], whole)

    def test_a_run_resumed_without_events_drops_those_that_followed_its_checkpoint(self):
        run = ["train", "demo", "--workers", "2", *settings(train__checkpoint_every=0.001)]
        self.thinwire(*run, "--out", "run", "--tensorboard")
        first = sorted((self.folder / "run").glob("checkpoint-*"))[0]
        self.thinwire(*run, "--resume", f"run/{first.name}")
        self.assertEqual([step for step, _ in self.scalars("run")["loss"]], list(range(1, int(first.name[-10:]) + 1)))

    def test_another_run_in_the_folder_begins_anew(self):
        run = ["train", "demo", "--workers", "2", "--tensorboard", "--out", "run"]
        self.thinwire(*run, *settings())
        others = self.folder / "run/events.out.tfevents.1.other"
        others.write_bytes(b"")
        self.thinwire(*run, *settings(train__max_steps=2))
        self.assertEqual(len(self.event_files("run")), 1)
        self.assertTrue(others.exists())
        self.assertEqual([step for step, _ in self.scalars("run")["loss"]], [1, 2])

    def test_a_changed_byte_is_noticed_by_its_checksum(self):
        self.thinwire("train", "demo", "--workers", "2", "--out", "run", "--tensorboard", *settings())
        file, = self.event_files("run")
        whole = sum(1 for _ in RawEventFileLoader(str(file)).Load())
        damaged = bytearray(file.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        file.write_bytes(damaged)
        self.assertLess(sum(1 for _ in RawEventFileLoader(str(file)).Load()), whole)

    def test_without_a_folder_there_is_no_place_for_events(self):
        _, err = self.thinwire("train", "demo", "--tensorboard", *settings(), code=2)
        self.assertIn("--tensorboard: its event files go into the folder of the run: give --out too", err)


if __name__ == "__main__":
    program.main()
