#!/usr/bin/env python3
"""All-reduces over links of a known speed: cgx compressed, cgx exact and MPI (where mpirun and mpicc are installed), in one run.

A star of network namespaces (star.py) stands for a cluster; line rate is what iperf3 moves over one of its links in the same run.
Root, iproute2 and iperf3 are needed; Debian packages for MPI: openmpi-bin libopenmpi-dev. Prints a table and the ratios that the
design asks for; --json FILE keeps the figures."""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import star as links

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BITS = {"cgx 4 bits": ["--bits", "4"], "cgx exact": ["--exact"]}
# Open MPI's own choice, its ring, segmented ring and Rabenseifner: the best of them counts.
MPI_ALGORITHMS = {"default": 0, "ring": 4, "segmented ring": 5, "rabenseifner": 6}


def run_cgx(star, options, dtype, flags, workers):
    """One `cgx perf` rank in each namespace; rank 0's rows."""
    environment = ["env"] + ([f"CGX_THREADS={workers}"] if workers else [])
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        processes = []
        for rank in range(star.ranks):
            words = environment + [str(options.cgx), "perf", "--rank", str(rank), "--nranks", str(star.ranks),
                                   "--root", f"{star.address(0)}:29400", "--sizes", options.sizes, "--dtype", dtype,
                                   "--iters", str(options.iters), "--warmup", "2", "--timeout", "30", "--json", out.name] + flags
            if options.plugin:
                words += ["--plugin", options.plugin]
            processes.append(star.popen(rank, words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        texts = [process.communicate()[0] for process in processes]
        if any(process.returncode for process in processes):
            raise RuntimeError("cgx perf failed:\n" + "".join(texts))
        return json.load(open(out.name))["results"]


def fastest(before, now):
    return now if before is None else [min(pair, key=lambda row: row["time_us"]) for pair in zip(before, now)]


def build_mpi(folder):
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        print("MPI: skipped, mpicc and mpirun are not installed (apt-get install openmpi-bin libopenmpi-dev)")
        return None
    binary = pathlib.Path(folder) / "mpi_allreduce"
    subprocess.run(["mpicc", "-O2", "-o", binary, ROOT / "test/bench/mpi_allreduce.c"], check=True)
    return binary


def run_mpi(star, options, binary, folder, sizes):
    """Microseconds by size, the best algorithm's, and its name. A namespace is a node: mpirun reaches it through an agent."""
    agent = pathlib.Path(folder) / "agent"
    # Nodes share this machine's /tmp but must not share a session directory.
    agent.write_text("#!/bin/sh\nhost=$1; shift\n"
                     f"mkdir -p {folder}/$host; export TMPDIR={folder}/$host\n"
                     f"exec ip netns exec {star.tag}r$((${{host##*.}} - 1)) sh -c \"$*\"\n")
    agent.chmod(0o755)
    hosts = ",".join(star.address(rank) + ":1" for rank in range(star.ranks))
    subnet = links.SUBNET + "0/24"
    best = {}
    for name, number in MPI_ALGORITHMS.items():
        choice = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", str(number)] if number else []
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(star.ranks), "--host", hosts, "--bind-to", "none",
                 "--mca", "plm_rsh_agent", str(agent), "--mca", "plm", "rsh", "--mca", "oob_tcp_if_include", subnet,
                 "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", subnet, "--mca", "pml", "ob1",
                 "--mca", "mpi_yield_when_idle", "1", *choice, str(binary), str(options.iters), *map(str, sizes)]
        done = subprocess.run(star.command(0, words), capture_output=True, text=True, timeout=options.mpi_timeout)
        if done.returncode:
            print(f"MPI {name}: failed: {done.stderr.strip()[:500]}")
            continue
        for line in done.stdout.splitlines():
            size, us = line.split()
            if int(size) not in best or float(us) < best[int(size)][0]:
                best[int(size)] = (float(us), name)
    return best


def measure(options, ranks, mbps, dtypes, folder, mpi):
    """One star: rows of (ranks, mbps, dtype, bytes, what, us, line-rate share)."""
    rows = []
    with links.Star(ranks, mbps) as star:
        line = star.goodput()
        print(f"\n{ranks} ranks, {mbps} Mb/s links: iperf3 moves {line * 8 / 1e6:.0f} Mb/s")
        print(f"{'type':>5} {'bytes':>11} {'what':<22} {'time (us)':>11} {'busbw (GB/s)':>12} {'of line rate':>12}")
        for dtype in dtypes:
            # The best of several runs, taken in turns: what else the machine does only ever makes a run slower.
            found = {}
            for _ in range(options.runs):
                for what, flags in BITS.items():
                    found[what] = fastest(found.get(what), run_cgx(star, options, dtype, flags, options.workers))
            sizes = [row["bytes"] for row in found["cgx exact"]]
            best = run_mpi(star, options, mpi, folder, sizes) if mpi else {}
            for i, size in enumerate(sizes):
                for what, results in found.items():
                    row = results[i]
                    # What the busiest rank sent, payload and our headers, over the time, against what iperf3 could have sent.
                    share = row["wire_bytes_per_rank"] / (row["time_us"] * 1e-6) / line if row["wire_bytes_per_rank"] else None
                    rows.append(dict(ranks=ranks, mbps=mbps, line_GBps=line * 1e-9, dtype=dtype, bytes=size, what=what, time_us=row["time_us"], share=share))
                if size in best:
                    rows.append(dict(ranks=ranks, mbps=mbps, line_GBps=line * 1e-9, dtype=dtype, bytes=size, what=f"MPI ({best[size][1]})",
                                     time_us=best[size][0], share=2 * (ranks - 1) / ranks * size / (best[size][0] * 1e-6) / line))
        for row in rows:
            busbw = row["bytes"] / row["time_us"] * 1e-3 * 2 * (ranks - 1) / ranks
            share = f"{row['share']:.3f}" if row["share"] else "-"
            print(f"{row['dtype']:>5} {row['bytes']:>11} {row['what']:<22} {row['time_us']:>11.0f} {busbw:>12.3f} {share:>12}")
    return rows


def judge(rows):
    """Ratios of messages of 16 MB and more; those that the design sets a figure for say whether it is reached."""
    verdicts = []

    def say(text, ratio, asked=None):
        verdicts.append(dict(what=text, ratio=ratio, asked=asked))
        word = "" if asked is None else "reached" if ratio >= asked else "SHORT"
        print(f"{word:<7} {ratio:6.2f} {f'of {asked:.2f}' if asked else '':<7}  {text}")

    print("\nratios (messages of 16 MB and more)")
    groups = {}
    for row in rows:
        groups.setdefault((row["mbps"], row["ranks"], row["dtype"], row["bytes"]), []).append(row)
    for (mbps, ranks, dtype, size), group in groups.items():
        if size < 16_000_000:
            continue
        ours = next(row for row in group if row["what"] == "cgx 4 bits")
        exact = next(row for row in group if row["what"] == "cgx exact")
        best = min((row for row in group if row is not ours), key=lambda row: row["time_us"])
        label = f"{ranks} ranks, {mbps} Mb/s, {dtype}, {size} bytes: "
        star = mbps == 1000 and ranks == 4  # the case that the design names; 8 ranks share two cores here
        if ours["share"]:
            say(label + "compressed bytes against iperf3's goodput", ours["share"], 0.93 if star else None)
        # 16-bit elements are half as long: 4 bits can gain at most 4 times.
        say(label + f"against the best uncompressed ({best['what']})", best["time_us"] / ours["time_us"],
            6.0 if star and dtype == "fp32" else None)
        say(label + "against exact mode", exact["time_us"] / ours["time_us"], 2.5 if mbps == 10000 and dtype == "fp32" else None)
    return verdicts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cgx", default=ROOT / "build/cgx", help="the tool")
    parser.add_argument("--plugin", default="", help="the plugin (default: next to the tool)")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--mbps", default="1000,10000", help="link speeds; at more than 1000 only 2 ranks run: two cores carry no more")
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--sizes", default="1M,16M,64M")
    parser.add_argument("--iters", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3, help="runs of cgx; the best counts (MPI: the best of four algorithms)")
    parser.add_argument("--workers", type=int, default=0, help="CGX_THREADS for each rank; 0: the plugin's choice")
    parser.add_argument("--no-mpi", action="store_true")
    parser.add_argument("--mpi-timeout", type=float, default=300)
    parser.add_argument("--json", help="file for the figures")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("network namespaces need root")
    if shutil.which("iperf3") is None:
        sys.exit("iperf3 is not installed (make deps-bench)")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        mpi = None if options.no_mpi else build_mpi(folder)
        for mbps in map(int, options.mbps.split(",")):
            for ranks in map(int, options.ranks.split(",")):
                if mbps <= 1000 or ranks == 2:
                    rows += measure(options, ranks, mbps, options.dtypes.split(","), folder, mpi)
    verdicts = judge(rows)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"rows": rows, "ratios": verdicts}, indent=2) + "\n")


if __name__ == "__main__":
    main()
