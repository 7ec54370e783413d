"""What LLM.get_metrics() returns, with vLLM's names: the samples of GET /metrics."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Dict, List, Tuple, Union

Labels = Dict[str, str]

_SAMPLE = re.compile(r'([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})? ([^ ]+)')
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = {"\\\\": "\\", "\\\"": "\"", "\\n": "\n"}


@dataclass
class Metric:
    """A metric of the service with its labels."""

    name: str
    labels: Labels


@dataclass
class Counter(Metric):
    """A number that only grows."""

    value: Union[int, float]


@dataclass
class Gauge(Metric):
    """A number of now."""

    value: float


@dataclass
class Histogram(Metric):
    """Observations, counted by their upper bounds.

    Attributes:
        count: all of them.
        sum: of their values.
        buckets: how many are at most the bound, for each bound as the service writes it; "+Inf" has all.
    """

    count: int = 0
    sum: float = 0.0
    buckets: Dict[str, int] = field(default_factory=dict)


def _labels(text: str) -> Labels:
    return {name: re.sub(r'\\[\\"n]', lambda m: _ESCAPED[m.group()], value) for name, value in _LABEL.findall(text)}


def read_metrics(text: str) -> List[Metric]:
    """The metrics of Prometheus' text format, in their order."""
    out: List[Metric] = []
    kinds: Dict[str, str] = {}
    histograms: Dict[Tuple[str, Tuple[Tuple[str, str], ...]], Histogram] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, _, kind = line[7:].partition(" ")
            kinds[name] = kind.strip()
        sample = None if line.startswith("#") else _SAMPLE.match(line)
        if sample is None:
            continue
        name, labels, value = sample.group(1), _labels(sample.group(2) or ""), float(sample.group(3))
        base, _, part = name.rpartition("_")
        if kinds.get(base) == "histogram" and part in ("bucket", "sum", "count"):
            bound = labels.pop("le", "")
            key = (base, tuple(sorted(labels.items())))
            if key not in histograms:
                histograms[key] = Histogram(base, labels)
                out.append(histograms[key])
            h = histograms[key]
            if part == "bucket":
                h.buckets[bound] = int(value)
            elif part == "sum":
                h.sum = value
            else:
                h.count = int(value)
        elif kinds.get(name) == "counter":
            out.append(Counter(name, labels, int(value) if value.is_integer() else value))
        else:
            out.append(Gauge(name, labels, value))
    return out
