"""Schema files are read as they were written, and what cannot be read is refused with its line."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scumble.errors import FileError, InvalidParameter
from scumble.owner.indexes import IndexSpec
from scumble.owner.schema_file import SchemaFile
from scumble.types import Column, parse_type

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
TYPES = st.one_of(
    st.sampled_from(["tinyint", "ubigint", "float", "boolean", "date", "time", "timestamp_ns", "timestamptz"]),
    st.integers(1, 65536).map("text({})".format),
    st.integers(0, 18).map("decimal(18,{})".format),
    st.lists(WORDS, min_size=1, unique=True).map(lambda words: f"category({json.dumps(words)})"),
).map(parse_type)
INDEXES = [
    IndexSpec.parse("x int:0:99 epsilon=1/3"),
    IndexSpec.parse('x category:["\\"","#","a b"] epsilon=0.5 beta=1e-9 rows_per_user=3 max_bytes=99 slack=lossless'),
]


@st.composite
def schema_files(draw: st.DrawFn) -> SchemaFile:
    names = draw(st.lists(WORDS, min_size=1, max_size=5, unique_by=str.lower))
    columns = tuple(Column(name, draw(TYPES), draw(st.booleans())) for name in names)
    indexes = [
        replace(spec, column=name, columns=draw(st.none() | st.lists(st.sampled_from(names), min_size=1).map(tuple)))
        for name in names
        for spec in [draw(st.sampled_from(INDEXES))]
        if draw(st.booleans())
    ]
    return SchemaFile(columns, tuple(indexes))


@given(schema_files(), st.text(st.characters(exclude_characters="\n")))
def test_a_schema_reads_as_it_was_written(file: SchemaFile, comment: str) -> None:
    assert SchemaFile.parse(file.text) == file
    commented = "".join(f"  {line}   #{comment}\r\n\n" for line in file.text.rstrip("\n").split("\n"))
    assert SchemaFile.parse(f"# {comment}\n{commented}") == file


def test_a_schema_by_hand() -> None:
    file = SchemaFile.parse(
        """\
# visits of the clinic
visit\tBIGINT not null  # counted
"odd \\"name\\" #1"   text(20)
--index visit int:0:999 epsilon=0.5
index  date
"""
    )
    assert file.types == {"visit": "bigint not null", 'odd "name" #1': "text(20)", "index": "date"}
    assert [spec.column for spec in file.indexes] == ["visit"]


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("a bigint\nb", "s, line 2: column 'b' has no type"),
        ("a not null", "s, line 1: column 'a' has no type"),
        ("\n\na bigintt", "s, line 3: cannot read the type: there is no such type\n    bigintt\n    ^^^^^^^"),
        ("a text(0)", "s, line 1: cannot read the type: a text has 1 to 65536 bytes at most\n    text(0)\n        ^^^"),
        ("a bigint\nb date\nA date", "s, line 3: line 1 declares that column already"),
        ('"a bigint', "s, line 1: a quote is never closed"),
        ('"a\\q" bigint', "s, line 1: the name in quotes cannot be read"),
        ('"" bigint', "s, line 1: the name in quotes cannot be read"),
        ('"a"bigint', "s, line 1: there is no space after the column's name"),
        ("-a bigint", "s, line 1: there is no column's name"),
        ("a bigint\n--index b int:0:9 epsilon=1", "s, line 2: an index on 'b', which no line declares"),
        ("a bigint\n--index a int:0:9", "s, line 2: 'column int:0:9' does not read as an index"),
        ("a bigint\n--index", "s, line 2: there is no column's name"),
        ("# nothing\n\n", "s declares no column"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, trouble: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        SchemaFile.parse(text, "s")
    assert refusal.value.message.startswith(trouble)
    assert refusal.value.hint


def test_files_that_are_no_schema(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    for name, trouble in {"absent": "No such file", "bytes": "not UTF-8", ".": "directory"}.items():
        with pytest.raises(FileError, match=trouble):
            SchemaFile.read(tmp_path / name)
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbfa bigint\r\n")
    assert SchemaFile.read(str(tmp_path / "marked")).types == {"a": "bigint"}
