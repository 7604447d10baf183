#!/usr/bin/env python3
"""The verdict over what ranks may have written, and the script's dry run, which needs no GPU."""
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import all_reduce  # noqa: E402  its torch is imported in main() only

TOTALS = {"operations": 10, "input_bytes": 8000, "exact_bytes": 8000, "wire_bytes": 1100}


def reduce_report(rank, ranks):
    return {"rank": rank, "ranks": ranks, "elements": 1000, "repeats": 2, "nmse": 0.02, "digests": ["a", "b"],
            "small_is_exact": True, "seconds": 0.004, "totals": dict(TOTALS), "torch": "2.9", "nccl": "2.28.9", "gpu": "G"}


def train_report(rank, loss, totals):
    return {"rank": rank, "losses": [2.3] + [loss] * 30, "replicas_equal": True, "totals": totals}


class Verdict(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.reports = {}
        for ranks in (2, 4):
            for rank in range(ranks):
                self.reports[f"reduce{ranks}/rank{rank}.json"] = reduce_report(rank, ranks)
        for rank in range(2):
            self.reports[f"train_with/rank{rank}.json"] = train_report(rank, 1.01, dict(TOTALS))
            self.reports[f"train_without/rank{rank}.json"] = train_report(rank, 1.0, None)
        self.reports = copy.deepcopy(self.reports)
        self.log = "host:1:1 [0] NCCL INFO Using network CGX\n"

    def judge(self):
        for name, report in self.reports.items():
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps(report))
            if "reduce" in name:
                (path.parent / "nccl.0").write_text(self.log)
        return subprocess.run([sys.executable, HERE / "verdict.py", self.folder], capture_output=True, text=True, check=False)

    def expect(self, *words, passes=False):
        done = self.judge()
        self.assertEqual(done.returncode, 0 if passes else 1, done.stdout + done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 1, done.stdout)
        self.assertTrue(done.stdout.startswith("real_nccl: PASS" if passes else "real_nccl: FAIL"), done.stdout)
        for word in words:
            self.assertIn(word, done.stdout)

    def test_all_well_is_one_line_with_the_figures(self):
        self.expect("NCCL 2.28.9", "2 ranks: 7.3x fewer bytes, NMSE 0.02, 4.0 ms", "4 ranks", "loss 1.0100 with, 1.0000 without",
                    passes=True)

    def test_one_different_bit(self):
        self.reports["reduce4/rank3.json"]["digests"][1] = "c"
        self.expect("4 ranks: ranks got different bits")

    def test_an_error_beyond_the_bound_and_one_that_is_not_a_number(self):
        self.reports["reduce2/rank0.json"]["nmse"] = 0.2
        self.expect("2 ranks: NMSE 0.2 is above")
        self.reports["reduce2/rank0.json"]["nmse"] = float("nan")
        self.expect("2 ranks: NMSE nan is above")

    def test_a_plugin_that_was_not_loaded_or_not_used(self):
        self.reports["reduce2/rank1.json"]["totals"] = None
        self.expect("2 ranks: the plugin was not loaded")
        self.reports["reduce2/rank1.json"]["totals"] = dict(TOTALS, operations=0)
        self.expect("CollNet was not used")

    def test_sums_that_were_not_compressed(self):
        for name in ("reduce2/rank0.json", "reduce2/rank1.json"):
            self.reports[name].update(nmse=0.0, totals=dict(TOTALS, wire_bytes=8100))
        self.expect("nothing was compressed", "only 1.0 times fewer bytes")

    def test_a_log_without_the_plugins_name(self):
        self.log = "NCCL INFO Using network Socket\n"
        self.expect("does not name CGX")

    def test_a_rank_that_did_not_finish(self):
        del self.reports["reduce4/rank2.json"]
        self.expect("3 of 4 ranks finished")

    def test_trainings_that_differ_or_did_not_happen(self):
        self.reports["train_with/rank0.json"]["losses"] = [2.3] + [1.5] * 30
        self.expect("loss 1.2550 with, 1.0000 without")
        self.reports["train_with/rank0.json"]["losses"] = [2.3] + [float("nan")] * 30
        self.expect("loss nan with")
        del self.reports["train_without/rank1.json"]
        (self.folder / "train_without/rank1.json").unlink()
        self.expect("a training did not finish")


class Script(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run([HERE / "real_nccl.sh", *arguments], capture_output=True, text=True, check=False,
                              env=dict(os.environ, PATH=os.environ["PATH"]))

    def test_is_bash(self):
        subprocess.run(["bash", "-n", HERE / "real_nccl.sh"], check=True)

    def test_dry_run_says_what_it_would_start_and_what_is_missing(self):
        done = self.run_script("--dry-run", "--library", "/nowhere/libnccl-net-cgx.so", "--python", sys.executable)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for word in ("reduce2, first of 2 ranks", "reduce4, first of 4 ranks", "train_without", "NCCL_HOSTID=cgx-rank-0",
                     "NCCL_NET_PLUGIN=/nowhere/libnccl-net-cgx.so", "NCCL_COLLNET_ENABLE=1"):
            self.assertIn(word, done.stdout)
        without = done.stdout.split("train_without, first")[1].split("real_nccl:")[0]
        self.assertIn("NCCL_NET_PLUGIN=none", without)
        self.assertNotIn("CGX_MODE", without)
        last = done.stdout.splitlines()[-1]
        self.assertTrue(last.startswith("real_nccl: dry run; missing here: "), last)
        self.assertIn("/nowhere/libnccl-net-cgx.so", last)

    def test_a_real_run_without_what_it_needs_fails_in_one_line(self):
        done = self.run_script("--library", "/nowhere/libnccl-net-cgx.so")
        self.assertEqual(done.returncode, 1)
        self.assertTrue(done.stdout.startswith("real_nccl: FAIL: missing here: "), done.stdout)

    def test_wrong_usage(self):
        self.assertEqual(self.run_script("--what").returncode, 2)
        self.assertEqual(self.run_script("--python").returncode, 2)

    def test_gradients_are_read_without_numpy(self):
        folder = HERE.parent / "data/gradients/transformer/step0400"
        values = all_reduce.read_npy(folder / "rank0.npy")
        self.assertEqual(len(values), 196608)
        self.assertNotEqual(max(values), 0)
        with self.assertRaises(ValueError):
            all_reduce.read_npy(folder / "layers.json")


if __name__ == "__main__":
    unittest.main()
