#!/usr/bin/env python3
"""apply.sh on sources that it must take and on such that it must refuse. apply_test.py PATCHES
CGX_NCCL_TESTS_SRC: a checkout of NVIDIA/nccl-tests; without it the case that needs one is skipped."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

PATCHES = pathlib.Path(sys.argv[1]).resolve()
HEADERS = {"cgx_bound.h", "cgx_gradients.h", "cgx_options.h", "cgx_wire.h"}

# A program of ours with the lines that the patches look for, in their order; none of nccl-tests' code.
SKELETON = """// a stand-in
#include "../verifiable/verifiable.h"
testResult_t InitData(int) {
  return 0;
}
void check() {
  TESTCHECK(CheckDelta(1));
}
testResult_t TimeTest(int) {
  TESTCHECK(BenchTime(args, type, op, root, 0));
  TESTCHECK(BenchTime(args, type, op, root, 1));
}
int main(int argc, char* argv[]) {
}
"""


def apply(directory):
    return subprocess.run([PATCHES / "apply.sh", directory], capture_output=True, text=True, check=False)


def files(directory):
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


class Apply(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.dir = pathlib.Path(self.folder.name) / "nccl-tests"

    def sources(self, version="2.18.3", text=SKELETON):
        for name in ("src", "verifiable"):
            (self.dir / name).mkdir(parents=True)
        (self.dir / "src/common.cu").write_text(text)
        (self.dir / "src/common.h").write_text(f'#define NCCL_TESTS_VERSION "{version}"\n' if version else "\n")
        (self.dir / "src/all_reduce.cu").touch()
        (self.dir / "verifiable/verifiable.h").touch()

    def refused(self, *words):
        before = files(self.dir) if self.dir.exists() else None
        done = apply(self.dir)
        self.assertNotEqual(done.returncode, 0)
        for word in words:
            self.assertIn(word, done.stderr)
        if before is not None:
            self.assertEqual(files(self.dir), before)

    def additions_only(self, before, after):
        """Each old line in its order; returns the new ones with the line before each."""
        rest, added, previous = before.splitlines(), [], None
        for line in after.splitlines():
            if rest and line == rest[0]:
                previous = rest.pop(0)
            else:
                added.append((previous.strip(), line.strip()))
        self.assertEqual(rest, [])
        return added

    def test_it_adds_lines_after_the_places_that_it_names_and_nothing_else(self):
        self.sources()
        done = apply(self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("nccl-tests 2.18.3", done.stdout)
        self.assertIn("make -C", done.stdout)
        added = self.additions_only(SKELETON, (self.dir / "src/common.cu").read_text())
        self.assertEqual(len(added), 11)
        after = {line: place for place, line in added}
        self.assertEqual(after["cgx::parseOptions(&argc, argv);"], "int main(int argc, char* argv[]) {")
        self.assertEqual(after["cgx::WireColumn::instance().endRow(is_main_thread);"],
                         "TESTCHECK(BenchTime(args, type, op, root, 1));")
        self.assertEqual(after["cgx::lastSeed() = seed;"], "testResult_t InitData(int) {")
        self.assertEqual({name.name for name in (self.dir / "src").glob("cgx_*")}, HEADERS)

    def test_a_second_time_changes_nothing_and_says_so(self):
        self.sources()
        apply(self.dir)
        before = files(self.dir)
        done = apply(self.dir)
        self.assertEqual(done.returncode, 0)
        self.assertIn("already", done.stdout)
        self.assertEqual(files(self.dir), before)

    def test_it_works_inside_a_repository_and_from_anywhere(self):
        self.sources("2.19.6")
        subprocess.run(["git", "init", "-q", self.folder.name], check=True)
        done = subprocess.run([PATCHES / "apply.sh", "nccl-tests"], cwd=self.folder.name, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("cgx_bound.h", (self.dir / "src/common.cu").read_text())

    def test_a_directory_that_is_none_or_holds_something_else_is_refused(self):
        self.refused("no such directory")
        self.dir.mkdir()
        self.refused("holds no nccl-tests sources", "src/common.cu")

    def test_versions_that_nobody_tried_are_refused(self):
        self.sources("2.20.0")
        self.refused("2.20.0", "2.17 to 2.19")

    def test_sources_without_a_version_are_refused(self):
        self.sources(None)
        self.refused("cannot tell the version")

    def test_sources_that_lack_a_place_are_left_as_they_are(self):
        self.sources(text=SKELETON.replace("CheckDelta", "CheckOther"))
        self.refused("no line holds: TESTCHECK(CheckDelta(", "nothing changed")

    def test_a_place_that_is_there_twice_is_refused(self):
        self.sources(text=SKELETON + "testResult_t TimeTest(long) {}\n")
        self.refused("both hold: testResult_t TimeTest(", "nothing changed")

    def test_no_argument_is_a_matter_of_usage(self):
        done = subprocess.run([PATCHES / "apply.sh"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage", done.stderr)

    @unittest.skipUnless(os.environ.get("CGX_NCCL_TESTS_SRC"), "CGX_NCCL_TESTS_SRC names no checkout of nccl-tests")
    def test_a_real_checkout_takes_them(self):
        shutil.copytree(os.environ["CGX_NCCL_TESTS_SRC"], self.dir, ignore=shutil.ignore_patterns(".git", "build"))
        before = (self.dir / "src/common.cu").read_text()
        if "cgx_bound.h" in before:
            self.skipTest("CGX_NCCL_TESTS_SRC is patched already")
        done = apply(self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.additions_only(before, (self.dir / "src/common.cu").read_text())), 11)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
