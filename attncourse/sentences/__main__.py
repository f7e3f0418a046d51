"""``python -m attncourse.sentences``: count what the heads of a published model do."""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from attncourse.sentences import (
    FAMILIES,
    JOBS,
    RESULTS,
    pairs,
    results,
    save,
    sentences,
    study,
    write_passages,
)
from attncourse.words import load_sentence_encoder

DESCRIPTION = """\
Our own sentences, and what the 72 heads of a published sentence encoder do in
them. The encoder comes from a package that is installed with the course."""


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m attncourse.sentences",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, about: str) -> argparse.ArgumentParser:
        default = argparse.ArgumentDefaultsHelpFormatter
        return commands.add_parser(name, help=about, description=about, formatter_class=default)

    add("show", "print the sentences of the grammar, and the pairs about it")
    command = add("study", "count what the heads do, and silence them: some minutes")
    command.add_argument("--out", type=Path, default=Path("sentences_run"), help="folder to write to")
    command = add("results", "print the best heads for each job, as the study found them")
    command.add_argument("--folder", type=Path, default=RESULTS, help="where the study is")
    command = add("passages", "make the passages for the search of the book's glossary")
    command.add_argument("glossary", type=Path, help="book/glossary.md")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    torch.set_num_threads(1)
    if options.command == "show":
        print("\n".join(sentence.text for sentence in sentences()))
        print("\n".join(sentence.text for pair in pairs() for sentence in pair.sentences))
    elif options.command == "study":
        began = time.process_time()
        found = study(load_sentence_encoder())
        save(found, time.process_time() - began, options.out)
        print_results(options.out)
    elif options.command == "results":
        print_results(options.folder)
    else:
        write_passages(options.glossary)


def print_results(folder: Path) -> None:
    found = results(folder)
    print("job         counted   even  the heads with most weight on the wanted key")
    for row, job in enumerate(JOBS):
        best = ", ".join(
            f"({block}, {head}) {found.weight[row, block, head]:.2f}"
            for block, head in largest_of(found.weight[row], 3)
        )
        print(f"{job:10}{int(found.number[row]):9,}{found.even[row]:7.2f}  {best}")
    print("\nfamily      pairs   it: the heads in which most weight moves to the right thing")
    families = [pair.family for pair in pairs()]
    for family in FAMILIES:
        margin = found.margin[[name == family for name in families]]
        moved = margin.mean((0, 1))
        best = ", ".join(
            f"({block}, {head}) {moved[block, head]:.2f}" for block, head in largest_of(moved, 3)
        )
        print(f"{family:10}{len(margin):7}   {best}")


def largest_of(table: torch.Tensor, number: int) -> list[tuple[int, int]]:
    """Where the largest entries of a table of blocks and heads are."""
    return [divmod(place, table.shape[1]) for place in table.flatten().topk(number).indices.tolist()]


if __name__ == "__main__":
    main()
