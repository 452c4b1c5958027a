"""Tables of cases that one test goes through, for checks that cost less than a test does."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

Test = Callable[..., None]


def cases_in_one_test(names: str, cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Call the test for each case, as ``pytest.mark.parametrize`` would, but as a single test.

    A failure names its case. The cases share the fixtures of the test, so it must not change them.
    """
    arguments = names.replace(" ", "").split(",")
    table = [case if len(arguments) > 1 else (case,) for case in cases]
    assert table, "there is no case"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def all_cases(**fixtures: Any) -> None:
            for number, case in enumerate(table):
                values = dict(zip(arguments, case, strict=True))
                try:
                    test(**values, **fixtures)
                except BaseException as error:
                    error.add_note(f"case {number}: {values!r}")
                    raise

        signature = inspect.signature(test)
        others = [each for name, each in signature.parameters.items() if name not in arguments]
        all_cases.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return all_cases

    return decorate
