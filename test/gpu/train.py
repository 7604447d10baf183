#!/usr/bin/env python3
"""One rank of a short DDP training that is the same each time but for the all-reduce; writes its losses as JSON.
train.py OUT [--steps N] [--backend nccl|gloo]"""
import argparse
import json
import os
import pathlib


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--backend", default="nccl")
    options = parser.parse_args()
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from all_reduce import plugin_totals

    rank = int(os.environ["RANK"])
    device = torch.device("cuda", 0) if options.backend == "nccl" else torch.device("cpu")
    dist.init_process_group(options.backend)
    torch.manual_seed(1)  # the same model on every rank and in every run
    width = 256
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.GELU(), torch.nn.Linear(width, width), torch.nn.GELU(),
                                torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.Linear(width, 10)).to(device)
    teacher = torch.randn(64, 10, generator=torch.Generator().manual_seed(2)).to(device)
    model = DistributedDataParallel(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.Generator().manual_seed(100 + rank)  # each rank its own
    losses = []
    for _ in range(options.steps):
        x = torch.randn(256, 64, generator=data).to(device)
        target = (x @ teacher + torch.sin(3 * x[:, :10])).argmax(1)
        loss = torch.nn.functional.cross_entropy(model(x), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    weights = torch.cat([p.detach().flatten() for p in model.parameters()]).double()
    everybody = [torch.zeros_like(weights) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, weights)
    report = {"rank": rank, "losses": losses, "replicas_equal": all(bool((w == weights).all()) for w in everybody),
              "totals": plugin_totals()}
    options.out.write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
