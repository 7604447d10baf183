#!/usr/bin/env python3
"""One rank: all-reduces its gradients through torch.distributed as any job would, and writes what came out as JSON.
all_reduce.py GRADIENTS OUT [--backend nccl|gloo]; rank, world and address from the environment, as under torchrun."""
import argparse
import array
import ast
import ctypes
import hashlib
import json
import os
import pathlib
import time

REPEATS = 10


def read_npy(path):
    """A one-dimensional little-endian fp32 array of version 1; needs no numpy."""
    data = pathlib.Path(path).read_bytes()
    if data[:8] != b"\x93NUMPY\x01\x00":
        raise ValueError(f"{path}: not a version 1 .npy file")
    length = int.from_bytes(data[8:10], "little")
    header = ast.literal_eval(data[10:10 + length].decode())
    if header["descr"] != "<f4" or len(header["shape"]) != 1:
        raise ValueError(f"{path}: {header}, expected one dimension of <f4")
    return array.array("f", data[10 + length:])


class Totals(ctypes.Structure):
    """As include/cgx/observe.h."""
    _fields_ = [(name, ctypes.c_uint64) for name in ("operations", "input_bytes", "exact_bytes", "wire_bytes")]


def plugin_totals():
    """What the plugin that NCCL has loaded counted so far; None: it is not loaded."""
    try:
        library = ctypes.CDLL("libnccl-net-cgx.so", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None
    totals = Totals()
    library.cgxTotals.argtypes = [ctypes.POINTER(Totals), ctypes.c_size_t]
    if library.cgxTotals(ctypes.byref(totals), ctypes.sizeof(totals)) != 0:
        return None
    return {name: getattr(totals, name) for name, _ in Totals._fields_}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gradients", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--backend", default="nccl")
    options = parser.parse_args()
    import torch
    import torch.distributed as dist

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", 0) if options.backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(options.backend)

    inputs = [torch.tensor(read_npy(options.gradients / f"rank{r}.npy")) for r in range(ranks)]
    exact = torch.stack([x.double() for x in inputs]).sum(0)
    mine = inputs[rank].to(device)
    digests, worst, seconds = [], 0.0, []
    for _ in range(REPEATS):
        summed = mine.clone()
        start = time.monotonic()
        dist.all_reduce(summed)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.monotonic() - start)
        result = summed.cpu()
        digests.append(hashlib.sha256(bytes(result.view(torch.uint8).tolist())).hexdigest())
        error = (result.double() - exact).square().sum() / exact.square().sum()
        worst = max(worst, error.item())
    # A small one: exact by the plugin's rules, so it must be the very sum.
    small = torch.full((100,), float(rank + 1), device=device)
    dist.all_reduce(small)
    small_is_exact = bool((small.cpu() == ranks * (ranks + 1) / 2).all())

    totals = plugin_totals()
    report = {
        "rank": rank, "ranks": ranks, "elements": len(exact), "repeats": REPEATS, "nmse": worst, "digests": digests,
        "small_is_exact": small_is_exact, "seconds": sorted(seconds)[len(seconds) // 2], "totals": totals,
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if device.type == "cuda" else "none",
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else "none",
    }
    options.out.write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
