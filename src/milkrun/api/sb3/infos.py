"""SharedInfo: the one dict that stands in a step's list for all rows that go on and did nothing illegal.

Stable-Baselines3 asks for a dict a row and reads those of rows that ended. Making a thousand that nobody reads takes
longer than the step, so the others are one object, which nobody may write into.
"""

from __future__ import annotations

from typing import Any, NoReturn

from milkrun.core.errors import UnknownName


class SharedInfo(dict[str, Any]):
    """A dict of many rows: read-only, and what it lacks it explains. A copy of it is a plain dict."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            'many rows share this info, so it cannot be written: infos="fresh" gives each row a dict of its own'
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __missing__(self, key: str) -> NoReturn:
        raise UnknownName(f'{key!r} is not in an info that many rows share: infos="fresh" has all of each row')

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
