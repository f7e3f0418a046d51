"""Time and memory of attention, from 128 to 65,536 positions.

    python benchmarks/attention.py

compares, in one run and one head of 64 features, the explicit operator, the same with
`torch.softmax` for its softargmax, `chunked_attention` and PyTorch's fused kernel, forward alone and
forward with backward; then whole layers in training. It prints the table and writes attention.json
beside this file, which the chapter on efficiency draws.

All run on one core, and what is measured is processor time, so that other programs on the machine
count little. The implementations take turns; of the rounds the shortest counts. What the core can do
at best, its rate of multiplication and of copying, is measured in the same run. Peak memory is the
resident memory that a fresh process gains in one call. Linux only.
"""

import argparse
import json
import math
import platform
import statistics
import time
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from attncourse import MultiHeadAttention, attention, chunked_attention


def with_torch_softmax(query, key, value):
    """The explicit operator, with the softargmax in one function of compiled code."""
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), dim=-1) @ value


OPERATORS = {
    "explicit": attention,
    "torch.softmax": with_torch_softmax,
    "chunked": chunked_attention,
    "fused": F.scaled_dot_product_attention,
}
PASSES = ("forward", "backward")  # the second is a forward pass and a backward pass
FEATURES = 64
# These hold several matrices of N x N numbers: 8 GB and more for 32,768 positions.
WHOLE_MATRIX, WHOLE_MATRIX_UP_TO = ("explicit", "torch.softmax"), 16_384
LAYERS = ((16, 128), (4, 512), (1, 2048))  # batch, positions
MODEL_DIM, NUM_HEADS = 512, 8


def inputs_of(num_positions, backward):
    generator = torch.Generator().manual_seed(0)
    # The fused kernel is there for (batch, heads, positions, features) only.
    shape = (1, 1, num_positions, FEATURES)
    return [torch.randn(shape, generator=generator, requires_grad=backward) for _ in range(3)]


def call(operator, inputs):
    output = operator(*inputs)
    if output.requires_grad:
        torch.autograd.grad(output, inputs, torch.ones_like(output))


def take_turns(calls, seconds, most_rounds=30):
    """Call each in turn, again and again until the time is spent; return every call's durations."""
    durations = {name: [] for name in calls}
    start = time.process_time()
    while True:
        for name, function in calls.items():
            begin = time.process_time()
            function()
            durations[name].append(time.process_time() - begin)
        rounds = len(durations[name])
        if rounds >= most_rounds or (time.process_time() - start) * (rounds + 1) / rounds > seconds:
            return durations


def in_memory(what):
    """VmRSS, what is resident now, or VmHWM, the most that ever was, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what + ":"))


def peak_memory(name, num_positions, which):
    """How much memory one call needs beside its inputs; run in a process of its own."""
    backward = which == "backward"
    torch.set_num_threads(1)
    call(OPERATORS[name], inputs_of(64, backward))  # loads the libraries
    inputs = inputs_of(num_positions, backward)
    before = in_memory("VmRSS")
    call(OPERATORS[name], inputs)
    return max(in_memory("VmHWM") - before, 0)


def measure_operators(largest, seconds):
    rows = []
    with get_context("spawn").Pool(1, maxtasksperchild=1) as fresh_processes:
        num_positions = 128
        while num_positions <= largest:
            names = [n for n in OPERATORS if n not in WHOLE_MATRIX or num_positions <= WHOLE_MATRIX_UP_TO]
            for which in PASSES:
                inputs = inputs_of(num_positions, which == "backward")
                calls = {name: lambda f=OPERATORS[name], x=inputs: call(f, x) for name in names}
                durations = take_turns(calls, seconds)
                for name in names:
                    row = {
                        "operator": name,
                        "pass": which,
                        "positions": num_positions,
                        "seconds": min(durations[name]),
                        "median": statistics.median(durations[name]),
                        "rounds": len(durations[name]),
                        "bytes": fresh_processes.apply(peak_memory, (name, num_positions, which)),
                    }
                    rows.append(row)
                report(rows[-len(names) :])
            num_positions *= 2
    return rows


def report(rows):
    """Print rows of one size, as ratios to the fused kernel."""
    fused = rows[-1]
    for row in rows:
        print(
            f"{row['positions']:6} {row['pass']:9} {row['operator']:13}"
            f"{1e3 * row['seconds']:10.2f} ms {row['seconds'] / fused['seconds']:6.2f} x fused"
            f"{row['bytes'] / 2**20:9.1f} MiB  ({row['rounds']} rounds)",
            flush=True,
        )


def measure_layers(seconds):
    """A training step, forward and backward, of our layer and PyTorch's with the same weights."""
    rows = []
    for batch, num_positions in LAYERS:
        torch.manual_seed(0)
        theirs = nn.MultiheadAttention(MODEL_DIM, NUM_HEADS, batch_first=True).train()
        ours = MultiHeadAttention.from_torch(theirs)
        x = torch.randn(batch, num_positions, MODEL_DIM, requires_grad=True)
        layers = {
            "nn.MultiheadAttention": lambda x=x, layer=theirs: layer(x, x, x)[0],
            "nn.MultiheadAttention, no weights": lambda x=x, layer=theirs: layer(x, x, x, need_weights=False)[
                0
            ],
            "MultiHeadAttention, weights": lambda x=x, layer=ours: layer(x, return_weights=True)[0],
            "MultiHeadAttention": lambda x=x, layer=ours: layer(x),
        }
        calls = {name: lambda f=f: f().sum().backward() for name, f in layers.items()}
        durations = take_turns(calls, seconds)
        for name in layers:
            row = {"layer": name, "batch": batch, "positions": num_positions}
            row |= {"seconds": min(durations[name]), "rounds": len(durations[name])}
            rows.append(row)
            ratio = row["seconds"] / min(durations["nn.MultiheadAttention"])
            print(f"batch {batch:2}, {num_positions:4} positions: {name:34}{ratio:5.2f}", flush=True)
    return rows


def measure_limits():
    """Multiplications and additions per second, and bytes read and written per second, at best."""
    a = torch.randn(1024, 1024)
    numbers = torch.ones(2**26)  # 256 MiB: more than the nearer caches hold
    copy = torch.empty_like(numbers)
    durations = take_turns({"multiply": lambda: a @ a, "copy": lambda: copy.copy_(numbers)}, 5, 50)
    return {
        "operations_per_second": 2 * 1024**3 / min(durations["multiply"]),
        "bytes_per_second": 2 * numbers.nbytes / min(durations["copy"]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--largest", type=int, default=65_536, help="the most positions")
    parser.add_argument("--seconds", type=float, default=6, help="for the rounds of one size, about")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    limits = measure_limits()
    print(", ".join(f"{limit:.3g} {name}" for name, limit in limits.items()))
    result = {
        "command": "python benchmarks/attention.py",
        "machine": {
            "processor": platform.machine(),
            "torch": torch.__version__,
        },
        "features": FEATURES,
        "limits": limits,
        "layers": measure_layers(options.seconds),
        "operators": measure_operators(options.largest, options.seconds),
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
