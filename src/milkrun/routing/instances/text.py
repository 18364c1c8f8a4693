"""The text of an instance file; every fault names file, line and section.

`Text` decodes the file, splits it into lines and parses numbers strictly (no NaN, no infinity, no digit grouping).
`Page` splits a TSPLIB-like file into entries (`KEY : value`) and sections. Neither depends on a problem.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from milkrun.core.errors import FormatError, did_you_mean
from milkrun.core.files import REAL, WHOLE, decoded, name_of, read_bytes, short

# Consecutive repetitions match disjoint characters; otherwise a line of blanks would take quadratic time.
ENTRY = re.compile(r"\s*([A-Za-z][A-Za-z0-9_]*)\s*:(.*)")
SECTION = re.compile(r"\s*([A-Za-z_]+_SECTION)(?:\s*:)?\s*")
BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x19\x1b-\x1f]")  # controls but line ends, tab and the DOS end-of-file mark
LARGEST = 1e30  # within float32, with room for sums


def number_in(comment: str, pattern: re.Pattern[str]) -> float | None:
    """The number that a pattern finds in a comment; None if there is none or if it is too large."""
    found = pattern.search(comment)
    value = math.inf if found is None else float(found[1] or found[2])
    return value if value <= LARGEST else None


@dataclass(frozen=True)
class Line:
    """A line that is not blank: its number in the file and its words."""

    number: int
    words: list[str]


class Text:
    """The lines of a file, with parsers that report faults by line."""

    def __init__(self, file: str, raw: bytes) -> None:
        self.file = file
        if found := BINARY.search(raw):
            line = raw.count(b"\n", 0, found.start()) + 1
            raise self.fault(line, None, f"byte {raw[found.start()]:#04x}: this is not a text file")
        self.lines = decoded(raw).rstrip("\x1a").split("\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Text:
        return cls(name_of(path), read_bytes(path))

    def fault(self, line: int | None, section: str | None, sentence: str) -> FormatError:
        where = [self.file, *([] if line is None else [f"line {line}"]), *([section] if section else [])]
        return FormatError(f"{', '.join(where)}: {sentence}")

    def filled(self) -> Iterable[Line]:
        """The lines that are not blank."""
        for k, line in enumerate(self.lines, start=1):
            if words := line.split():
                yield Line(k, words)

    def refuse_a_cut_line(self, section: str | None) -> None:
        """Refuses a file without a final line end, since its last number may be truncated."""
        if self.lines[-1].strip():
            raise self.fault(len(self.lines), section, "the file stops within a line: its end may be missing")

    def real(self, word: str, line: int, section: str | None, low: float = -LARGEST) -> float:
        if REAL.fullmatch(word) is None:
            raise self.fault(line, section, f"{short(word)} is not a number")
        value = float(word)
        if not math.isfinite(value) or abs(value) > LARGEST:
            raise self.fault(line, section, f"{short(word)} is too large: at most {LARGEST:g}")
        if value < low:
            raise self.fault(line, section, f"{short(word)} is below {low:g}")
        return value

    def scaled(self, word: str, line: int, section: str | None, low: float, power: int) -> float:
        """A number times 10 to a power, with a single rounding: ten times 10.07 is 100.7, and written tenths read back
        equal."""
        value = self.real(word, line, section, low)
        # 0 bypasses Decimal, which refuses exponents that float64 reads as 0.
        return float(Decimal(word).scaleb(power)) if value and power else value

    def tenths(self, word: str, line: int, section: str | None, low: float = -LARGEST) -> float:
        """Ten times a number."""
        return self.scaled(word, line, section, low, 1)

    def whole(self, word: str, line: int, section: str | None, low: int, high: int) -> int:
        # int() raises its own error beyond 4300 digits; `real` reports such numbers properly.
        if WHOLE.fullmatch(word) is None or len(word) > 20:
            value = self.real(word, line, section)
            if value != math.floor(value):
                raise self.fault(line, section, f"{short(word)} is not a whole number")
        else:
            value = int(word)
        if not low <= value <= high:
            raise self.fault(line, section, f"{short(word)} is not within {low}..{high}")
        return int(value)


class Page:
    """A TSPLIB-like text: entries and sections of lines, ended by EOF or by a line end."""

    def __init__(self, text: Text, keys: Iterable[str], sections: Iterable[str]) -> None:
        self.text = text
        self.entries: dict[str, tuple[str, int]] = {}
        self.sections: dict[str, list[Line]] = {}
        self.starts: dict[str, int] = {}
        self.comment = ""
        self.current: str | None = None
        keys, sections = set(keys), set(sections)
        for line in text.filled():
            if line.words == ["EOF"]:
                break
            if line.words[0].startswith("#"):  # a comment
                continue
            self._take(line, text.lines[line.number - 1], keys, sections)
        else:
            text.refuse_a_cut_line(self.current)

    def _take(self, line: Line, raw: str, keys: set[str], sections: set[str]) -> None:
        if found := SECTION.fullmatch(raw):
            name = found[1].upper()
            if name not in sections:
                raise self.text.fault(line.number, name, f"an unknown section{did_you_mean(name, sections)}")
            if name in self.sections:
                raise self.text.fault(line.number, name, f"a second time; the first is in line {self.starts[name]}")
            self.current, self.sections[name], self.starts[name] = name, [], line.number
        elif found := ENTRY.fullmatch(raw):
            self._enter(found[1].upper(), found[2].strip(), line.number, keys)
        elif self.current is None:
            raise self.text.fault(line.number, None, f"{short(raw.strip())} is neither `KEY : value` nor a section")
        else:
            self.sections[self.current].append(line)

    def _enter(self, key: str, value: str, number: int, keys: set[str]) -> None:
        if key == "COMMENT":
            self.comment = f"{self.comment}\n{value}".strip()
            return
        if key not in keys:
            raise self.text.fault(number, key, f"an unknown key{did_you_mean(key, keys)}")
        if key in self.entries:
            raise self.text.fault(number, key, f"a second time; the first is in line {self.entries[key][1]}")
        self.entries[key] = value, number
        self.current = None

    def only(self, keys: Iterable[str], sections: Iterable[str], kind: str) -> None:
        """Refuses keys and sections that have no meaning in this kind of file and would be ignored."""
        for key, (_, number) in self.entries.items():
            if key not in keys:
                raise self.text.fault(number, key, f"has no meaning in a {kind} file")
        for name, number in self.starts.items():
            if name not in sections:
                raise self.text.fault(number, name, f"has no meaning in a {kind} file")

    def word(self, key: str, allowed: Iterable[str] | Mapping[str, object]) -> str:
        """The value of a required key, one of `allowed`; an author in parentheses may follow it."""
        value, number = self._entry(key)
        word = value.partition("(")[0].strip().upper()
        if word not in allowed:
            raise self.text.fault(number, key, f"{short(value)} is not supported; supported: {', '.join(allowed)}")
        return word

    def whole(self, key: str, low: int, high: int) -> int:
        value, number = self._entry(key)
        return self.text.whole(value, number, key, low, high)

    def real(self, key: str, default: float, low: float) -> float:
        if key not in self.entries:
            return default
        value, number = self.entries[key]
        return self.text.real(value, number, key, low)

    def scaled(self, key: str, low: float, power: int) -> float:
        """A value times 10 to a power, 0 if the key is absent."""
        value, number = self.entries.get(key, ("0", 0))
        return self.text.scaled(value, number, key, low, power)

    def lines(self, section: str) -> list[Line]:
        if section not in self.sections:
            raise self.text.fault(None, section, "this section is missing")
        return self.sections[section]

    def table(
        self, section: str, rows: int, columns: int, low: float, power: int = 0, key: str = "DIMENSION"
    ) -> list[tuple[int, list[float]]]:
        """A section of `node value ...` lines, one for each node 1..rows in any order, as (line, values) by node.

        The values are multiplied by 10 to the `power`; `key` is the entry that states the number of lines.
        """
        lines, what = self.lines(section), "node" if key == "DIMENSION" else "vehicle"
        if len(lines) != rows:
            last = lines[-1].number if lines else self.starts[section]
            raise self.text.fault(last, section, f"{len(lines)} lines, but {key} is {rows}")
        found: dict[int, tuple[int, list[float]]] = {}
        for line in lines:
            if len(line.words) != columns + 1:
                raise self.text.fault(line.number, section, f"{len(line.words)} words; a line has {columns + 1}")
            node = self.text.whole(line.words[0], line.number, section, 1, rows)
            if node in found:
                raise self.text.fault(line.number, section, f"{what} {node} is also in line {found[node][0]}")
            found[node] = line.number, [self.text.scaled(w, line.number, section, low, power) for w in line.words[1:]]
        return [found[node] for node in range(1, rows + 1)]

    def stream(self, section: str, low: float) -> list[float]:
        """All numbers of a section, regardless of line breaks."""
        return [self.text.real(w, line.number, section, low) for line in self.lines(section) for w in line.words]

    def _entry(self, key: str) -> tuple[str, int]:
        if key not in self.entries:
            raise self.text.fault(None, key, "this key is missing")
        return self.entries[key]
