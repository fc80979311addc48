"""What an index is and what it costs, in public numbers that are known before anything is queried.

No enclave imports this module: it is outside of the measured core, like `plot.py` and `price.py`.
"""

from dataclasses import asdict, dataclass

from scumble.index.contract import RunIndex
from scumble.index.file import IndexModel, domain_bytes, encode, fixed_bytes

__all__ = ["IndexSummary", "summarize"]


@dataclass(frozen=True)
class IndexSummary:
    """Size, width and privacy of a fitted index.

    `bytes` is the length of its file, of which `domain_bytes` are the domain, with its list if it has one, and
    `hint_bytes` the public hint that it follows, 0 if none; `max_error`
    bounds the fit to the noisy curve, `slack_rows` is what each end of a lookup is widened by (in padded blocks, by the
    largest of their slacks), and `expected_overhead_rows` what a lookup reads beyond its answer; `beta` bounds the
    chance that any lookup at all loses a row. A comparator has neither segments nor a slack of a kind: these are 0
    and "none", and `slack_rows` what its lookups are widened by on average.
    """

    mechanism: str
    slack: str
    epsilon: float
    delta: float
    beta: float
    segments: int
    bytes: int
    domain_bytes: int
    hint_bytes: int
    bits_per_segment: float
    max_error: int
    slack_rows: int
    expected_overhead_rows: int
    capacity: int
    blocks: int
    levels: int
    domain: str
    domain_size: int

    def as_dict(self) -> dict[str, str | int | float]:
        return asdict(self)

    @property
    def shape(self) -> str:
        """What it is made of: "1 segment", "1,200 segments"; of a comparator, its name."""
        if not self.segments:
            return self.mechanism
        return f"{self.segments:,} segment{'' if self.segments == 1 else 's'}"

    def __str__(self) -> str:
        width = max(map(len, self.as_dict()))
        return "\n".join(f"{name:<{width}}  {_shown(value)}" for name, value in self.as_dict().items())

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{name}</th><td>{_shown(value)}</td></tr>" for name, value in self.as_dict().items())
        return f"<table>{rows}</table>"


def summarize(model: RunIndex) -> IndexSummary:
    """Sum up a fitted index."""
    return _summary(model) if isinstance(model, IndexModel) else _of_comparator(model)


def _of_comparator(model: RunIndex) -> IndexSummary:
    return IndexSummary(
        mechanism=model.mechanism,
        slack="none",
        epsilon=float(model.epsilon),
        delta=float(model.delta),
        beta=float(model.beta),
        segments=0,
        bytes=len(model.to_bytes()),
        domain_bytes=domain_bytes(model.domain),
        hint_bytes=0,
        bits_per_segment=0,
        max_error=0,
        slack_rows=model.usual_slack,
        expected_overhead_rows=min(model.extra_rows([(0, 0)], 1), model.capacity),
        capacity=model.capacity,
        blocks=1 if model.blocks is None else len(model.blocks),
        levels=0,
        domain=model.domain.label,
        domain_size=model.domain.size,
    )


def _summary(model: IndexModel) -> IndexSummary:
    segments = model.segments
    file_bytes = len(encode(model))
    listed_bytes = domain_bytes(model.domain)
    fixed = fixed_bytes(model.domain, model.epsilon, model.delta, model.beta)
    hint_bytes = 0 if model.hint is None else len(model.hint.packed)
    packed = file_bytes - fixed - (listed_bytes if model.domain.is_list else 0) - hint_bytes
    return IndexSummary(
        mechanism=model.mechanism,
        slack=model.slack,
        epsilon=float(model.epsilon),
        delta=float(model.delta),
        beta=float(model.beta),
        segments=len(segments),
        bytes=file_bytes,
        domain_bytes=listed_bytes,
        hint_bytes=hint_bytes,
        bits_per_segment=round(8 * packed / len(segments), 1),
        max_error=segments.max_error,
        slack_rows=model.slack_rows,
        expected_overhead_rows=min(2 * model.usual_slack, model.capacity),
        capacity=model.capacity,
        blocks=1 if model.blocks is None else len(model.blocks),
        levels=model.levels,
        domain=model.domain.label,
        domain_size=model.domain.size,
    )


def _shown(value: float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else value
