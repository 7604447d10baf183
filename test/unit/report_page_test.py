#!/usr/bin/env python3
"""The page of `cgx report -o`, read by Python's own parsers: report_page_test.py CGX."""
import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

CGX = None
MOST = 2**64 - 1
VOID = {"meta"}
TILES = ("codedTiles", "zeroTiles", "rawTiles", "exactTiles", "wholeTiles")
SERIES = ("operations", "inputBytes", "exactBytes", "wireBytes", "encodeNs", "reduceNs", "decodeNs", "wireNs")


def statistics(rank, host="node", value=1000, samples=5):
    """A file as docs/statistics.md describes it. Sizes make up the whole."""
    sums = {name: value for name in SERIES}
    sums["encodeNs"] = value + rank
    sums.update(sampledTiles=value // 100, errorSquares=value * 0.03, valueSquares=value * 1.5)
    comm = dict(sums, id=0, rank=rank, ranks=4, bits=4, open=False, allReduces=value, allGathers=0, reduceScatters=0,
                smallOperations=value // 2, nonFiniteTiles=value // 200, messages=value, **{name: value // 10 for name in TILES})
    comm["sizes"] = [{"upToBytes": 4096, "operations": value // 4, "inputBytes": value // 4, "wireBytes": value // 8,
                      "ns": min(MOST, value // 4 * 1500)},
                     {"upToBytes": 0, "operations": value // 4, "inputBytes": value // 4, "wireBytes": value // 2,
                      "ns": min(MOST, value * 10)}]
    series = [dict({name: type(sum)(sum * k // samples) for name, sum in sums.items()}, milliseconds=1000 * k)
              for k in range(1, samples + 1)]
    return {"schema": "cgx-statistics", "version": 1, "cgx": "0.1.0", "host": host, "pid": 100 + rank, "rank": rank,
            "unixSeconds": 1000000000, "milliseconds": 1000 * samples, "sums": sums, "unlisted": 0,
            "communicators": [comm], "series": series}


class Balance(html.parser.HTMLParser):
    """Every element that begins ends, in order; what a browser would load or run is noted."""
    def __init__(self):
        super().__init__()
        self.open, self.faults, self.elements, self.styles = [], [], [], ""

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if len({name for name, _ in attrs}) != len(attrs):
            self.faults.append(f"an attribute twice in {tag}")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> ends nothing")

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.styles += data


class Page(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.page = self.folder / "page.html"

    def report(self, files, page=None):
        paths = []
        for number, content in enumerate(files):
            path = self.folder / f"{number}.json"
            path.write_text(json.dumps(content))
            paths.append(str(path))
        return subprocess.run([CGX, "report", *paths, "-o", str(page or self.page)], capture_output=True, text=True)

    def read(self, files):
        """The page as an XML tree, after everything that holds for every page has been checked."""
        done = self.report(files)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = self.page.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("<!DOCTYPE html>\n<html lang=\"en\">"))
        balance = Balance()
        balance.feed(text)
        balance.close()
        self.assertEqual(balance.faults, [])
        self.assertEqual(balance.open, [])
        for name, attributes in balance.elements:
            self.assertNotIn(name, {"script", "link", "img", "iframe", "object", "embed", "use", "image", "a", "base"})
            for attribute, value in attributes.items():
                self.assertFalse(attribute.startswith("on"), attribute)
                self.assertNotIn(attribute, {"src", "href", "style", "xlink:href", "http-equiv"})
                self.assertNotIn("url(", value or "")
        for loads in ("@import", "url(", "@font-face"):
            self.assertNotIn(loads, balance.styles)
        self.assertNotRegex(text, r"https?://")
        self.assertIn("prefers-color-scheme: dark", balance.styles)
        self.assertIn(("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}), balance.elements)
        tree = xml.fromstring(text)
        self.drawn_inside(tree)
        return tree

    def drawn_inside(self, tree):
        for svg in tree.iter("svg"):
            self.assertEqual(svg.get("role"), "img")
            self.assertTrue(svg.get("aria-label"))
            _, _, width, height = map(float, svg.get("viewBox").split())
            for path in svg.iter("path"):
                for x, y in re.findall(r"[ML](\S+?) (-?[\d.]+)", path.get("d")):
                    self.assertTrue(0 <= float(x) <= width and 0 <= float(y) <= height, path.get("d"))
                self.assertRegex(path.get("d"), r"^[MLhZ0-9. -]*$")  # no nan, no inf
            for rect in svg.iter("rect"):
                x, y, w, h = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
                self.assertTrue(x >= 0 and y >= 0 and w >= 0 and h >= 0 and x + w <= width + 1 and y + h <= height + 1)

    def table(self, tree, title):
        section = next(s for s in tree.iter("section") if s.find("h2").text.startswith(title))
        rows = [["".join(cell.itertext()) for cell in row] for row in section.iter("tr")]
        return [dict(zip(rows[0], row)) for row in rows[1:]], section

    def test_numbers_are_those_of_the_files(self):
        tree = self.read([statistics(rank) for rank in range(4)])
        sizes, section = self.table(tree, "All-reduces by size")
        self.assertEqual(sizes[0], {"at most": "4K", "calls": "1,000", "in": "1 kB", "on the wire": "500 B",
                                    "ratio": f"{1.5 * 1000 / 500:.2f}", "mean time": "1.5 us"})
        self.assertEqual(sizes[1]["at most"], "above")
        self.assertEqual(len(list(section.iter("svg"))), 2)
        ranks, section = self.table(tree, "By rank")
        self.assertEqual([row["rank"] for row in ranks], ["0", "1", "2", "3"])
        self.assertEqual([row.get("class") for row in section.iter("tr")], [None, None, None, None, "marked"])  # slowest
        self.assertEqual(ranks[0]["raw tiles"], "0")  # all of them are in exact operations
        tiles, _ = self.table(tree, "Tiles")
        self.assertEqual([(row["tiles"], row["number"]) for row in tiles],
                         [("coded", "400"), ("zero", "400"), ("exact", "400"), ("not finite", "0"), ("too wide", "0"),
                          ("whole", "400")])
        self.assertEqual(tiles[0]["share"], "25.00 %")
        self.assertEqual([row["NMSE"] for row in ranks], ["2.00e-02"] * 4)
        self.assertIn("2001-09-09 01:46 UTC", "".join(tree.itertext()))

    def test_raw_tiles_have_their_reason(self):
        file = statistics(0)
        file["communicators"][0].update(rawTiles=120, exactTiles=100, nonFiniteTiles=15)
        tiles, section = self.table(self.read([file]), "Tiles")
        self.assertEqual([(row["tiles"], row["number"]) for row in tiles[2:5]],
                         [("exact", "100"), ("not finite", "15"), ("too wide", "5")])
        self.assertEqual([row.get("class") for row in section.iter("tr")][4], "marked")

    def test_plots_over_the_run_have_a_point_for_each_sample(self):
        tree = self.read([statistics(rank, samples=7) for rank in range(2)])
        _, section = self.table(tree, "Over the run")
        for svg in section.iter("svg"):
            for line in (p for p in svg.iter("path") if p.get("class").startswith("line")):
                self.assertEqual(len(re.findall("[ML]", line.get("d"))), 7)
        titles = [t.text for svg in section.iter("svg") for t in svg.iter("title")]
        self.assertIn("middle rank: 1", titles)

    def test_one_moment_is_no_plot(self):
        _, section = self.table(self.read([statistics(0, samples=1)]), "Over the run")
        self.assertEqual(list(section.iter("svg")), [])
        self.assertIn("CGX_STATS_INTERVAL", "".join(section.itertext()))

    def test_what_files_say_is_text_and_never_markup(self):
        evil = "</td></style><script>alert(1)</script>\"'&<!-- ]]> \u0000\u202e\x1b[2J"
        tree = self.read([statistics(0, host=evil), statistics(1, host="&amp;")])
        ranks, _ = self.table(tree, "By rank")
        self.assertTrue(ranks[0]["host"].startswith("</td></style><script>alert(1)</script>\"'&<!-- ]]> ?"))
        self.assertEqual(ranks[1]["host"], "&amp;")
        self.read([statistics(0, host="x" * 100_000)])
        self.assertLess(self.page.stat().st_size, 100_000)

    def test_extreme_numbers_still_make_a_page(self):
        nothing = statistics(0, value=0)
        nothing["communicators"], nothing["series"], nothing["milliseconds"] = [], [], 0
        self.read([nothing])
        most = statistics(0, value=MOST - 1)
        most["unixSeconds"] = most["milliseconds"] = most["rank"] = most["unlisted"] = MOST
        most["communicators"][0]["ranks"] = MOST
        tree = self.read([most, statistics(1, value=0)])
        self.assertIn("no longer listed", "".join(tree.itertext()))

    def test_many_ranks_are_all_in_the_table_and_the_slowest_in_the_plots(self):
        tree = self.read([statistics(rank, samples=2) for rank in range(40)])
        ranks, section = self.table(tree, "By rank")
        self.assertEqual(len(ranks), 40)
        codec = next(section.iter("svg"))
        names = [text.text for text in codec.iter("text") if text.text.startswith("rank ")]
        self.assertEqual(names, [f"rank {k}" for k in range(8, 40)])

    def test_many_samples_stay_a_small_page(self):
        self.read([statistics(rank, value=10**12, samples=512) for rank in range(8)])
        self.assertLess(self.page.stat().st_size, 120_000)

    def test_the_page_replaces_and_never_follows(self):
        target = self.folder / "precious"
        target.write_text("precious")
        self.page.symlink_to(target)
        self.read([statistics(0)])
        self.assertFalse(self.page.is_symlink())
        self.assertEqual(target.read_text(), "precious")
        self.assertEqual(sorted(os.listdir(self.folder)), ["0.json", "page.html", "precious"])

    def test_what_cannot_be_written_is_said_and_nothing_is_lost(self):
        own = self.report([statistics(0)], self.folder / "0.json")
        self.assertEqual(own.returncode, 2)
        self.assertIn("0.json: is one of the statistics files", own.stderr)
        json.loads((self.folder / "0.json").read_text())
        for page, why in ((self.folder, "is a folder"), (self.folder / "none" / "p.html", "No such file")):
            done = self.report([statistics(0)], page)
            self.assertEqual(done.returncode, 2)
            self.assertIn(why, done.stderr)
        self.assertEqual(os.listdir(self.folder), ["0.json"])
        bad = statistics(0)
        bad["series"][2]["wireBytes"] = 1
        done = self.report([bad])
        self.assertEqual(done.returncode, 2)
        self.assertIn("0.json: series[2].wireBytes is less than before", done.stderr)
        self.assertFalse(self.page.exists())


if __name__ == "__main__":
    CGX = sys.argv.pop(1)
    unittest.main()
