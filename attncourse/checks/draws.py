"""Random numbers for the inputs on which answers are tried."""

import hashlib
import math

import numpy as np
import torch
from torch import Tensor


class Draws:
    """The random numbers of a seed, of which those that somebody has seen tell nothing of the others.

    From a few hundred numbers of PyTorch's generators their seed can be computed, which has 32 bits, and from
    it all that comes. Whoever did so would know what an answer is not shown. These come from SHAKE-256 of the
    seed, which may have as many bits as a secret has. The methods are called as PyTorch's functions.

    Parameters
    ----------
    seed : int
    use : str
        What for: for each use there are other numbers.
    """

    def __init__(self, seed: int, use: str) -> None:
        self._begin = f"{seed} {use}"
        self._drawn = 0

    def _uniform(self, *shape: int) -> Tensor:
        """Between 0 and 1, both excluded, in double precision."""
        count = math.prod(shape)
        self._drawn += 1
        digest = hashlib.shake_256(f"{self._begin} {self._drawn}".encode()).digest(8 * count)
        words = np.frombuffer(digest, dtype="<u8") >> np.uint64(11)  # as many bits as a double has
        return torch.from_numpy((words + 0.5) / 2**53).view(shape)

    def rand(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Evenly distributed from 0 to 1."""
        return self._uniform(*shape).to(dtype)

    def randn(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Normally distributed, with mean 0 and variance 1."""
        return torch.special.ndtri(self._uniform(*shape)).to(dtype)

    def randint(self, low: int, high: int, size: tuple[int, ...]) -> Tensor:
        """Whole numbers, of which low is the least and high - 1 the largest."""
        return low + (self._uniform(*size) * (high - low)).long()

    def randperm(self, n: int) -> Tensor:
        """The numbers from 0 to n - 1, in any order."""
        return self._uniform(n).argsort()

    def whole(self, least: int, most: int) -> int:
        """One whole number, of which least and most are the ends."""
        return int(self.randint(least, most + 1, ()))
