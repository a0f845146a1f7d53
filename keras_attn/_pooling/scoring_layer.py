"""Score definition of a layer: overridable methods, or a `Scoring` record."""

from typing import Any

from .._checks.call_arguments import check_last_axis, check_not_none, check_pooling_shapes, check_same_size
from .._maths.heads import apply_per_head
from .._states.cache import KeyInput, check_not_cache, check_projected_size
from .._types import Heads, Shape, Tensor
from .attention_call import AttentionCall
from .attention_layer import AttentionLayer
from .scoring import Scoring

_SCORE_METHODS = {"score", "project_keys", "score_projected", "_scoring"}


class ScoringLayer(AttentionLayer):
    """Base class of `AttentionPooling` with the methods that define the score.

    A layer of this package defines `_scoring`, and `project_keys` and `_project_queries` if it projects. A layer of a
    user defines `score`, or `project_keys` and `score_projected`.
    """

    _equal_sizes_reason: str | None = None  # why Dq and Dk must be equal, for the error message; None if they need not
    _kernel_names: tuple[str, str] | None = None  # kernels that multiply queries and keys

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._sizes: tuple[int | None, int | None] = (None, None)

    def build(self, queries_shape: Any, keys_shape: Any = None, values_shape: Any = None) -> None:
        """Check the shapes and create the weights."""
        check_not_cache(keys_shape)
        check_not_none(keys=keys_shape, values=values_shape)  # Keras omits the shapes of arguments that are None
        self.check_shapes(tuple(queries_shape), tuple(keys_shape), tuple(values_shape))
        self._sizes = (queries_shape[-1], keys_shape[-1])

    def check_shapes(self, queries_shape: Shape, keys_shape: Shape, values_shape: Shape) -> None:
        """Raise ValueError unless the shapes `B + (T, D)` fit each other and the kernels; subclasses may add rules."""
        check_pooling_shapes(queries_shape, keys_shape, values_shape)
        if self._equal_sizes_reason is not None:
            check_same_size(self._equal_sizes_reason, queries_shape, keys_shape)
        if self._kernel_names is not None:
            check_last_axis("queries", queries_shape, self._kernel_names[0], self._sizes[0])
            check_last_axis("keys", keys_shape, self._kernel_names[1], self._sizes[1])

    def score(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the scores `B + (Tq, Tk)` of queries `B + (Tq, Dq)` and keys `B + (Tk, Dk)`."""
        if {type(self).score_projected, type(self)._scoring} == {ScoringLayer.score_projected, ScoringLayer._scoring}:
            raise NotImplementedError(f"{type(self).__name__} must define `score(queries, keys)`.")
        return self.score_projected(queries, self.project_keys(keys))

    def project_keys(self, keys: Tensor) -> Tensor:
        """Return the part of the score that depends on keys `B + (Tk, Dk)` alone, `B + (Tk, ...)`: here the keys."""
        return keys

    def score_projected(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the scores `B + (Tq, Tk)` of queries `B + (Tq, Dq)` and the result of `project_keys`."""
        if type(self)._scoring is not ScoringLayer._scoring:
            return self._scoring(AttentionCall(queries, KeyInput(keys, projected=True), None)).scores()
        if type(self).score is ScoringLayer.score:
            raise NotImplementedError(f"{type(self).__name__} must define `score(queries, keys)`.")
        return self.score(queries, keys)

    def projected_size(self, queries_size: int | None) -> int | None:
        """Return the size of projected keys for queries of size Dq; None if it is unknown or arbitrary."""
        return None if self._equal_sizes_reason is None else queries_size

    def _scoring(self, call: AttentionCall) -> Scoring:
        """Return the scoring function of a call, whose masked queries and keys may be arbitrary.

        `score`, `score_projected` and the exported graph of a layer of this package follow from the result.
        """
        return self._scoring_by_methods(call)

    def _scoring_by_methods(self, call: AttentionCall) -> Scoring:
        """Return a scoring function that calls the methods of a subclass, whose parameters may have any names."""
        score = self.score_projected if call.keys.projected and self._has_split_score else self.score
        tensors = {"queries": call.queries, "keys": call.keys.tensor}
        return Scoring(None, lambda queries, keys: score(queries, keys), tensors)

    def _project_inputs(self, call: AttentionCall) -> tuple[Tensor, Tensor]:
        """Return queries `B + (Tq, H ...)` and keys `B + (Tk, G ...)` of a call, projected in every head."""
        heads, keys = call.heads or Heads(), call.keys.tensor
        if not call.keys.projected:
            keys = apply_per_head(self.project_keys, keys, heads.num_kv_heads)
        return apply_per_head(self._project_queries, call.queries, heads.num_query_heads), keys

    def _project_queries(self, queries: Tensor) -> Tensor:
        """Return the part of the score that depends on queries `B + (Tq, Dq)` alone."""
        return queries

    @property
    def _defined_methods(self) -> set[str]:
        """Names in `_SCORE_METHODS` that the most derived class with any of them defines; base classes are ignored."""
        return next(methods for cls in type(self).__mro__ if (methods := _SCORE_METHODS & vars(cls).keys()))

    @property
    def _has_builtin_scoring(self) -> bool:
        """True if `_scoring` defines the score, False if a subclass overrides only the public methods."""
        return "_scoring" in self._defined_methods

    @property
    def _has_split_score(self) -> bool:
        """True if `project_keys` and `score_projected` define the score, False if a subclass overrides only `score`."""
        return self._defined_methods != {"score"}

    def _project_keys(self, keys: Tensor, offset: Any) -> Tensor:
        return self.project_keys(keys) if self._has_split_score else keys

    def _check_shapes(self, queries_shape: Shape, keys: KeyInput, values_shape: Shape) -> tuple[Shape, Shape, Shape]:
        shapes = queries_shape, keys.tensor, values_shape
        if keys.projected:
            check_pooling_shapes(*shapes)
            check_projected_size(keys.tensor, self.projected_size(queries_shape[-1]) if self._has_split_score else None)
        else:
            self.check_shapes(*shapes)
        return shapes
