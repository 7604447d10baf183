#!/usr/bin/env python3
"""Judges what the ranks of real_nccl.sh wrote, and prints the one summary line. verdict.py FOLDER; exit 1: something is wrong.
FOLDER: reduce2/, reduce4/ (rank<k>.json and NCCL's logs nccl.*), train_with/, train_without/ (rank<k>.json)."""
import json
import pathlib
import sys

MOST_NMSE = 0.055  # twice the codec's figure for this set at 4 bits, stochastic (docs/codec.md)
LEAST_RATIO = 5    # 4.33 wire bits for each of 32 at best, headers and the exact small one aside
MOST_LOSS_OFF = 0.05
LAST = 20          # steps whose mean loss is compared


def reports(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank*.json"))]


def judge_reduce(folder, ranks):
    """(what is wrong, what to print)"""
    found = reports(folder)
    if len(found) != ranks:
        return [f"{len(found)} of {ranks} ranks finished"], ""
    wrong = []
    if any(r["digests"] != found[0]["digests"] for r in found):
        wrong.append("ranks got different bits")
    worst = max(r["nmse"] for r in found)
    if not worst <= MOST_NMSE:
        wrong.append(f"NMSE {worst:.2g} is above {MOST_NMSE}")
    if worst == 0:
        wrong.append("NMSE is 0: nothing was compressed")
    if not all(r["small_is_exact"] for r in found):
        wrong.append("a small all-reduce was not exact")
    logs = "".join(path.read_text(errors="replace") for path in sorted(folder.glob("nccl.*")))
    if "CGX" not in logs:
        wrong.append("NCCL's log does not name CGX")
    exact = sum(r["totals"]["exact_bytes"] for r in found if r["totals"])
    wire = sum(r["totals"]["wire_bytes"] for r in found if r["totals"])
    if not all(r["totals"] for r in found):
        wrong.append("the plugin was not loaded")
    elif any(r["totals"]["operations"] < 1 for r in found):
        wrong.append("the plugin was loaded, but CollNet was not used")
    ratio = exact / wire if wire else 0
    if exact and ratio < LEAST_RATIO:
        wrong.append(f"only {ratio:.1f} times fewer bytes")
    return wrong, f"{ranks} ranks: {ratio:.1f}x fewer bytes, NMSE {worst:.2g}, {found[0]['seconds'] * 1e3:.1f} ms"


def judge_training(folder):
    with_it, without = reports(folder / "train_with"), reports(folder / "train_without")
    if not with_it or len(with_it) != len(without):
        return ["a training did not finish"], ""
    wrong = []
    if not all(r["replicas_equal"] for r in with_it):
        wrong.append("replicas differ after training")
    if not all(r["totals"] and r["totals"]["operations"] for r in with_it):
        wrong.append("training did not use the plugin")
    if any(r["totals"] for r in without):
        wrong.append("the comparison run loaded the plugin")

    def end(runs):
        return sum(sum(r["losses"][-LAST:]) / LAST for r in runs) / len(runs)

    def start(runs):
        return sum(r["losses"][0] for r in runs) / len(runs)

    if not end(without) < 0.8 * start(without):
        wrong.append("the comparison run learned nothing")
    if not end(with_it) <= (1 + MOST_LOSS_OFF) * end(without):
        wrong.append(f"loss {end(with_it):.4f} with, {end(without):.4f} without")
    return wrong, f"DDP loss {end(with_it):.4f} with, {end(without):.4f} without"


def main():
    folder = pathlib.Path(sys.argv[1])
    wrong, said = [], []
    for ranks in (2, 4):
        bad, text = judge_reduce(folder / f"reduce{ranks}", ranks)
        wrong += [f"{ranks} ranks: {b}" for b in bad]
        said += [text] if text else []
    bad, text = judge_training(folder)
    wrong += bad
    said += [text] if text else []
    first = next(iter(reports(folder / "reduce2")), {"nccl": "?", "torch": "?", "gpu": "?"})
    head = f"NCCL {first['nccl']}, PyTorch {first['torch']}, {first['gpu']}"
    print(f"real_nccl: {'FAIL: ' + '; '.join(wrong) if wrong else 'PASS'} ({'; '.join([head, *said])})")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
