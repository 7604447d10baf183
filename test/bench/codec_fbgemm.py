#!/usr/bin/env python3
"""The codec's encoding next to FBGEMM's FusedNBitRowwise (4 bits, rows of 512), one core, both in one run, taking turns.

Needs torch and fbgemm-gpu-cpu in the interpreter that runs it (codec_fbgemm.sh makes one). Prints markdown rows for docs/performance.md.
"""
import json
import subprocess
import sys
import time

import torch
import fbgemm_gpu  # noqa: F401  registers torch.ops.fbgemm

ROUNDS = 5
SIZES = [("256KiB", 256 << 10), ("1MiB", 1 << 20), ("4MiB", 4 << 20), ("256MiB", 256 << 20)]


def best(seconds, call):
    """Shortest time of one call, over `seconds` of calls: on a shared machine the best is what the code can do."""
    end = time.perf_counter() + seconds
    shortest = float("inf")
    while True:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        shortest = min(shortest, now - start)
        if now > end:
            return shortest


def fbgemm(size):
    """The faster of the two ways in: fbgemm_gpu's operator, and torch's, which calls the FBGEMM that torch is built with."""
    x = torch.randn(size // 4 // 512, 512)
    ways = [lambda: torch.ops.fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf(x, 4), lambda: torch.ops.quantized.embedding_bag_4bit_prepack(x)]
    return max(size / best(0.2, way) / 1e9 for way in ways)


def ours(bench, name):
    out = subprocess.run(
        [bench, f"--benchmark_filter=^{name}$", "--benchmark_format=json", "--benchmark_min_time=0.02", "--benchmark_repetitions=15"],
        capture_output=True, text=True, check=True).stdout
    rates = [b["bytes_per_second"] for b in json.loads(out)["benchmarks"] if b["run_type"] == "iteration"]
    return max(rates) / 1e9


def main():
    bench, target = sys.argv[1], sys.argv[2]
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, fbgemm_gpu {fbgemm_gpu.__version__}, target {target}, GB/s of fp32, best of {ROUNDS} rounds")
    print("| size | FBGEMM | nearest | ratio | stochastic | ratio | nearest + clear |\n|---|---|---|---|---|---|---|")
    for label, size in SIZES:
        rates = [0.0] * 4
        for _ in range(ROUNDS):
            usual = f"{target}/f32/4bit"
            now = [fbgemm(size), ours(bench, f"encode/{usual}/nearest/{label}"), ours(bench, f"encode/{usual}/stochastic/{label}"),
                   ours(bench, f"encode.clear/{usual}/nearest/{label}")]
            rates = [max(a, b) for a, b in zip(rates, now)]
        theirs, nearest, stochastic, clear = rates
        print(f"| {label} | {theirs:.1f} | {nearest:.1f} | {nearest / theirs:.2f} | {stochastic:.1f} | {stochastic / theirs:.2f} | {clear:.1f} |",
              flush=True)


main()
