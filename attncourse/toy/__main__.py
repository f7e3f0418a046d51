"""``python -m attncourse.toy``: train the models of the running experiment, and look at what came out."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

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
    save,
    train,
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
    parser = argparse.ArgumentParser(
        prog="python -m attncourse.toy",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--threads", type=int, default=1, help="how many threads PyTorch uses (default: 1)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    default = argparse.ArgumentDefaultsHelpFormatter

    about = "train a model, and write its weights and a log of the training"
    command = commands.add_parser("train", help=about, description=about, formatter_class=default)
    command.add_argument("version", choices=VERSIONS, help="which heights are averaged")
    command.add_argument("model", choices=MODELS, help="convolutions only, or with an attention layer")
    command.add_argument("--positions", choices=POSITIONS, default="none", help="encoding of positions")
    command.add_argument("--sequences", type=int, default=Run.sequences, help="how many to train on")
    command.add_argument("--batch", type=int, default=Run.batch, help="sequences for each step")
    command.add_argument("--rate", type=float, default=Run.rate, help="highest learning rate")
    command.add_argument("--seed", type=int, default=Run.seed, help="of the weights and of the data")
    command.add_argument("--out", type=Path, default=Path("toy_runs"), help="folder to write to")

    about = "print the test errors that the logs tell, with their range over seeds"
    command = commands.add_parser("results", help=about, description=about, formatter_class=default)
    command.add_argument("--folder", type=Path, default=RESULTS, help="where the logs are")

    about = "compute test errors and attention shares from the weights"
    command = commands.add_parser("evaluate", help=about, description=about, formatter_class=default)
    command.add_argument("--folder", type=Path, default=RESULTS, help="where weights and logs are")

    about = "print the errors that need no training"
    commands.add_parser("anchors", help=about, description=about)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        run_command(options)
    except ValueError as error:
        parser().error(str(error))
    except KeyboardInterrupt:
        print("\nInterrupted. Give the same command again to go on.", file=sys.stderr)
        sys.exit(130)


def run_command(options: argparse.Namespace) -> None:
    if options.command == "train":
        run = Run(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Run)})
        print_training(run, options.out)
    elif options.command == "results":
        print_results(list(results(options.folder).values()))
    elif options.command == "evaluate":
        print_evaluation(list(results(options.folder).values()))
    else:
        for version in VERSIONS:
            for name, error in anchors(version).items():
                print(f"{version}  {name:20} {error:6.3f}")
        print(f"   noise alone          {NOISE_FLOOR:8.4f}")


def print_training(run: Run, folder: Path) -> None:
    done = results(folder).get(run.name)
    if done is not None and done.run != run:
        raise ValueError(f"{folder} has another run of this name, {done.run.command}: choose another folder")
    if done is None:
        model, log = train(run, folder, progress=True)
        save(run, model, log, folder)
        done = results(folder)[run.name]
    (folder / f"{run.name}.checkpoint").unlink(missing_ok=True)
    print(f"{folder / run.name}: test error {done.log['test_mse']:.4f}")


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
