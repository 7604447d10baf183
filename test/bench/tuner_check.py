#!/usr/bin/env python3
"""The tuner's choice against the measured best one, by size: NCCL's way without us (a ring over our net half) and CollnetChain through
us, both as the NCCL stand-in drives them (allreduce_bench.cc), over a star of shaped links (star.py; root, iproute2) or, for --mbps 0,
over loopback; and `cgx plan --json` for the same ranks and link.

A choice is good when its time is at most 10 % above the better of the two. Prints a table; exit 1 when a choice is not good.
--json FILE keeps the figures."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import star as links

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WAYS = ("ring", "collnet")
WORST = 1.10


def parse_size(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def sizes_of(text):
    first, last, factor = text.split(":")
    size, sizes = parse_size(first), []
    while size <= parse_size(last):
        sizes.append(size)
        size *= int(factor.lstrip("x"))
    return sizes


def measure(options, way, ranks, prefix):
    """Microseconds by size: the median of one run."""
    command = [str(options.bench), str(options.library), "--way", way, "--ranks", str(ranks), "--channels", str(options.channels), "--tuned",
               "--dtype", options.dtype, "--rounds", str(options.rounds), "--sizes", ",".join(map(str, sizes_of(options.sizes)))]
    done = subprocess.run(command + (["--netns", prefix] if prefix else []), check=True, stdout=subprocess.PIPE, text=True)
    return {row["bytes"]: row["us"] for row in map(json.loads, done.stdout.splitlines())}


def plan(options, ranks, gigabits):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([str(options.cgx), "plan", "--ranks", str(ranks), "--link", f"{gigabits}G", "--bits", "4", "--sizes",
                        options.sizes, "--dtype", options.dtype, "--json", out.name], check=True, stdout=subprocess.DEVNULL)
        return json.load(open(out.name))


def medians(options, ranks, prefix):
    """Both ways in turns, so that what else the machine does meets both."""
    runs = [{way: measure(options, way, ranks, prefix) for way in WAYS} for _ in range(options.runs)]
    return {way: {size: statistics.median(run[way][size] for run in runs) for size in runs[0][way]} for way in WAYS}


def check(options, ranks, mbps):
    if mbps:
        with links.Star(ranks, mbps) as star:
            found = medians(options, ranks, star.namespace(""))
    else:
        found = medians(options, ranks, "")
    planned = plan(options, ranks, mbps / 1000 if mbps else options.loopback)
    where = f"{mbps} Mb/s" if mbps else f"loopback (planned as {options.loopback} Gb/s)"
    print(f"\n{ranks} ranks, {options.dtype}, {where}: crossover at {planned['crossover_bytes']}")
    print(f"{'bytes':>11} {'ring (us)':>11} {'ours (us)':>11} {'model: ring':>11} {'ours':>11} {'choice':>8} {'above best':>10}")
    rows = []
    for row in planned["results"]:
        size = row["bytes"]
        times = {way: found[way][size] for way in WAYS}
        chosen = "collnet" if row["collnet"] else "ring"
        excess = times[chosen] / min(times.values())
        rows.append(dict(ranks=ranks, mbps=mbps, dtype=options.dtype, bytes=size, ring_us=times["ring"], cgx_us=times["collnet"],
                         model_ring_us=row["ring_us"], model_cgx_us=row["cgx_us"], choice=chosen, excess=excess))
        print(f"{size:>11} {times['ring']:>11.0f} {times['collnet']:>11.0f} {row['ring_us']:>11.0f} {row['cgx_us']:>11.0f} {chosen:>8} "
              f"{excess:>10.2f}{'' if excess <= WORST else '  NOT GOOD'}", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cgx", default=ROOT / "build/cgx", help="the tool")
    parser.add_argument("--library", default=ROOT / "build/libnccl-net-cgx.so")
    parser.add_argument("--bench", default=ROOT / "build/release/test/bench/allreduce_bench")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--mbps", default="1000,0", help="link speeds; 0: loopback")
    parser.add_argument("--loopback", type=float, default=40, help="Gb/s that loopback is planned as: what the plugin reports for it")
    parser.add_argument("--sizes", default="4K:64M:x4")
    parser.add_argument("--dtype", default="fp16", help="fp16, which the tuner assumes, or fp32")
    parser.add_argument("--channels", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="all-reduces of each size in a run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", help="file for the figures")
    options = parser.parse_args()
    speeds = [int(text) for text in options.mbps.split(",")]
    if any(speeds) and os.geteuid() != 0:
        sys.exit("network namespaces need root")
    rows = [row for mbps in speeds for ranks in map(int, options.ranks.split(",")) for row in check(options, ranks, mbps)]
    bad = [row for row in rows if row["excess"] > WORST]
    print(f"\n{len(rows) - len(bad)} of {len(rows)} choices are within {100 * (WORST - 1):.0f} % of the better one")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
