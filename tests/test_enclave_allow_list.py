"""The enclave's Python applies only listed operations to secrets, and what is not listed is found."""

import pytest
from verify import allow_list
from verify.python_side import allow_list_row


def test_enclave_uses_nothing_that_is_not_listed() -> None:
    assert [str(found) for found in allow_list.in_package()] == []


@pytest.mark.parametrize("name", allow_list.PLANTED)
def test_planted_violations_are_found(name: str) -> None:
    assert allow_list.in_source(allow_list.PLANTED[name])


def test_row_of_the_table_holds() -> None:
    row = allow_list_row()
    assert row.ok
    assert set(row.planted) == set(allow_list.PLANTED)


def test_no_exception_is_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    exceptions = set(allow_list.EXCEPTIONS)
    monkeypatch.setattr(allow_list, "EXCEPTIONS", {})
    assert {(found.file, found.code) for found in allow_list.in_package()} == exceptions


def test_every_listed_operation_is_used() -> None:
    """A list that is longer than it needs to be allows what nobody has looked at."""
    source = "\n".join(path.read_text() for path in allow_list.ENCLAVE.glob("*.py"))
    assert [name for name in allow_list.NUMPY if f"np.{name}" not in source] == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(x: Words) -> int:\n    return 1 if x.ndim == 1 else x.shape[1]",
        "def f(valid: Mask | None) -> bool:\n    return valid is None",
        "def f(values: Words, mask: Mask) -> Words:\n    return values & -mask[:, None]",
        "def f(mask: Mask) -> int:\n    n = len(mask)\n    return n if n > 3 else 3",
        "def f(words: int) -> int:\n    return words if words else 1",
    ],
)
def test_what_is_public_decides_freely(source: str) -> None:
    assert allow_list.in_source(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "def f(x: Words) -> int:\n    y = x + 1\n    z = y\n    return 1 if z[0] else 2",
        "def f(batch):\n    column = batch.column(3)\n    while column.values[0]:\n        pass",
        "def f(n: int, x: Words) -> Words:\n    out = np.zeros(n)\n    out[0] = x[0]\n    return x[out]",
        "def f(x: Words) -> list[int]:\n    return [row for row in x if row > 3]",
        "def f(x: Words) -> bool:\n    return x[0] and x[1]",
        "f = lambda mask: 1 if mask[0] else 0",
    ],
)
def test_secrets_are_followed_through_a_function(source: str) -> None:
    assert allow_list.in_source(source)
