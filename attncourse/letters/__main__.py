"""``python -m attncourse.letters``: train the two letter models, and let them write."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from attncourse.letters import RESULTS, TASKS, Run, evaluate, results, save, train

DESCRIPTION = """\
Two small Transformers that write letters: "text" goes on with a text, "sorting"
writes the letters of a word in the order of the alphabet.

An interrupted training goes on where it stopped, and to exactly the same weights,
when the same command is given again."""

EXAMPLES = """\
examples:
  python -m attncourse.letters train text --steps 200    less than a minute
  python -m attncourse.letters evaluate                  the models that come with the course"""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m attncourse.letters",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--threads", type=int, default=1, help="how many threads PyTorch uses (default: 1)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    default = argparse.ArgumentDefaultsHelpFormatter

    about = "train a model, and write its weights and a log of the training"
    command = commands.add_parser("train", help=about, description=about, formatter_class=default)
    command.add_argument("task", choices=TASKS, help="go on with a text, or sort the letters of words")
    command.add_argument("--steps", type=int, default=Run.steps, help="how many batches to train on")
    command.add_argument("--batch", type=int, default=Run.batch, help="passages or words for each step")
    command.add_argument("--length", type=int, default=Run.length, help="letters in a passage of the text")
    command.add_argument("--rate", type=float, default=Run.rate, help="highest learning rate")
    command.add_argument("--dropout", type=float, default=Run.dropout, help="probability of dropping")
    command.add_argument("--seed", type=int, default=Run.seed, help="of the weights and of the data")
    command.add_argument("--out", type=Path, default=Path("letter_runs"), help="folder to write to")

    about = "compute from the weights how good the models are"
    command = commands.add_parser("evaluate", help=about, description=about, formatter_class=default)
    command.add_argument("--folder", type=Path, default=RESULTS, help="where weights and logs are")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        if options.command == "train":
            run = Run(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Run)})
            print_training(run, options.out)
        else:
            for task, (_, _, model) in results(options.folder).items():
                print_test(task, evaluate(model, task))
    except ValueError as error:
        parser().error(str(error))
    except KeyboardInterrupt:
        print("\nInterrupted. Give the same command again to go on.", file=sys.stderr)
        sys.exit(130)


def print_training(run: Run, folder: Path) -> None:
    done = results(folder).get(run.task)
    if done is not None and done.run != run:
        raise ValueError(f"{folder} has another run of this task, {done.run.command}: choose another folder")
    if done is None:
        model, log = train(run, folder, progress=True)
        save(run, model, log, folder)
        done = results(folder)[run.task]
    (folder / f"{run.task}.checkpoint").unlink(missing_ok=True)
    print_test(f"{folder / run.task}", done.log["test"])


def print_test(name: str, test: dict[str, float]) -> None:
    print(f"{name}: " + ", ".join(f"{what.replace('_', ' ')} {number:.4f}" for what, number in test.items()))


if __name__ == "__main__":
    main()
