"""Trains a small model with PyTorch on all GPUs of a job (or on its CPUs), and goes on from its last checkpoint.

Start it with torchrun, or with srun and one task for each GPU:

    srun --ntasks-per-node=1 torchrun ... train.py --checkpoints ~/my-run
    srun --ntasks-per-node=8 python3 train.py --checkpoints ~/my-run

Run it again with the same folder, and it goes on where the last checkpoint was. Copy it, and put your model in place of
the small one: distributed start, checkpoints and the order of data are what a real program needs as well.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES, HIDDEN, BATCH = 32, 256, 256


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small model, with checkpoints.")
    parser.add_argument("--steps", type=int, default=200, help="steps in all, those before a checkpoint included")
    parser.add_argument("--checkpoints", type=Path, help="folder on a shared file system; without it none are written")
    parser.add_argument("--every", type=int, default=20, metavar="STEPS", help="steps from one checkpoint to the next")
    parser.add_argument(
        "--pause", type=float, default=0, metavar="SECONDS", help="wait after each step: a slower model"
    )
    return parser.parse_args()


def place() -> tuple[int, int, int]:
    """Return rank, number of processes and rank on this node, as set by torchrun, else by Slurm."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if "RANK" not in os.environ:
        names = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")
    defaults = dict(zip(names, ("0", "1", "0"), strict=True))
    rank, world, local = (int(os.environ.get(name, default)) for name, default in defaults.items())
    return rank, world, local


def batch(step: int, rank: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets of one step, the same at each call, as from a sampler with a seed."""
    random = torch.Generator().manual_seed(1_000_003 * step + rank)
    x = torch.randn(BATCH, FEATURES, generator=random)
    y = torch.sin(x[:, :4]).sum(1, keepdim=True) + x[:, 4:5] * x[:, 5:6]
    return x.to(device), y.to(device)


def save(folder: Path, state: dict[str, object]) -> None:
    """Write a checkpoint atomically: a job that is killed meanwhile leaves the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".checkpoint.pt.{os.environ.get('SLURM_JOB_ID', os.getpid())}"
    with part.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(folder / "checkpoint.pt")


def main() -> None:
    arguments = options()
    rank, world, local = place()
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", local % torch.cuda.device_count()) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(local)}
    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500")):
        os.environ.setdefault(name, value)
    dist.init_process_group("nccl" if gpu else "gloo")

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1)).to(device)
    model = DistributedDataParallel(plain, device_ids=[device.index] if gpu else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    first = 0
    file = arguments.checkpoints / "checkpoint.pt" if arguments.checkpoints else None
    if file and file.exists():
        found = torch.load(file, map_location=device, weights_only=True)
        plain.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        first = found["step"]

    nodes: list[str | None] = [None] * world
    dist.all_gather_object(nodes, socket.gethostname())
    if rank == 0:
        how = f"{world} processes on {' '.join(sorted(set(map(str, nodes))))}, {dist.get_backend()}"
        print(f"start at step {first} of {arguments.steps}: {how}", flush=True)

    for step in range(first + 1, arguments.steps + 1):
        x, y = batch(step, rank, device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step} loss {mean.item() / world:.6f}", flush=True)
            if arguments.checkpoints and (step % arguments.every == 0 or step == arguments.steps):
                state = {"step": step, "model": plain.state_dict(), "optimizer": optimizer.state_dict()}
                save(arguments.checkpoints, state)
                print(f"checkpoint at step {step}", flush=True)
        time.sleep(arguments.pause)
    if rank == 0:
        print(f"done: {arguments.steps} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
