"""Strict parser of Prometheus' text format: it rejects what a scraper might tolerate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

Labels = frozenset[tuple[str, str]]

_NAME = r"[a-zA-Z_][a-zA-Z0-9_]*"
_PAIR = re.compile(rf'({_NAME})="((?:[^"\\\n]|\\["\\n])*)"')
_SAMPLE = re.compile(rf'({_NAME})(?:\{{((?:{_NAME}="(?:[^"\\\n]|\\["\\n])*",?)+)\}})? (\S+)')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


@dataclass
class Family:
    """One metric."""

    name: str
    kind: str
    help: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict[tuple[str, Labels], float])

    def value(self, suffix: str = "", **labels: str) -> float:
        """The value with exactly these labels."""
        return self.samples[self.name + suffix, frozenset(labels.items())]

    def labels(self, name: str) -> set[str]:
        """The values of a label."""
        return {dict(labels)[name] for _, labels in self.samples}


class Scrape(dict[str, Family]):
    """All metrics of a scrape."""

    def __call__(self, name: str, suffix: str = "", **labels: str) -> float:
        """The value of one sample."""
        return self[name].value(suffix, **labels)

    def growing(self) -> dict[tuple[str, Labels], float]:
        """The samples that must never decrease."""
        families = [family for family in self.values() if family.kind != "gauge"]
        return {key: value for family in families for key, value in family.samples.items()}


def parse(text: str) -> Scrape:
    """Parse an exposition. Raises `AssertionError` if it is not valid."""
    assert text.endswith("\n")
    scrape = Scrape()
    family: Family | None = None
    lines = iter(text[:-1].split("\n"))
    for line in lines:
        if line.startswith("# HELP "):
            family = _head(line, next(lines))
            assert family.name not in scrape, f"{family.name} occurs twice"
            scrape[family.name] = family
        else:
            assert family is not None
            _sample(family, line)
    for family in scrape.values():
        _check(family)
    return scrape


def _head(help: str, kind: str) -> Family:
    _, _, name, meaning = help.split(" ", 3)
    assert re.fullmatch(_NAME, name)
    assert meaning.endswith("."), f"{name} has no help text that is a sentence"
    match = re.fullmatch(rf"# TYPE {name} (counter|gauge|histogram)", kind)
    assert match, kind
    return Family(name, match[1], meaning)


def _sample(family: Family, line: str) -> None:
    match = _SAMPLE.fullmatch(line)
    assert match, line
    name, inner, value = match.groups()
    suffixes = ("_bucket", "_sum", "_count") if family.kind == "histogram" else ("",)
    assert name in [family.name + suffix for suffix in suffixes], line
    pairs = [(label, _unescaped(text)) for label, text in _PAIR.findall(inner or "")]
    assert len(dict(pairs)) == len(pairs), f"a label occurs twice: {line}"
    key = name, frozenset(pairs)
    assert key not in family.samples, f"a sample occurs twice: {line}"
    family.samples[key] = float(value)


def _unescaped(text: str) -> str:
    return re.sub(r"\\.", lambda found: _ESCAPES[found[0]], text)


def _check(family: Family) -> None:
    assert (family.kind == "counter") == family.name.endswith("_total"), family.name
    if family.kind == "counter":
        assert all(value >= 0 and value == int(value) for value in family.samples.values()), family.name
    if family.kind == "histogram":
        for labels, buckets in _series(family):
            edges = [edge for edge, _ in buckets]
            assert edges == sorted(set(edges)), family.name
            assert edges[-1] == float("inf"), family.name
            assert all(low <= high for (_, low), (_, high) in pairwise(buckets)), f"{family.name} is not cumulative"
            assert buckets[-1][1] == family.samples[f"{family.name}_count", labels]
            assert family.samples[f"{family.name}_sum", labels] >= 0


def _series(family: Family) -> Iterator[tuple[Labels, list[tuple[float, float]]]]:
    series: dict[Labels, list[tuple[float, float]]] = {}
    for (name, labels), value in family.samples.items():
        if name.endswith("_bucket"):
            edge = dict(labels)["le"]
            series.setdefault(labels - {("le", edge)}, []).append((float(edge), value))
    return iter(series.items())
