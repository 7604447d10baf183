#!/usr/bin/env bash
# Compares the codec with FBGEMM from PyPI, in an environment of its own below build/. That is some gigabytes (torch), so it is only made when
# CGX_BENCH_FBGEMM=1; the last figures are in docs/performance.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=build/bench-venv
if [[ ! -x $venv/bin/python ]]; then
  [[ ${CGX_BENCH_FBGEMM:-0} == 1 ]] || { echo "skipped: CGX_BENCH_FBGEMM=1 installs FBGEMM from PyPI below build/ and compares with it"; exit 0; }
  python3 -m venv $venv
  $venv/bin/pip install --quiet fbgemm-gpu-cpu==1.9.0 torch==2.14.1 numpy
fi
target=$(build/release/test/bench/codec_bench --benchmark_list_tests | sed -n 's|^encode/\([a-z0-9]*\)/.*|\1|p' | head -1)
$venv/bin/python test/bench/codec_fbgemm.py build/release/test/bench/codec_bench "$target" 2>/dev/null
