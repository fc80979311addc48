"""What a load pays and gets back, and whether its rows were paid for before: on a ledger in memory, without a load."""

from fractions import Fraction

import pytest

from scumble.errors import BudgetUsed, Exists, Overdraft, ScumbleError
from scumble.owner.ledger import Content, Ledger, Spend
from scumble.owner.payments import Payment, allotment, spend_of
from scumble.owner.repeats import can_retry, content_digest, lost_table, paid_again, terms_of, unfinished
from scumble.owner.spends import load_partition
from scumble.types import Column, Schema, parse_domain, parse_type
from scumble.wire.charges import Charge
from scumble.wire.grants import Grant
from scumble.wire.requests import IndexOrder

TABLE, OTHER = "7f" * 16, "8f" * 16
A, B, C = "0a" * 16, "0b" * 16, "0c" * 16
SCHEMA = Schema((Column("day", parse_type("integer"), nullable=True),))
ORDER = IndexOrder("day", parse_domain("int:0:9"), Fraction(1), Fraction(0), Fraction(1, 10), 1, None, "measured")


def spends(batch: str, *columns: str, table: str = TABLE, rows: int = 1) -> list[Spend]:
    return [Spend(1, f"t {each}", 0, rows, load_partition(table, each, batch), False) for each in columns]


def drawn(ledger: Ledger, batch: str, content: Content | None = None, *, table: str = TABLE, rows: int = 1) -> None:
    """A load that has drawn its noise, and failed after it."""
    for budget in ledger.spend_all(spends(batch, "day", table=table, rows=rows)):
        budget.draw()
    if content is not None:
        ledger.record_content(table, batch, content)


def payment(ledger: Ledger, batch: str, shown: tuple[str, ...] = (), terms: str = "terms") -> Payment:
    return Payment(ledger, TABLE, batch, shown, spends(batch, "day"), terms)


# --- payments ----------------------------------------------------------------------------------------


def test_an_allotment_is_a_charge_that_is_the_same_everywhere() -> None:
    grant = Grant("0123456789abcdef", "ada", bytes(32), {"t": frozenset(["load"])}, Fraction(2), Fraction(1, 8))
    batch, table = "0123456789abcdef" * 2, "grant-0123456789abcdef"
    charge = Charge(batch, table, "allotment", Fraction(2), Fraction(1, 8), 1, new_rows=False)
    assert allotment(grant) == charge
    place = f"{table} allotment", batch
    assert spend_of(charge, "granted") == Spend(Fraction(2), "granted", Fraction(1, 8), 1, place, False)


def test_a_load_pays_first_and_settles_at_its_end() -> None:
    ledger = Ledger(limit=1)
    with payment(ledger, A) as paid:
        assert ledger.spent() == 1
        paid.identify("rows", again=False)
        assert not paid.retries
        paid.budgets[0].draw()
    assert ledger.unsettled() == ()
    assert ledger.contents(TABLE) == {A: Content("rows", "terms")}


def test_a_load_that_fails_gives_back_what_it_has_not_drawn_and_settles_nothing() -> None:
    def fails(batch: str, *, draws: bool) -> None:
        with payment(ledger, batch) as paid:
            if draws:
                paid.budgets[0].draw()
            raise ScumbleError("it failed")

    ledger = Ledger(limit=2)
    for batch, draws in ((A, False), (B, True)):
        with pytest.raises(ScumbleError, match="it failed"):
            fails(batch, draws=draws)
    assert [entry.state for entry in ledger.entries()] == ["cancelled", "drawn"]
    assert [entry.batch for entry in ledger.unsettled()] == [B]


def test_a_load_that_had_failed_is_finished_for_nothing() -> None:
    ledger = Ledger(limit=1)
    drawn(ledger, A, Content("rows", "terms"))
    with payment(ledger, B) as paid:
        paid.identify("rows", again=False)
        assert (paid.batch, paid.retries) == (A, True)
        paid.budgets[0].draw()
    assert ledger.spent() == 1
    assert ledger.unsettled() == ()


def test_a_load_of_other_rows_than_those_that_had_failed_pays_when_that_is_known() -> None:
    ledger = Ledger(limit=2)
    drawn(ledger, A, Content("rows", "terms"))
    with payment(ledger, B) as paid:
        paid.identify("others", again=False)
        assert (paid.batch, paid.retries, len(paid.budgets)) == (B, False, 1)
        assert ledger.spent() == 2
        paid.budgets[0].draw()
    with pytest.raises(Overdraft), payment(ledger, C) as paid:
        paid.identify("third", again=False)


def test_a_load_says_what_it_has_paid_and_from_what() -> None:
    wanted = [*spends(A, "day of week"), Spend("1/3", "t capacity", "1/8", 2, None, None)]
    paid = Payment(Ledger(limit=9), TABLE, A, (), wanted, "terms")
    assert paid.charges("0" * 16) == (
        Charge(A, TABLE, "day of week", Fraction(1), Fraction(0), 1, new_rows=False, grant="0" * 16),
        Charge(A, TABLE, "", Fraction(1, 3), Fraction(1, 8), 2, new_rows=False, grant="0" * 16),
    )


# --- repeats -----------------------------------------------------------------------------------------


def test_digests_of_rows_and_of_terms_stay_the_same() -> None:
    """A later release has to know a load again that this one left unfinished."""
    assert content_digest(bytes(32), SCHEMA, b"rows")[:16] == "324c614157439184"
    assert terms_of([ORDER], spends(A, "day"), 5, 16)[:16] == "74b96b76f4e5af49"


def test_rows_and_terms_all_count() -> None:
    other = Schema((Column("day", parse_type("text"), nullable=True),))
    cases = (bytes(32), SCHEMA, b"a"), (b"k" * 32, SCHEMA, b"a"), (bytes(32), other, b"a"), (bytes(32), SCHEMA, b"b")
    assert len({content_digest(*case) for case in cases}) == 4
    paid = spends(A, "day")
    dearer, wider = [paid[0]._replace(epsilon=2)], [paid[0]._replace(rows_per_user=2)]
    terms: list[tuple[list[IndexOrder], list[Spend], int | None, int]] = [
        ([ORDER], paid, 5, 16),
        ([], paid, 5, 16),
        ([ORDER], dearer, 5, 16),
        ([ORDER], wider, 5, 16),
        ([ORDER], paid, None, 16),
        ([ORDER], paid, 5, 32),
        ([ORDER], [paid[0]._replace(delta="1/8")], 5, 16),
    ]
    assert len({terms_of(*each) for each in terms}) == 7


def test_only_what_was_drawn_on_these_terms_and_is_not_shown_can_be_retried() -> None:
    ledger = Ledger(limit=9)
    ledger.spend_all(spends(C, "day"))
    ledger.record_content(TABLE, C, Content("open", "terms"))
    assert not can_retry(ledger, TABLE, (), "terms")
    drawn(ledger, A, Content("rows", "terms"))
    drawn(ledger, B)  # nothing is known of its rows
    assert can_retry(ledger, TABLE, (), "terms")
    assert can_retry(ledger, TABLE, (B,), "terms")
    assert not can_retry(ledger, TABLE, (A,), "terms")
    assert not can_retry(ledger, TABLE, (), "others")
    assert not can_retry(ledger, OTHER, (), "terms")
    drawn(ledger, "0d" * 16, Content("rows", "others"))
    assert can_retry(ledger, TABLE, (), "terms")


def test_the_same_rows_are_taken_up_again_or_refused() -> None:
    ledger, content = Ledger(limit=9), Content("rows", "terms")
    assert unfinished(ledger, TABLE, (), content, again=False) is None
    drawn(ledger, A, content)
    drawn(ledger, B, Content("others", "terms"))
    assert unfinished(ledger, TABLE, (), content, again=False) == A
    assert unfinished(ledger, TABLE, (), content, again=True) == A
    assert unfinished(ledger, TABLE, (B,), content, again=False) == A
    assert unfinished(ledger, TABLE, (), Content("third", "terms"), again=False) is None
    assert unfinished(ledger, OTHER, (), content, again=False) is None
    with pytest.raises(Exists, match="in the table already"):
        unfinished(ledger, TABLE, (A,), content, again=False)
    assert unfinished(ledger, TABLE, (A,), content, again=True) is None
    with pytest.raises(Exists, match="on other terms"):
        unfinished(ledger, TABLE, (), Content("rows", "others"), again=False)
    assert unfinished(ledger, TABLE, (), Content("rows", "others"), again=True) is None


def test_rows_of_which_one_of_two_loads_is_shown_are_there() -> None:
    ledger = Ledger(limit=9)
    drawn(ledger, A, Content("rows", "first"))
    drawn(ledger, B, Content("rows", "second"))
    with pytest.raises(Exists, match="in the table already"):
        unfinished(ledger, TABLE, (A,), Content("rows", "third"), again=False)
    assert unfinished(ledger, TABLE, (A,), Content("rows", "second"), again=False) == B


def test_a_load_that_was_never_drawn_is_not_taken_up_again() -> None:
    ledger, content = Ledger(limit=9), Content("rows", "terms")
    ledger.spend_all(spends(A, "day"))
    ledger.record_content(TABLE, A, content)
    assert unfinished(ledger, TABLE, (), content, again=False) is None
    drawn(ledger, A, table=OTHER)  # that is another table's
    assert unfinished(ledger, TABLE, (), content, again=False) is None


def test_only_what_an_unfinished_batch_lacks_is_paid() -> None:
    ledger = Ledger(limit=9)
    drawn(ledger, A)
    drawn(ledger, B)
    budgets = paid_again(ledger, A, [*spends(C, "day", "amount"), Spend(1, "no part")])
    assert ledger.spent() == 3
    assert [budget.label for budget in budgets] == ["t day", "t amount"]
    for budget in budgets:
        budget.draw()
    fresh = ledger.entries()[-1]
    assert (fresh.table_id, fresh.what, fresh.batch, fresh.state) == (TABLE, "amount", A, "drawn")
    with pytest.raises(BudgetUsed):
        budgets[1].draw()


def test_a_table_that_never_came_to_be_is_known_again() -> None:
    def of(ledger: Ledger, name: str = "T", shown: tuple[str, ...] = (), rows: tuple[int, ...] = (1,)) -> str | None:
        return lost_table(ledger, name, shown, rows)

    ledger = Ledger(limit=9)
    ledger.spend_all(spends(A, "day"))
    assert of(ledger) is None  # nothing of it was drawn
    drawn(ledger, B)
    assert of(ledger) == TABLE
    assert of(ledger, "u") is None
    assert of(ledger, shown=(TABLE,)) is None
    assert of(ledger, rows=(2,)) is None
    drawn(ledger, A, table=OTHER)
    assert of(ledger) == OTHER  # the last one
    assert of(ledger, shown=(OTHER,)) == TABLE
    for budget in ledger.spend_all(spends(C, "day", table=OTHER)):
        budget.draw()
        budget.settle()
    assert of(ledger) == TABLE  # of the other, a batch was in the table: it was dropped
