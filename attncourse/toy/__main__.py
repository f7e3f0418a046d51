"""``python -m attncourse.toy``: train the models of the running experiment, and look at what came out."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from attncourse import toy
from attncourse._runs import command_line, finished, run_command, run_of
from attncourse.toy import (
    MODELS,
    NOISE_FLOOR,
    POSITIONS,
    RESULTS,
    VERSIONS,
    Result,
    Run,
    anchors,
    attention_shares,
    evaluate,
    make_test_data,
    results,
)

DESCRIPTION = """\
Triangles and rectangles: train models that average their heights, and evaluate them.
Version A averages within each kind of shape, version B on each side.

An interrupted training goes on where it stopped, and to exactly the same weights,
when the same command is given again. The mean squared errors that are printed
include the noise of the targets, below which no model can come: 0.0075."""

EXAMPLES = """\
examples:
  python -m attncourse.toy train A attention            a minute: 30,000 sequences
  python -m attncourse.toy train B attention --positions signs --sequences 800000 --batch 16
  python -m attncourse.toy results                      the results that come with the course
  python -m attncourse.toy evaluate                     ... computed again, from the weights"""


def parser() -> argparse.ArgumentParser:
    parser, add, command = command_line("toy", DESCRIPTION, EXAMPLES, "toy_runs")
    command.add_argument("version", choices=VERSIONS, help="which heights are averaged")
    command.add_argument("model", choices=MODELS, help="convolutions only, or with an attention layer")
    command.add_argument("--positions", choices=POSITIONS, default="none", help="encoding of positions")
    command.add_argument("--sequences", type=int, default=Run.sequences, help="how many to train on")
    command.add_argument("--batch", type=int, default=Run.batch, help="sequences for each step")
    command.add_argument("--rate", type=float, default=Run.rate, help="highest learning rate")
    command.add_argument("--seed", type=int, default=Run.seed, help="of the weights and of the data")

    command = add("results", "print the test errors that the logs tell, with their range over seeds")
    command.add_argument("--folder", type=Path, default=RESULTS, help="where the logs are")

    command = add("evaluate", "compute test errors and attention shares from the weights")
    command.add_argument("--folder", type=Path, default=RESULTS, help="where weights and logs are")

    add("anchors", "print the errors that need no training")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    run_command(parser(), arguments, do)


def do(options: argparse.Namespace) -> None:
    if options.command == "train":
        run = run_of(Run, options)
        error = finished(run, run.name, options.out, toy).log["test_mse"]
        print(f"{options.out / run.name}: test error {error:.4f}")
    elif options.command == "results":
        print_results(list(results(options.folder).values()))
    elif options.command == "evaluate":
        print_evaluation(list(results(options.folder).values()))
    else:
        for version in VERSIONS:
            for name, error in anchors(version).items():
                print(f"{version}  {name:20} {error:6.3f}")
        print(f"   noise alone          {NOISE_FLOOR:8.4f}")


def print_results(found: Sequence[Result]) -> None:
    """One line for all seeds of a model; how its error compares with the best of the same budget."""
    errors: dict[Run, list[float]] = {}
    for run, log, _ in found:
        errors.setdefault(dataclasses.replace(run, seed=0), []).append(log["test_mse"])
    print(f"{'':29}sequences batch runs      test error   times the best")
    for run, mine in errors.items():
        same = [
            other
            for other in errors
            if (other.version, other.sequences, other.batch) == (run.version, run.sequences, run.batch)
        ]
        best = min(same, key=lambda other: min(errors[other]))
        times = (
            ""
            if best == run
            else f"{min(mine) / max(errors[best]):6.1f} to {max(mine) / min(errors[best]):.1f}"
        )
        print(
            f"{run.version} {run.model:10} {run.positions:13}{run.sequences:12,} {run.batch:5} {len(mine):4}"
            f"  {min(mine):.4f} to {max(mine):.4f}  {times}".rstrip()
        )


def print_evaluation(found: Sequence[Result]) -> None:
    for run, _, model in found:
        if model is not None:
            line = f"{run.name:32} test error {evaluate(model, make_test_data(run.version)):.4f}"
            if run.model == "attention":
                shares = attention_shares(model, make_test_data(run.version, 1_000))
                line += "".join(f"  {name} {share:.1%}" for name, share in shares.items())
            print(line)


if __name__ == "__main__":
    main()
