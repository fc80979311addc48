"""Types as the owner writes them."""

import pytest

from scumble.errors import InvalidParameter
from scumble.types import ColumnType, parse_type


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("integer", "integer"),
        ("INT", "integer"),
        (" bigint ", "bigint"),
        ("int8", "bigint"),
        ("double  precision", "double"),
        ("timestamptz", "timestamp with time zone"),
        ("Timestamp With Time Zone", "timestamp with time zone"),
        ("decimal(12,2)", "decimal(12,2)"),
        ("numeric ( 12 , 2 )", "decimal(12,2)"),
        ("decimal(5)", "decimal(5,0)"),
        ("decimal", "decimal(18,3)"),
        ("text(25)", "text(25)"),
        ("varchar", "text(64)"),
    ],
)
def test_types_are_read(text: str, label: str) -> None:
    assert parse_type(text).label == label


@pytest.mark.parametrize("text", ['category(["b","a"])', 'category:["a","b"]', 'enum (["a", "b"])'])
def test_categories_are_sorted(text: str) -> None:
    assert parse_type(text).group_values == ("a", "b")


@pytest.mark.parametrize(
    ("text", "trouble", "carets"),
    [
        ("integr", "there is no such type", "^^^^^^"),
        ("", "this is no type", "^"),
        ("integer(5)", "takes nothing", "       ^^^"),
        ("decimal(19,2)", "1 to 18 digits", "       ^^^^^^"),
        ("decimal(2,3)", "no more of them after the point", "       ^^^^^"),
        ("decimal(x)", "no numbers", "       ^^^"),
        ("decimal(1,2,3)", "two numbers", "       ^^^^^^^"),
        ("text(0)", "bytes at most", "    ^^^"),
        ("text(70000)", "bytes at most", "    ^^^^^^^"),
        ("text(1,2)", "one number", "    ^^^^^"),
        ("category", "list of categories is missing", "        ^"),
        ("category(a)", "no JSON list", "        ^^^"),
        ("category([1])", "no JSON list", "        ^^^^^"),
        ('category(["a","a"])', "there twice", "        ^^^^^^^^^^^"),
        ("category([])", "1 to", "        ^^^^"),
        ('category(["\\ud800"])', "not valid Unicode", "        ^"),
    ],
)
def test_what_is_wrong_is_underlined(text: str, trouble: str, carets: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        parse_type(text)
    assert trouble in refusal.value.message
    assert refusal.value.message.splitlines()[2].startswith("    " + carets)
    assert "decimal(12,2)" in str(refusal.value.hint)


def test_a_close_name_is_guessed() -> None:
    with pytest.raises(InvalidParameter, match="did you mean integer"):
        parse_type("integr")


def test_unsorted_categories_are_no_type() -> None:
    with pytest.raises(InvalidParameter, match="not sorted"):
        ColumnType.from_json({"kind": "category", "sql": "varchar", "categories": ["b", "a"]})
