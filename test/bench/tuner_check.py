#!/usr/bin/env python3
"""The tuner's choice against the measured best one, by size: `cgx perf` in exact mode and with 4 bits over a star of shaped links
(star.py; root, iproute2) or, for --mbps 0, over loopback; and `cgx plan --json` for the same ranks and link.

Our own collnet in exact mode stands for NCCL's ring, which cannot run here. A choice is good when its time is at most 10 % above
the better of the two. Prints a table; exit 1 when a choice is not good. --json FILE keeps the figures."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import star as links

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WAYS = {"exact": ["--exact"], "4 bits": ["--bits", "4"]}
WORST = 1.10


def perf(options, star, ranks, flags):
    """Microseconds by size."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        common = [str(options.cgx), "perf", "--sizes", options.sizes, "--dtype", options.dtype, "--iters", str(options.iters),
                  "--warmup", "2", "--json", out.name, *flags]
        if star is None:
            subprocess.run([*common, "--ranks", str(ranks)], check=True, stdout=subprocess.DEVNULL)
        else:
            running = [star.popen(rank, [*common, "--rank", str(rank), "--nranks", str(ranks), "--root",
                                         f"{star.address(0)}:29400"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                       for rank in range(ranks)]
            texts = [process.communicate()[0] for process in running]
            if any(process.returncode for process in running):
                raise RuntimeError("cgx perf failed:\n" + "".join(texts))
        return {row["bytes"]: row["time_us"] for row in json.load(open(out.name))["results"]}


def plan(options, ranks, gigabits):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([str(options.cgx), "plan", "--ranks", str(ranks), "--link", f"{gigabits}G", "--bits", "4", "--sizes",
                        options.sizes, "--dtype", options.dtype, "--json", out.name], check=True, stdout=subprocess.DEVNULL)
        return json.load(open(out.name))


def best_of(options, star, ranks):
    """The quickest of several runs, taken in turns: what else the machine does only ever makes a run slower."""
    found = {}
    for _ in range(options.runs):
        for way, flags in WAYS.items():
            times = perf(options, star, ranks, flags)
            found[way] = {size: min(us, found.get(way, times)[size]) for size, us in times.items()}
    return found


def check(options, ranks, mbps):
    if mbps:
        with links.Star(ranks, mbps) as star:
            found = best_of(options, star, ranks)
    else:
        found = best_of(options, None, ranks)
    planned = plan(options, ranks, mbps / 1000 if mbps else options.loopback)
    where = f"{mbps} Mb/s" if mbps else f"loopback (planned as {options.loopback} Gb/s)"
    print(f"\n{ranks} ranks, {where}: crossover at {planned['crossover_bytes']}")
    print(f"{'bytes':>11} {'exact (us)':>11} {'4 bits (us)':>11} {'model (us)':>11} {'choice':>8} {'above best':>10}")
    rows = []
    for row in planned["results"]:
        size = row["bytes"]
        times = {way: found[way][size] for way in WAYS}
        chosen = "4 bits" if row["collnet"] else "exact"
        excess = times[chosen] / min(times.values())
        rows.append(dict(ranks=ranks, mbps=mbps, bytes=size, exact_us=times["exact"], coded_us=times["4 bits"],
                         model_us=row["cgx_us"], ring_us=row["ring_us"], tree_us=row["tree_us"], choice=chosen, excess=excess))
        print(f"{size:>11} {times['exact']:>11.0f} {times['4 bits']:>11.0f} {row['cgx_us']:>11.0f} {chosen:>8} {excess:>10.2f}"
              f"{'' if excess <= WORST else '  NOT GOOD'}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cgx", default=ROOT / "build/cgx", help="the tool")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--mbps", default="1000,0", help="link speeds; 0: loopback")
    parser.add_argument("--loopback", type=float, default=10, help="Gb/s that loopback is planned as")
    parser.add_argument("--sizes", default="4K:64M:x4")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--iters", type=int, default=5)
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
