"""Score definition of a layer: overridable methods, or a `Scoring` record."""

from typing import Any

from .._checks.call_arguments import check_given, check_last_axis, check_pooling_shapes, check_same_size
from .._maths.heads import apply_per_head
from .._states.cache import Keys, check_projected, refuse_state
from .._types import Heads, Shape, Tensor
from .attention_call import AttentionCall
from .attention_layer import AttentionLayer
from .scoring import Scoring

_SCORE_METHODS = {"score", "project_keys", "score_projected", "_scoring"}


class ScoringLayer(AttentionLayer):
    """The part of `AttentionPooling` that knows the score.

    A layer of this package gives `_scoring`, and `project_keys` and `_project_queries` where it projects. One of a
    user's gives `score`, or its two parts.

    Attributes:
        _same_size_reason: Why a query and a key must have one size, where they must.
        _kernel_names: Names of the kernels that queries and keys meet, where there are such.
    """

    _same_size_reason: str | None = None
    _kernel_names: tuple[str, str] | None = None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._sizes: tuple[int | None, int | None] = (None, None)

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        """Check the shapes, and make the weights."""
        refuse_state(keys_shape)
        check_given(keys=keys_shape, values=values_shape)  # Keras leaves out the shape of what is None
        self.check_shapes(tuple(queries_shape), tuple(keys_shape), tuple(values_shape))
        self._sizes = (queries_shape[-1], keys_shape[-1])

    def check_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> None:
        """Raises ValueError when shapes do not agree, with each other or the kernels; a subclass may add rules."""
        check_pooling_shapes(queries_shape, keys_shape, values_shape)
        if self._same_size_reason is not None:
            check_same_size(self._same_size_reason, queries_shape, keys_shape)
        if self._kernel_names is not None:
            check_last_axis("queries", queries_shape, self._kernel_names[0], self._sizes[0])
            check_last_axis("keys", keys_shape, self._kernel_names[1], self._sizes[1])

    def score(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores each query against each key: `B + (Tq, Dq)` and `B + (Tk, Dk)` to `B + (Tq, Tk)`."""
        if {type(self).score_projected, type(self)._scoring} == {ScoringLayer.score_projected, ScoringLayer._scoring}:
            raise NotImplementedError(f"{type(self).__name__} must define `score(queries, keys)`.")
        return self.score_projected(queries, self.project_keys(keys))

    def project_keys(self, keys: Tensor) -> Tensor:
        """Computes the part of the score that depends on keys alone, `B + (Tk, Dk)` to `B + (Tk, ...)`.

        By default this is the keys themselves.
        """
        return keys

    def score_projected(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Scores queries `B + (Tq, Dq)` against keys as `project_keys` returns them: `B + (Tq, Tk)`."""
        if type(self)._scoring is not ScoringLayer._scoring:
            return self._scoring(AttentionCall(queries, Keys(keys, projected=True), None)).scores()
        if type(self).score is ScoringLayer.score:
            raise NotImplementedError(f"{type(self).__name__} must define `score(queries, keys)`.")
        return self.score(queries, keys)

    def projected_size(self, queries_size: int | None) -> int | None:
        """The size of projected keys for queries of size Dq; None if it is unknown or any size will do."""
        return None if self._same_size_reason is None else queries_size

    def _scoring(self, call: AttentionCall) -> Scoring:
        """The scores of a call, of which queries and keys may hold anything where they are masked.

        A layer of this package gives a function and its data, from which its `score` and `score_projected`, and what an
        exporter writes, follow.
        """
        return self._scoring_by_methods(call)

    def _scoring_by_methods(self, call: AttentionCall) -> Scoring:
        """The scores of a call by the methods of a user's subclass, which may call their arguments as it likes."""
        score = self.score_projected if call.keys.projected and self._has_split_score else self.score
        tensors = {"queries": call.queries, "keys": call.keys.tensor}
        return Scoring(None, lambda queries, keys: score(queries, keys), tensors)

    def _project_inputs(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        """Queries and keys of a call as both `_scoring` and an exporter read them, projected in each head."""
        heads, keys = call.heads or Heads(), call.keys.tensor
        if not call.keys.projected:
            keys = apply_per_head(self.project_keys, keys, heads.of_keys)
        return apply_per_head(self._project_queries, call.queries, heads.of_queries), keys

    def _project_queries(self, queries: Tensor) -> Tensor:
        """What of the score depends on queries alone."""
        return queries

    @property
    def _defined_methods(self) -> set[str]:
        """What of the score is given by the most derived class that gives anything of it: that counts."""
        return next(methods for cls in type(self).__mro__ if (methods := _SCORE_METHODS & vars(cls).keys()))

    @property
    def _has_builtin_scoring(self) -> bool:
        """Whether `_scoring` speaks of this score: a subclass may override the score alone."""
        return "_scoring" in self._defined_methods

    @property
    def _has_split_score(self) -> bool:
        """Whether `score` is made of its two parts: a subclass may override the whole alone."""
        return self._defined_methods != {"score"}

    def _project(self, keys: Tensor, offset: Any) -> Tensor:
        return self.project_keys(keys) if self._has_split_score else keys

    def _checked_shapes(self, queries_shape: Shape, keys: Keys, values_shape: Shape) -> tuple[Shape, Shape, Shape]:
        shapes = queries_shape, keys.tensor, values_shape
        if keys.projected:
            check_pooling_shapes(*shapes)
            check_projected(keys.tensor, self.projected_size(queries_shape[-1]) if self._has_split_score else None)
        else:
            self.check_shapes(*shapes)
        return shapes
