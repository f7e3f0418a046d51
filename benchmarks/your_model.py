"""What a cache saves when the course's language model writes, and how large it is for each kind of heads.

    python benchmarks/your_model.py

compares, in one run, a step with a cache with a pass over the whole text, and writing as many tokens as the
model reads, with the cache and without. Both give the same tokens, which is checked. It prints the ratios and
writes your_model.json beside this file.

All run on one core, and what is measured is processor time, so that other programs on the machine count
little. The two take turns; of the rounds the shortest counts.
"""

import argparse
import dataclasses
import json
import platform
from pathlib import Path

import torch
from attention import take_turns

from attncourse import LanguageModel, cache_bytes, generate, novels

STEPS = 16  # in a row, for one step is too short to measure
#: What changes in the model of the course, whose heads share keys and values in groups.
KINDS = {
    "keys and values for each head": {"num_key_value_heads": None},
    "groups of heads share": {},
    "all heads share": {"num_key_value_heads": 1},
    "groups share, window of 64": {"window": 64},
}


def compare(name, calls, seconds, divide_by=1):
    """Time two calls in turn; the first is the slower one."""
    durations = take_turns(calls, seconds)
    (slow, slow_times), (fast, fast_times) = durations.items()
    ratio = min(slow_times) / min(fast_times) * divide_by
    print(f"{name}: {slow} takes {ratio:.1f} times as long as {fast} ({len(fast_times)} rounds)", flush=True)
    return {"what": name, slow: min(slow_times), fast: min(fast_times) / divide_by, "ratio": ratio}


@torch.no_grad()
def measure_step(model, text, seconds):
    """Scores for the last token: from the whole text, or from this token and a cache of the others."""
    length = len(text)

    def whole():
        return model(text)

    def steps():
        for _ in range(STEPS):
            model(text[-1:], [shortened(cache, length - 1) for cache in caches])

    caches = model.new_caches()
    model(text, caches)
    torch.testing.assert_close(
        model(text[-1:], [shortened(cache, length - 1) for cache in caches]), whole()[-1:], atol=1e-3, rtol=0
    )
    return compare(
        f"the scores for token {length + 1}",
        {"a pass over all tokens": whole, "a step with the cache": steps},
        seconds,
        STEPS,
    )


def shortened(cache, length):
    """The same cache with its first positions only, so that a step can be taken again."""
    cache._length = length
    return cache


def measure_writing(model, seconds):
    """Greedy, from one token to as many as the model reads."""
    first = novels.encode("The")[:1]
    number = model.config.max_length - 1
    written = {}

    def write(use_cache):
        written[use_cache] = generate(model, first, number, temperature=0, use_cache=use_cache)

    row = compare(
        f"writing {number} tokens",
        {"without a cache": lambda: write(False), "with it": lambda: write(True)},
        seconds,
    )
    assert torch.equal(written[True], written[False])
    return row


@torch.no_grad()
def measure_bytes(config):
    """The bytes of filled caches, in float32, and what they are by counting."""
    rows = []
    for kind, changes in KINDS.items():
        changed = dataclasses.replace(config, **changes)
        model = LanguageModel(changed)
        caches = model.new_caches()
        model(torch.zeros(config.max_length, dtype=torch.long), caches)
        kept = slice(
            -(changed.window or config.max_length), None
        )  # our cache keeps what no window needs, too
        filled = sum(x[..., kept, :].numel() * 4 for cache in caches for x in (cache.key, cache.value))
        assert filled == cache_bytes(changed, config.max_length, bytes_per_number=4)
        rows.append({"heads": kind, "bytes": filled})
        print(
            f"{kind:30}{filled:10,} bytes for {config.max_length} tokens, "
            f"{rows[0]['bytes'] / filled:.1f} times less"
        )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=20, help="for the rounds of each, about")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = novels.course_model()
    text = novels.held_out_tokens()[: model.config.max_length]
    result = {
        "command": "python benchmarks/your_model.py",
        "machine": {"processor": platform.machine(), "torch": torch.__version__},
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "seconds": [measure_step(model, text, options.seconds), measure_writing(model, options.seconds)],
        "caches": measure_bytes(model.config),
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
