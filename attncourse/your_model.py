r"""A language model as they are built today: a decoder whose blocks are of the Llama kind.

What the Transformer of 2017 has, :mod:`attncourse.transformer` has. Here are the changes that most
language models have made since: RMSNorm, SwiGLU, rotary positions inside attention, heads that share keys
and values, and windows; and what it takes to write with such a model: a cache, and ways to choose a token.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from attncourse._require import (
    require_choice,
    require_count,
    require_floating,
    require_groups,
    require_rows,
    require_same_dtype,
    require_tensor,
    shape_of,
)
from attncourse.attention_operator import attention
from attncourse.masking import causal_mask, local_mask
from attncourse.multihead import fused_attention, merge_heads, repeat_heads, split_heads
from attncourse.positional import rotary, sinusoidal_encoding
from attncourse.scaling import KeyValueCache

__all__ = [
    "CausalSelfAttention",
    "DecoderBlock",
    "LanguageModel",
    "ModelConfig",
    "RMSNorm",
    "SwiGLU",
    "cache_bytes",
    "generate",
    "induction_score",
    "next_token_probabilities",
    "parameter_count",
]

NORMS = ("rms", "layer")
MLPS = ("swiglu", "relu")
POSITIONS = ("rotary", "sinusoidal")


class RMSNorm(nn.Module):
    r"""Divide each row by the root of its mean square, and multiply each feature by a learned number.

    .. math:: m = \frac{1}{D} \sum_j x_j^2, \qquad y_i = g_i \, \frac{x_i}{\sqrt{m + \varepsilon}}

    What a layer normalisation does besides, subtracting the mean and adding a learned vector, is left out.

    Parameters
    ----------
    dim : int
        The number of features, D.
    eps : float

    Notes
    -----
    The layer learns ``weight`` (dim,), which starts with ones.

    References
    ----------
    Zhang and Sennrich, *Root mean square layer normalization*, 2019.
    """

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        super().__init__()
        require_count("dim", dim, least=1)
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each row: from (..., dim) to the same shape."""
        _require_features("x", x, len(self.weight))
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def extra_repr(self) -> str:
        """The size, for ``print(norm)``."""
        return f"{len(self.weight)}, eps={self.eps}"


class SwiGLU(nn.Module):
    r"""The small network of a block, with a gate: one product decides how much of another passes.

    .. math::

       Y = \bigl(\operatorname{SiLU}(X W_{\text{gate}}) \odot X W_{\text{up}}\bigr)\, W_{\text{down}}, \qquad
       \operatorname{SiLU}(x) = \frac{x}{1 + e^{-x}}

    Parameters
    ----------
    model_dim, hidden_dim : int

    Notes
    -----
    The layer learns ``W_gate`` and ``W_up`` (model_dim, hidden_dim) and ``W_down`` (hidden_dim, model_dim).
    These are three matrices where the network of 2017 has two: with two thirds of its hidden
    features they have as many parameters.

    References
    ----------
    Shazeer, *GLU variants improve Transformer*, 2020, equation 6.
    """

    def __init__(self, model_dim: int, hidden_dim: int) -> None:
        super().__init__()
        require_count("model_dim", model_dim, least=1)
        require_count("hidden_dim", hidden_dim, least=1)
        self.W_gate = nn.Parameter(torch.randn(model_dim, hidden_dim) * model_dim**-0.5)
        self.W_up = nn.Parameter(torch.randn(model_dim, hidden_dim) * model_dim**-0.5)
        self.W_down = nn.Parameter(torch.randn(hidden_dim, model_dim) * hidden_dim**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        """Apply the network at each position: from (..., model_dim) to the same shape."""
        _require_features("x", x, len(self.W_gate))
        require_same_dtype("x", x, "the layer's weights", self.W_gate)
        hidden = nn.functional.silu(x @ self.W_gate) * (x @ self.W_up)  # (..., hidden_dim)
        return hidden @ self.W_down


class CausalSelfAttention(nn.Module):
    r"""Self-attention of a decoder: rotary positions, shared keys and values, a window, and a cache.

    Parameters
    ----------
    model_dim, num_heads : int
    num_key_value_heads : int, optional
        How many heads there are for keys and values; num_heads if not given. Each serves a group of
        num_heads / num_key_value_heads neighbouring heads.
    rotary_base : float or None
        The base of the rotary positions; None turns nothing.
    rotary_scale : float
        Positions are divided by it before keys and queries are turned.
    window : int, optional
        How many positions each sees, its own and those just before; all before it if not given.

    Notes
    -----
    The layer learns ``W_Q`` (num_heads, model_dim, head_dim), ``W_K`` and ``W_V`` (num_key_value_heads,
    model_dim, head_dim), and ``W_O`` (num_heads * head_dim, model_dim), as :class:`MultiHeadAttention` does.

    Raises
    ------
    ValueError
        If num_heads does not divide model_dim, or num_key_value_heads num_heads, a size is not positive, or a
        head has an odd number of features, which cannot be turned in pairs.

    References
    ----------
    Su et al., *RoFormer: enhanced transformer with rotary position embedding*, 2021.
    Ainslie et al., *GQA: training generalized multi-query Transformer models from multi-head
    checkpoints*, 2023.
    Beltagy, Peters and Cohan, *Longformer: the long-document Transformer*, 2020: windows.
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        num_key_value_heads: int | None = None,
        *,
        rotary_base: float | None = 10_000.0,
        rotary_scale: float = 1.0,
        window: int | None = None,
    ) -> None:
        super().__init__()
        if num_key_value_heads is None:
            num_key_value_heads = num_heads
        _require_heads(model_dim, num_heads, num_key_value_heads)
        if rotary_base is not None:
            _require_rotary(model_dim // num_heads, rotary_base, rotary_scale)
        if window is not None:
            require_count("window", window, least=1)
        self.num_heads, self.num_key_value_heads = num_heads, num_key_value_heads
        self.rotary_base, self.rotary_scale, self.window = rotary_base, rotary_scale, window
        head_dim = model_dim // num_heads

        def matrices(count: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(count, model_dim, head_dim) * model_dim**-0.5)

        self.W_Q = matrices(num_heads)
        self.W_K = matrices(num_key_value_heads)
        self.W_V = matrices(num_key_value_heads)
        self.W_O = nn.Parameter(torch.randn(model_dim, model_dim) * model_dim**-0.5)

    def forward(
        self,
        x: Tensor,
        cache: KeyValueCache | None = None,
        *,
        head_mask: Tensor | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Let each position attend to itself and to those before it.

        Parameters
        ----------
        x : Tensor, shape (..., positions, model_dim)
        cache : KeyValueCache, optional
            Keys and values of the positions before these, to which those of `x` are added.
        head_mask : Tensor of bool or floating point, shape (num_heads,), optional
            The output of each head is multiplied by it: 0 silences a head.
        return_weights : bool
            Also return the attention weights of each head.

        Returns
        -------
        output : Tensor, shape (..., positions, model_dim)
        weights : Tensor, shape (..., num_heads, positions, positions so far)
            Only if `return_weights`.

        Raises
        ------
        ValueError
            If a shape or dtype does not fit, there is no position, or the cache is of another batch.
        TypeError
            If an argument that should be a tensor is not.
        """
        require_rows("x", x)
        _require_features("x", x, self.W_Q.shape[1])
        require_same_dtype("x", x, "the layer's weights", self.W_Q)
        _require_positions("x", x, x.shape[:-1], cache)
        if head_mask is not None:
            _require_head_mask(head_mask, (self.num_heads,))
        before = 0 if cache is None else len(cache)
        query = self._project(x, self.W_Q)  # (..., num_heads, positions, head_dim)
        key = self._project(x, self.W_K)  # (..., num_key_value_heads, positions, head_dim)
        value = self._project(x, self.W_V)  # (..., num_key_value_heads, positions, head_dim)
        if self.rotary_base is not None:
            places = torch.arange(before, before + x.shape[-2], dtype=torch.float64, device=x.device)
            turned = rotary(torch.cat((query, key), -3), places / self.rotary_scale, base=self.rotary_base)
            query, key = turned.split((self.num_heads, self.num_key_value_heads), -3)
        if cache is not None:
            cache.append(key, value)
            key, value = cache.key, cache.value  # (..., num_key_value_heads, positions so far, head_dim)
        group = self.num_heads // self.num_key_value_heads
        key, value = repeat_heads(key, group), repeat_heads(value, group)

        num_queries, num_keys = query.shape[-2], key.shape[-2]
        mask = None  # a single new position sees all before it
        if num_queries > 1:
            mask = causal_mask(num_queries, num_keys).to(x.device)
        if windowed := self.window is not None and num_keys > self.window:
            near = local_mask(num_queries, num_keys, radius=self.window - 1).to(x.device)
            mask = near if mask is None else near & mask
        if return_weights:
            heads, weights = attention(query, key, value, mask, return_weights=True)
        else:
            # The kernel need not be told a mask that is all causal and square, and is faster so.
            square = not windowed and num_queries == num_keys
            heads = fused_attention(query, key, value, None if square else mask, is_causal=square)
        if head_mask is not None:
            heads = heads * head_mask[:, None, None].to(heads.dtype)
        output = merge_heads(heads) @ self.W_O  # (..., positions, model_dim)
        return (output, weights) if return_weights else output

    def extra_repr(self) -> str:
        """The sizes, for ``print(layer)``."""
        return (
            f"model_dim={len(self.W_O)}, num_heads={self.num_heads}, "
            f"num_key_value_heads={self.num_key_value_heads}, window={self.window}"
        )

    @staticmethod
    def _project(x: Tensor, weight: Tensor) -> Tensor:
        """Each head's own matrix at every position: from (..., positions, model_dim) to heads."""
        packed = weight.transpose(0, 1).flatten(1)  # (model_dim, heads * head_dim)
        return split_heads(x @ packed, len(weight))  # (..., heads, positions, head_dim)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """What decides the shape of a language model.

    The defaults are the block of today. The other choices of `norm`, `mlp` and `positions` are those of 2017.

    Raises
    ------
    ValueError
        If a choice is unknown, a size is not positive, heads do not divide what they should, or a head has an
        odd number of features, which cannot be turned in pairs.
    TypeError
        If a size is not an int.
    """

    #: The number of tokens that there are.
    vocabulary_size: int
    #: The number of features of each position.
    model_dim: int
    num_heads: int
    num_blocks: int
    #: The number of features inside the small network of each block.
    hidden_dim: int
    #: How many heads there are for keys and values; num_heads if not given.
    num_key_value_heads: int | None = None
    #: How many positions the model reads at most.
    max_length: int = 256
    #: How many positions each sees, its own and those just before; all before it if not given.
    window: int | None = None
    norm: str = "rms"
    mlp: str = "swiglu"
    positions: str = "rotary"
    rotary_base: float = 10_000.0
    #: Positions are divided by it before keys and queries are turned.
    rotary_scale: float = 1.0

    def __post_init__(self) -> None:
        require_choice("norm", self.norm, NORMS)
        require_choice("mlp", self.mlp, MLPS)
        require_choice("positions", self.positions, POSITIONS)
        for name in ("vocabulary_size", "num_blocks", "hidden_dim", "max_length"):
            require_count(name, getattr(self, name), least=1)
        _require_heads(self.model_dim, self.num_heads, self.key_value_heads)
        if self.positions == "rotary":
            _require_rotary(self.head_dim, self.rotary_base, self.rotary_scale)
        if self.window is not None:
            require_count("window", self.window, least=1)

    @property
    def key_value_heads(self) -> int:
        """How many heads there are for keys and values."""
        return self.num_heads if self.num_key_value_heads is None else self.num_key_value_heads

    @property
    def head_dim(self) -> int:
        """The number of features of each head."""
        return self.model_dim // self.num_heads


class DecoderBlock(nn.Module):
    r"""A block of the Llama kind: normalise, attend, add; normalise, small network, add.

    .. math::

       Z = X + \operatorname{att}(\operatorname{norm}_1(X)), \qquad
       Y = Z + \operatorname{MLP}(\operatorname{norm}_2(Z))

    Nothing in it has a bias, but for the layer normalisation and the ReLU network of 2017, where the
    `config` asks for them.

    Parameters
    ----------
    config : ModelConfig
    dropout_p : float
        The probability that a feature of what a step adds is dropped, in training mode only.

    Notes
    -----
    The block has ``attention_norm``, ``attention`` (:class:`CausalSelfAttention`), ``mlp_norm`` and ``mlp``
    (:class:`SwiGLU`).

    References
    ----------
    Touvron et al., *LLaMA: open and efficient foundation language models*, 2023, section 2.2.
    """

    def __init__(self, config: ModelConfig, dropout_p: float = 0.0) -> None:
        super().__init__()
        norm = {"rms": RMSNorm, "layer": nn.LayerNorm}[config.norm]
        self.attention_norm = norm(config.model_dim)
        self.attention = CausalSelfAttention(
            config.model_dim,
            config.num_heads,
            config.num_key_value_heads,
            rotary_base=config.rotary_base if config.positions == "rotary" else None,
            rotary_scale=config.rotary_scale,
            window=config.window,
        )
        self.mlp_norm = norm(config.model_dim)
        self.mlp: nn.Module
        last: Tensor
        if config.mlp == "swiglu":
            self.mlp = swiglu = SwiGLU(config.model_dim, config.hidden_dim)
            last = swiglu.W_down
        else:
            down = nn.Linear(config.hidden_dim, config.model_dim)
            self.mlp = nn.Sequential(nn.Linear(config.model_dim, config.hidden_dim), nn.ReLU(), down)
            last = down.weight
        self.dropout = nn.Dropout(dropout_p)
        # All blocks together add to one sum, each twice: smaller steps keep its size.
        with torch.no_grad():
            for weight in (self.attention.W_O, last):
                weight.mul_((2 * config.num_blocks) ** -0.5)

    def forward(
        self,
        x: Tensor,
        cache: KeyValueCache | None = None,
        *,
        head_mask: Tensor | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Apply the block: from (..., positions, model_dim) to the same shape.

        The arguments, and what comes back with `return_weights`, are those of
        :class:`CausalSelfAttention`.
        """
        found = self.attention(
            self.attention_norm(x), cache, head_mask=head_mask, return_weights=return_weights
        )
        found, weights = found if return_weights else (found, None)
        x = x + self.dropout(found)
        x = x + self.dropout(self.mlp(self.mlp_norm(x)))
        return x if weights is None else (x, weights)


class LanguageModel(nn.Module):
    """A table of tokens, a stack of blocks, and the same table again, which reads what comes out.

    Parameters
    ----------
    config : ModelConfig
    dropout_p : float
        As in :class:`DecoderBlock`, and for the features of each token.

    Notes
    -----
    The model has ``table`` (vocabulary_size, model_dim), ``blocks`` and ``norm``. The logits are dot
    products of what leaves the last norm with the rows of ``table``: tied embeddings.

    References
    ----------
    Press and Wolf, *Using the output embedding to improve language models*, 2017: the table used twice.
    Touvron et al., *LLaMA: open and efficient foundation language models*, 2023.
    """

    def __init__(self, config: ModelConfig, dropout_p: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.table = nn.Parameter(0.02 * torch.randn(config.vocabulary_size, config.model_dim))
        self.blocks = nn.ModuleList(DecoderBlock(config, dropout_p) for _ in range(config.num_blocks))
        self.norm = RMSNorm(config.model_dim) if config.norm == "rms" else nn.LayerNorm(config.model_dim)
        self.dropout = nn.Dropout(dropout_p)

    def forward(
        self,
        tokens: Tensor,
        caches: list[KeyValueCache] | None = None,
        *,
        head_mask: Tensor | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Score, at each position, every token as the next one.

        Parameters
        ----------
        tokens : Tensor of int, shape (..., positions)
        caches : list of KeyValueCache, optional
            One for each block (:meth:`new_caches`), with the positions before these.
        head_mask : Tensor of bool or floating point, shape (num_blocks, num_heads), optional
            0 silences a head.
        return_weights : bool
            Also return the attention weights.

        Returns
        -------
        logits : Tensor, shape (..., positions, vocabulary_size)
        weights : list of Tensor
            Only if `return_weights`. For each block (..., num_heads, positions, positions so far).

        Raises
        ------
        ValueError
            If a token is out of range, there are no positions or more than the model reads, the caches are of
            another batch, or there is not one cache, or one row of `head_mask`, for each block.
        TypeError
            If `tokens` or `head_mask` is not a tensor.
        """
        config = self.config
        require_tokens(tokens, config.vocabulary_size)
        if caches is not None and len(caches) != config.num_blocks:
            raise ValueError(f"caches holds {len(caches)}: expected {config.num_blocks}, one for each block")
        cache = caches[0] if caches else None
        _require_positions("tokens", tokens, tokens.shape, cache)
        before = 0 if cache is None else len(cache)
        if before + tokens.shape[-1] > config.max_length:
            raise ValueError(
                f"tokens has shape {shape_of(tokens)}, after {before} in the caches: expected at most "
                f"{config.max_length} positions in all, the model's max_length; leave out the first ones, "
                "or see stretched()"
            )
        if head_mask is not None:
            _require_head_mask(head_mask, (config.num_blocks, config.num_heads))

        x = self.table[tokens]  # (..., positions, model_dim)
        if config.positions == "sinusoidal":
            # The table's numbers are small at the start, and so are what is added to them.
            x = x + 0.02 * sinusoidal_encoding(before + tokens.shape[-1], config.model_dim)[before:].to(x)
        x = self.dropout(x)
        weights = []
        for n, block in enumerate(self.blocks):
            x = block(
                x,
                None if caches is None else caches[n],
                head_mask=None if head_mask is None else head_mask[n],
                return_weights=return_weights,
            )
            if return_weights:
                x, of_block = x
                weights.append(of_block)
        logits = self.norm(x) @ self.table.mT  # (..., positions, vocabulary_size)
        return (logits, weights) if return_weights else logits

    def new_caches(self) -> list[KeyValueCache]:
        """An empty cache for each block."""
        return [KeyValueCache() for _ in self.blocks]

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Take over weights, as every module does; those of another model are named in one sentence.

        Raises
        ------
        ValueError
            If a weight has another shape than the model's, or, with `strict`, is missing or of no use.
        """
        ours = {name: shape_of(weight) for name, weight in self.state_dict().items()}
        for name, shape in ours.items():
            if name in state_dict and shape_of(state_dict[name]) != shape:
                raise ValueError(
                    f"state_dict has {name} of shape {shape_of(state_dict[name])}: expected {shape}; make "
                    "the model with the ModelConfig that these weights were trained with"
                )
        if strict and set(ours) != set(state_dict):
            missing = [name for name in ours if name not in state_dict]
            what = f"has no {missing[0]}" if missing else f"has {min(set(state_dict) - set(ours))}"
            raise ValueError(
                f"state_dict {what}: expected the {len(ours)} weights of this model; make the model with the "
                "ModelConfig that these weights were trained with"
            )
        return super().load_state_dict(state_dict, strict, assign)

    def stretched(self, factor: float, method: str) -> "LanguageModel":
        """The same weights, for texts that are longer than those of the training.

        Parameters
        ----------
        factor : float
            At least 1: how many times as long.
        method : str
            "positions": positions are divided by `factor`, so that none is further than
            in the training. "base": the base of the rotary positions grows by
            factor ** (d / (d - 2)) with d features in a head, so that the slowest pair turns as far as with
            "positions" and the fastest as before. "none": nothing but `max_length` changes.

        Returns
        -------
        LanguageModel
            In the same mode, with the same weights, not copies.

        Raises
        ------
        ValueError
            If `factor` is less than 1 or not finite, `method` is unknown, the model has no rotary positions,
            or, with "base", its heads have a single pair of features.

        References
        ----------
        Chen et al., *Extending context window of large language models via positional interpolation*, 2023:
        "positions".
        Peng et al., *YaRN: efficient context window extension of large language models*, 2023, section
        3.1: "base".
        """
        require_choice("method", method, ("positions", "base", "none"))
        if not 1 <= factor < math.inf:
            raise ValueError(f"factor is {factor}: expected a number that is at least 1")
        config = self.config
        if method != "none" and config.positions != "rotary":
            raise ValueError(f"method is {method!r}: expected 'none', as the model has no rotary positions")
        base, scale = config.rotary_base, config.rotary_scale
        if method == "positions":
            scale *= factor
        elif method == "base":
            if config.head_dim == 2:
                raise ValueError(
                    "method is 'base': expected 'positions', as heads have a single pair to turn"
                )
            base *= factor ** (config.head_dim / (config.head_dim - 2))
        longer = dataclasses.replace(
            config, max_length=int(config.max_length * factor), rotary_base=base, rotary_scale=scale
        )
        with torch.random.fork_rng(devices=[]):
            model = LanguageModel(longer, self.dropout.p)
        model.load_state_dict(self.state_dict(), assign=True)
        for ours, theirs in zip(self.parameters(), model.parameters(), strict=True):
            theirs.requires_grad_(ours.requires_grad)
        return model.train(self.training)


def next_token_probabilities(logits: Tensor, *, temperature: float = 1.0, top_p: float = 1.0) -> Tensor:
    r"""From the scores of the tokens, the probabilities by which one is drawn.

    .. math:: p_i \propto e^{s_i / T} \quad \text{for } i \text{ in the nucleus, and 0 elsewhere}

    The nucleus is the smallest number of most probable tokens, after the temperature T, that have together at
    least the probability `top_p`.

    Parameters
    ----------
    logits : Tensor, shape (..., tokens)
        The scores s.
    temperature : float
        At least 0. Less than 1 favours the probable ones; 0 gives the most probable one (the first of several
        that are equal) probability 1.
    top_p : float
        More than 0 and at most 1.

    Returns
    -------
    Tensor, shape (..., tokens)
        Each row sums to 1.

    Raises
    ------
    ValueError
        If `logits` has no tokens, `temperature` is negative or `top_p` is not in that range.
    TypeError
        If `logits` is not a tensor.

    References
    ----------
    Holtzman et al., *The curious case of neural text degeneration*, 2020, section 3.1: top-p.
    """
    require_floating("logits", logits)
    if logits.dim() < 1 or logits.shape[-1] == 0:
        raise ValueError(f"logits has shape {shape_of(logits)}: expected (..., tokens), at least one")
    if not temperature >= 0:
        raise ValueError(f"temperature is {temperature}: expected at least 0")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p is {top_p}: expected more than 0 and at most 1")
    if temperature == 0:
        return nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
    # Divided by a tiny temperature, large scores would become infinite: all are taken from the largest.
    logits = logits - logits.amax(-1, keepdim=True)
    probabilities = torch.softmax(logits / temperature, dim=-1)  # (..., tokens)
    if top_p == 1:
        return probabilities
    ordered, tokens = probabilities.sort(dim=-1, descending=True, stable=True)
    before = ordered.cumsum(-1) - ordered  # (..., tokens), what the more probable ones have together
    kept = torch.zeros_like(ordered).scatter(-1, tokens, ordered * (before < top_p))
    return kept / kept.sum(-1, keepdim=True)


@torch.no_grad()
def generate(
    model: LanguageModel,
    tokens: Tensor,
    num_tokens: int,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
    use_cache: bool = True,
) -> Tensor:
    """Let a model go on with a text, token by token.

    Parameters
    ----------
    model : LanguageModel
        It writes in evaluation mode, whichever it is in.
    tokens : Tensor of int, shape (positions,)
        The beginning; at least one token.
    num_tokens : int
        How many to add.
    temperature, top_p : float
        As in :func:`next_token_probabilities`.
    use_cache : bool
        Keep keys and values, so that each step computes the newest position only. The same comes out without.

    Returns
    -------
    Tensor of int, shape (positions + num_tokens,)

    Raises
    ------
    ValueError
        If a token is out of range, or the text becomes longer than the model reads.
    TypeError
        If `tokens` is not a tensor.
    """
    require_tokens(tokens, model.config.vocabulary_size)
    if tokens.dim() != 1 or len(tokens) == 0:
        raise ValueError(f"tokens has shape {shape_of(tokens)}: expected (positions,), at least one")
    require_count("num_tokens", num_tokens, least=0)
    if len(tokens) + num_tokens > model.config.max_length:
        raise ValueError(
            f"tokens has shape {shape_of(tokens)} and num_tokens is {num_tokens}: expected at most "
            f"{model.config.max_length} positions in all, the model's max_length"
        )
    caches = model.new_caches() if use_cache else None
    new, training = tokens, model.training
    model.eval()
    try:
        for _ in range(num_tokens):
            logits = model(new if use_cache else tokens, caches)[-1]  # (vocabulary_size,)
            probabilities = next_token_probabilities(logits, temperature=temperature, top_p=top_p)
            new = probabilities.argmax(-1, keepdim=True) if temperature == 0 else probabilities.multinomial(1)
            tokens = torch.cat((tokens, new))
    finally:
        model.train(training)
    return tokens


def parameter_count(config: ModelConfig, *, tied: bool = True) -> int:
    """How many numbers a language model learns, from its shape alone.

    Parameters
    ----------
    config : ModelConfig
        With norm="rms", mlp="swiglu" and positions="rotary".
    tied : bool
        Whether the table of tokens also reads the output, or there is a second one.

    Returns
    -------
    int
    """
    _require_todays(config)
    key_value_dim = config.key_value_heads * config.head_dim
    attention_ = 2 * config.model_dim**2 + 2 * config.model_dim * key_value_dim
    mlp = 3 * config.model_dim * config.hidden_dim
    norms = 2 * config.model_dim
    tables = (1 if tied else 2) * config.vocabulary_size * config.model_dim
    return tables + config.num_blocks * (attention_ + mlp + norms) + config.model_dim


def cache_bytes(config: ModelConfig, num_tokens: int, *, bytes_per_number: int = 2) -> int:
    """How many bytes the keys and values of a text take, in all blocks.

    Parameters
    ----------
    config : ModelConfig
        With a `window`, no more positions than that need to be kept: none that comes later sees the others.
        (The course's :class:`KeyValueCache` keeps all.)
    num_tokens : int
    bytes_per_number : int
        2 for half precision.

    Returns
    -------
    int
    """
    require_count("num_tokens", num_tokens, least=0)
    require_count("bytes_per_number", bytes_per_number, least=1)
    kept = num_tokens if config.window is None else min(num_tokens, config.window)
    return 2 * config.num_blocks * config.key_value_heads * config.head_dim * kept * bytes_per_number


def induction_score(weights: Tensor, period: int) -> Tensor:
    """How much a head looks where the last copy of its token was followed by the next one.

    The text is a passage of `period` tokens that is read again and again. At a token of a
    later reading, the same token stood `period` places before, and what came after it
    `period` - 1 places before.

    Parameters
    ----------
    weights : Tensor, shape (..., positions, positions)
        Attention weights over the text.
    period : int
        At least 2 and less than the number of positions.

    Returns
    -------
    Tensor, shape (...)
        The mean, over all positions of later readings, of the weight `period` - 1 places before.

    Raises
    ------
    ValueError
        If `weights` is not square, or `period` is not in that range.
    TypeError
        If an argument is of another type.

    References
    ----------
    Olsson et al., *In-context learning and induction heads*, 2022.
    """
    require_floating("weights", weights)
    require_count("period", period, least=2)
    if weights.dim() < 2 or weights.shape[-1] != weights.shape[-2] or weights.shape[-1] <= period:
        raise ValueError(
            f"weights has shape {shape_of(weights)} and period is {period}: expected "
            "(..., positions, positions) with more positions than the period"
        )
    # The diagonal begins at query period - 1, which is still of the first reading.
    return weights.diagonal(1 - period, dim1=-2, dim2=-1)[..., 1:].mean(-1)


def require_tokens(tokens: Tensor, vocabulary_size: int) -> None:
    """Say which token is none of the model's."""
    require_tensor("tokens", tokens)
    if tokens.dtype not in (torch.int64, torch.int32) or tokens.dim() < 1:
        raise ValueError(
            f"tokens has shape {shape_of(tokens)} and dtype {tokens.dtype}: expected (..., positions) "
            "of torch.int64"
        )
    wrong = tokens[(tokens < 0) | (tokens >= vocabulary_size)]
    if len(wrong):
        raise ValueError(
            f"tokens holds {int(wrong[0])}: expected numbers from 0 to {vocabulary_size - 1}, "
            f"as the model knows {vocabulary_size} tokens"
        )


def _require_features(name: str, x: Tensor, dim: int) -> None:
    require_floating(name, x)
    if x.dim() < 1 or x.shape[-1] != dim:
        raise ValueError(f"{name} has shape {shape_of(x)}: expected the last dimension to be {dim}")


def _require_heads(model_dim: int, num_heads: int, num_key_value_heads: int) -> None:
    require_count("model_dim", model_dim, least=1)
    require_count("num_heads", num_heads, least=1)
    require_count("num_key_value_heads", num_key_value_heads, least=1)
    if model_dim % num_heads:
        raise ValueError(
            f"model_dim is {model_dim} and num_heads is {num_heads}: expected a multiple of num_heads"
        )
    require_groups(num_heads, num_key_value_heads)


def _require_rotary(head_dim: int, base: float, scale: float) -> None:
    if head_dim % 2:
        raise ValueError(
            f"model_dim / num_heads is {head_dim}: expected an even number, as rotary positions turn "
            "features in pairs"
        )
    if not base > 1:
        raise ValueError(f"rotary_base is {base}: expected a number greater than 1")
    if not scale > 0:
        raise ValueError(f"rotary_scale is {scale}: expected a number greater than 0")


def _require_positions(name: str, x: Tensor, shape: torch.Size, cache: KeyValueCache | None) -> None:
    """Say that there is no position, or that those in the cache are of other texts."""
    if shape[-1] == 0:
        raise ValueError(f"{name} has shape {shape_of(x)}: expected at least one position")
    if cache is not None and len(cache) and cache.key.shape[:-3] != shape[:-1]:
        raise ValueError(
            f"{name} has shape {shape_of(x)}, and the cache holds keys of shape {shape_of(cache.key)}: "
            f"expected the leading dimensions {tuple(cache.key.shape[:-3])}; take a new cache for other texts"
        )


def _require_head_mask(head_mask: Tensor, shape: tuple[int, ...]) -> None:
    require_tensor("head_mask", head_mask)
    if shape_of(head_mask) != shape:
        raise ValueError(
            f"head_mask has shape {shape_of(head_mask)}: expected {shape}, a number for each head"
        )


def _require_todays(config: ModelConfig) -> None:
    if (config.norm, config.mlp, config.positions) != ("rms", "swiglu", "rotary"):
        raise ValueError(
            f"config has norm={config.norm!r}, mlp={config.mlp!r} and positions={config.positions!r}: "
            "expected 'rms', 'swiglu' and 'rotary', the block of today"
        )
