"""Streams: every row that was acknowledged reaches the table once, and a heartbeat shows nothing but its own beat.

Three ways to be wrong and still look right: a batch that is sent again under another name after a failure; a beat that
is left out, or shortened, when nothing waits; noise that comes again for other rows, or stays the same for none.
"""

import random
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from stream_tables import HandClock, Home

from scumble.errors import BadRows, InvalidParameter, Overdraft, Tampered, Unavailable, Unfinished, Unwitnessed
from scumble.owner import stream_policies
from scumble.owner.stream_policies import Beat, Collected, Heartbeat, Policy, Threshold, Timer
from scumble.owner.streams import Stream, StreamBehind, SystemClock
from scumble.privacy import noise as privacy_noise

ONE = Fraction(1)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


# --- heartbeats ------------------------------------------------------------------------------------


def test_batches_of_one_size_take_what_waits_in_its_order(home: Home) -> None:
    with home.stream() as stream:
        assert stream.write(range(300)) == 300
        for tick in range(4):
            home.beat(stream, tick)
    assert [len(batch) for batch in home.table.batches.values()] == [256, 44, 0, 0]
    assert home.table.rows == list(range(300))
    assert home.table.seen == [(1_000_000.0 + 60 * tick, 256) for tick in range(4)]


def _transcript(folder: Path, arrivals: list[int], policy: Policy | None = None) -> list[tuple[float, int]]:
    home = Home(folder)
    with home.stream(policy) as stream:
        for tick, count in enumerate(arrivals):
            stream.write(range(count))
            home.beat(stream, tick)
    return home.table.seen


NEIGHBOURS = [
    ([3, 0, 0, 5, 0], [4, 0, 0, 5, 0]),
    ([0, 0, 0, 0, 0], [0, 0, 1, 0, 0]),
    ([256, 256, 0, 0, 0], [257, 256, 0, 0, 0]),
    ([0, 0, 0, 0, 0], [5000, 5000, 0, 700, 1]),
]


@pytest.mark.parametrize(("one", "other"), NEIGHBOURS)
def test_a_heartbeat_is_the_same_whatever_is_written(tmp_path: Path, one: list[int], other: list[int]) -> None:
    assert _transcript(tmp_path / "one", one) == _transcript(tmp_path / "other", other)


class _Silent(Heartbeat):
    """DEFECT: a flush that looks at the real count."""

    def due(self, collected: Collected, tick: int) -> Beat:
        return super().due(collected, tick) if collected.rows else None  # type: ignore[return-value]


class _Tight(Heartbeat):
    """DEFECT: the last batch is only as large as it has to be."""

    def sized(self, collected: Collected) -> Beat:
        return Beat(collected.rows, max(256, -(-collected.rows // 256) * 256))


@pytest.mark.parametrize(("defect", "pair"), [(_Silent, NEIGHBOURS[1]), (_Tight, NEIGHBOURS[2])])
def test_planted_defects_of_a_heartbeat_show(
    tmp_path: Path, defect: Callable[[int], Policy], pair: tuple[list[int], list[int]]
) -> None:
    one, other = (_transcript(tmp_path / str(place), arrivals, defect(256)) for place, arrivals in enumerate(pair))
    assert one != other


def test_a_day_of_heartbeats(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """86,400 of them, by the loop that the sender's thread runs, on a clock of its own; rows come in bursts."""
    monkeypatch.setattr("os.fdatasync", lambda handle: None)
    monkeypatch.setattr("os.fsync", lambda handle: None)
    stream = home.stream(every=1)
    chance, written, beat = random.Random(7), 0, stream.beat  # noqa: S311

    def arriving(tick: int) -> None:
        nonlocal written
        if tick % 20 == 0:
            written += stream.write(range(written, written + chance.choice([0, 1, 3, 40, 700])))
        beat(tick)

    monkeypatch.setattr(stream, "beat", arriving)
    home.clock.end = 1_000_000.0 + 86_400
    stream._run()
    assert home.table.seen == [(1_000_000.0 + tick, 256) for tick in range(1, 86_401)]
    waiting = stream.status().waiting
    assert home.table.rows == list(range(written - waiting))
    assert waiting <= 700
    assert written > 400_000
    stream.close()


def test_times_are_the_same_before_and_after_a_restart(home: Home) -> None:
    for now in (1_000_017.3, 1_000_333.9):
        home.clock.time, home.clock.end = now, now + 130
        stream = home.stream(every=60)
        stream._run()
        stream.close()
    assert [time % 60 for time, _ in home.table.seen] == [0.0] * 5


def test_a_change_of_size_is_public_and_holds_at_once(home: Home) -> None:
    with home.stream() as stream:
        stream.write(range(1000))
        home.beat(stream, 0)
        stream.change(rows=600, every=30)
        home.beat(stream, 1)
        assert stream.status().settings == {"policy": "heartbeat", "rows": 768, "every": 30.0}
    assert [capacity for _, capacity in home.table.seen] == [256, 768]
    assert home.table.rows == list(range(1000))
    with pytest.raises(InvalidParameter, match="is not given"):
        Timer(ONE).with_rows(300)


def test_the_owner_is_told_when_the_log_grows(home: Home) -> None:
    with home.stream() as stream:
        stream.write(range(256))
        assert not home.told
        assert not stream.status().behind
        stream.write(range(1))
        stream.write(range(1))
        assert [(each.waiting, each.rows) for each in home.told] == [(257, 256)]  # once
        assert "257" not in str(home.told[0])
        assert stream.status().behind
        home.beat(stream, 0)
        stream.write(range(1))
        stream.write(range(400))
        assert len(home.told) == 2
    with home.stream() as stream:
        pass
    stream = Stream("t", home.log, home.table, Heartbeat(256), 60, clock=home.clock)  # type: ignore[arg-type]
    with pytest.warns(StreamBehind, match="than a batch of 256 takes"):
        stream._tell()


# --- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [False, True])
def test_a_heartbeat_without_a_row_that_failed_comes_later_like_any_other(tmp_path: Path, stored: bool) -> None:
    """Also over a restart: else a silence would tell that no row had come."""
    seen = []
    for count in (0, 1, 300):
        home = Home(tmp_path / str(count))
        stream = home.stream()
        stream.write(range(count))
        home.table.trouble = [(Unavailable("the service is gone"), stored)]
        home.beat(stream, 0)
        home.crash()
        with home.stream() as stream:
            for tick in (1, 2):
                home.beat(stream, tick)
        seen.append(home.table.seen)
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 3


@pytest.mark.parametrize("policy", [Heartbeat(256), Timer(ONE), Threshold(ONE, 1, 1)], ids=lambda policy: policy.name)
@pytest.mark.parametrize("stored", [False, True])
def test_what_could_not_be_sent_is_sent_again_under_its_name(home: Home, policy: Policy, stored: bool) -> None:
    with home.stream(policy) as stream:
        stream.write(range(100))
        home.table.trouble = [(Unavailable("the service is gone"), stored), (Unfinished("nobody knows"), stored)]
        for tick in range(2):
            home.beat(stream, tick)
        stream.write(range(100, 150))
        assert stream.status().late == 2
        assert stream.status().trouble == "nobody knows"
        assert stream.status().waiting == 150
        for tick in range(2, 6):
            home.beat(stream, tick)
        assert stream.status().trouble is None
        assert stream.status().waiting == 0
    assert home.table.rows == list(range(150))


def test_a_batch_without_enough_witnesses_is_stored(home: Home) -> None:
    with home.stream() as stream:
        stream.write(range(5))
        late = Unwitnessed("the change was stored, but no witness answers")
        late.stored = True
        home.table.trouble = [(late, True)]
        home.beat(stream, 0)
        assert stream.status().waiting == 0
        assert "no witness" in (stream.status().trouble or "")


def test_what_will_not_get_better_stops_the_stream_loudly(home: Home) -> None:
    with home.stream() as stream:
        stream.write(range(5))
        home.table.trouble = [(Tampered(), False)]
        home.beat(stream, 0)
        assert stream.status().stopped
        with pytest.raises(Tampered):
            stream.write(range(1))
        with pytest.raises(Tampered):
            stream.flush()
        with pytest.raises(Tampered):
            stream.drain()
        home.beat(stream, 1)
    assert home.table.seen == []
    with home.stream() as stream:  # nothing is lost
        home.beat(stream, 2)
    assert home.table.rows == list(range(5))


def test_an_unforeseen_error_stops_the_stream_and_shows_no_value(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("ann has measles")

    monkeypatch.setattr(home.table, "insert", broken)
    with home.stream() as stream:
        stream.write(range(5))
        home.beat(stream, 0)
        assert stream.status().stopped
        assert stream.status().trouble == "the stream has stopped: ValueError"


def test_rows_that_do_not_fit_are_not_acknowledged(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(rows: object) -> None:
        raise BadRows("they do not fit")

    monkeypatch.setattr(home.table, "checked", refusing)
    with home.stream() as stream, pytest.raises(BadRows):
        stream.write(range(5))
    with home.stream() as stream:
        assert stream.status().waiting == 0


CRASHES = ("before anything", "recorded", "sent", "noted")


@pytest.mark.parametrize("policy", [Heartbeat(256), Timer(ONE), Threshold(ONE, 1, 1)], ids=lambda policy: policy.name)
@pytest.mark.parametrize("where", CRASHES)
def test_a_stream_that_is_killed_goes_on_where_it_was(
    home: Home, policy: Policy, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that come after the restart change neither the rows of a batch that was recorded nor its size."""

    class Killed(BaseException):
        pass

    def dying(call: Callable[..., None], *, before: bool) -> Callable[..., None]:
        def dies(*given: object, **more: object) -> None:
            if not before:
                call(*given, **more)
            raise Killed

        return dies

    stream = home.stream(policy)
    log = home.log
    assert log is not None
    stream.write(range(100))
    match where:
        case "before anything":
            monkeypatch.setattr(log, "record", dying(log.record, before=True))
        case "recorded":
            monkeypatch.setattr(log, "record", dying(log.record, before=False))
        case "sent":
            monkeypatch.setattr(log, "sent", dying(log.sent, before=True))
        case "noted":
            monkeypatch.setattr(log, "sent", dying(log.sent, before=False))
    for tick in range(50):  # a threshold may take a few
        try:
            home.beat(stream, tick)
        except Killed:
            break
    else:
        pytest.fail("it was not killed")
    monkeypatch.undo()
    pending = log.state.pending
    home.crash()
    stream = home.stream(policy)
    stream.write(range(100, 130))
    for tick in range(50, 150):
        home.beat(stream, tick)
    assert home.table.rows == list(range(130))
    if pending is not None:
        assert home.table.batches[pending.batch] == list(range(pending.first, pending.stop))
        assert pending.capacity in [capacity for _, capacity in home.table.seen]
    stream.close()


# --- noisy policies --------------------------------------------------------------------------------


def test_a_timer_sends_everything_and_never_too_little(home: Home) -> None:
    chance = random.Random(5)  # noqa: S311
    with home.stream(Timer(ONE)) as stream:
        written = 0
        for tick in range(200):
            written += stream.write(range(written, written + chance.choice([0, 0, 0, 5, 300, 2000])))
            home.beat(stream, tick)
            assert stream.status().waiting == 0
    assert home.table.rows == list(range(written))
    assert len(home.table.seen) == 200
    assert all(capacity % 256 == 0 for _, capacity in home.table.seen)


def test_a_threshold_waits_for_about_as_many_rows_and_then_sends_all(home: Home) -> None:
    with home.stream(Threshold(ONE, 1, 1000)) as stream:
        written = 0
        for tick in range(400):
            written += stream.write(range(written, written + 10))
            home.beat(stream, tick)
        waiting = stream.status().waiting
    sizes = [len(batch) for batch in home.table.batches.values()]
    assert home.table.rows == list(range(written - waiting))
    assert 3 <= len(sizes) <= 5
    assert all(abs(size - 1000) < 150 for size in sizes)  # noise of scale 2, 100 ticks: beyond by 1e-20


def test_the_ledger_is_charged_before_noise_is_drawn_and_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("release_bound", "discrete_laplace"):
        call = getattr(stream_policies, name)

        def drawing(*given: object, call: Callable[..., object] = call, **more: object) -> object:
            home.table.events.append("drawn")
            return call(*given, **more)

        monkeypatch.setattr(stream_policies, name, drawing)
    for _ in range(3):
        with home.stream(Threshold(ONE, 1, 10)) as stream:
            stream.write(range(50))
            for tick in range(20):
                home.beat(stream, tick)
            stream.flush()
    events = home.table.events
    assert events[0] == "paid"
    assert events.count("paid") == 1  # however often it is opened again
    assert {"drawn", "sent"} <= set(events[1:])
    with home.stream(Threshold(2 * ONE, 1, 10)):
        assert sum(home.table.paid.values()) == 3  # on other terms it is another stream


def test_a_refusal_costs_nothing_and_draws_nothing(home: Home) -> None:
    home.table.limit = Fraction(1, 2)
    for policy in (Timer(ONE), Threshold(ONE, 1, 10)):
        with pytest.raises(Overdraft):
            home.stream(policy)
        home.crash()
    assert home.table.events == []
    assert home.table.paid == {}
    with home.stream() as stream:  # a heartbeat is free
        stream.write(range(3))
        home.beat(stream, 0)
    assert "paid" not in home.table.events
    assert home.table.rows == [0, 1, 2]


def test_empty_batches_of_a_timer_do_not_all_look_alike(home: Home) -> None:
    """DEFECT if they do: noise that is derived from no rows under one name would tell that none came."""
    with home.stream(Timer(Fraction(1, 10**6))) as stream:  # noise of thousands of units: two meet once in a hundred
        for tick in range(20):
            home.beat(stream, tick)
    assert len({capacity for _, capacity in home.table.seen}) > 14
    assert len(home.table.batches) == 20


def _drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    drawn: list[int] = []
    call = privacy_noise.discrete_laplace

    def noting(*given: object) -> object:
        found = call(*given)  # type: ignore[arg-type]
        drawn.append(int(found[0]))
        return found

    monkeypatch.setattr(stream_policies, "discrete_laplace", noting)
    yield drawn


def test_the_noise_of_a_threshold_stays_over_a_restart_and_changes_with_the_batch(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    (drawn,) = _drawn(monkeypatch)
    policy = Threshold(Fraction(1, 10**6), 1, 10**9)  # noise that hardly comes twice, and a threshold far off
    stream = home.stream(policy)
    stream.write(range(10))
    for tick in range(3):
        home.beat(stream, tick)
    home.crash()
    stream = home.stream(policy)
    home.beat(stream, 2)  # the same rows at the same time: the same test
    stream.write(range(10, 11))
    home.beat(stream, 2)  # other rows: another
    thresholds, tests = drawn[::2], drawn[1::2]
    assert len(set(thresholds)) == 1
    assert len(set(tests)) == 4
    assert tests[2] == tests[3]
    stream.flush()
    home.beat(stream, 9)
    assert drawn[-2] != thresholds[0]
    stream.close()


# --- what the owner asks for -----------------------------------------------------------------------


def test_a_flush_is_one_more_batch_of_the_usual_kind(home: Home) -> None:
    with home.stream() as stream:
        stream.write(range(300))
        stream.flush()
        assert home.table.seen == [(1_000_000.0, 256)]
        assert stream.status().waiting == 44
    with home.stream(Timer(ONE)) as stream:
        stream.flush()
        assert stream.status().waiting == 0
    assert home.table.rows == list(range(300))
    with pytest.raises(InvalidParameter, match="closed"):
        stream.flush()


def test_closing_sends_nothing_and_keeps_the_rest(home: Home) -> None:
    """How long it took to send the rest would tell how much there was."""
    with home.stream() as stream:
        stream.write(range(1000))
        home.beat(stream, 0)
    assert len(home.table.seen) == 1
    with home.stream() as stream:
        assert stream.status().waiting == 744
        with pytest.raises(InvalidParameter, match="wait to be sent"):
            stream.end()
    with home.stream() as stream:
        for tick in range(1, 4):
            home.beat(stream, tick)
        stream.end()
    assert home.table.rows == list(range(1000))
    assert not (home.folder / "log").exists()


def test_threads_write_while_one_sends(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = home.stream(every=0.005)
    monkeypatch.setattr(stream, "_clock", clock := SystemClock())
    monkeypatch.setattr(home.table, "clock", clock)
    stream.start()

    def writer(first: int) -> None:
        for place in range(20):
            stream.write(range(first + 10 * place, first + 10 * place + 10))

    threads = [threading.Thread(target=writer, args=(1000 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stream.drain()
    stream.close()
    assert sorted(home.table.rows) == sorted(1000 * number + place for number in range(4) for place in range(200))


@pytest.mark.parametrize("every", [0, -1, float("nan"), float("inf"), 1e9])
def test_times_that_make_no_sense_are_refused(home: Home, every: float) -> None:
    with pytest.raises(InvalidParameter, match="every millisecond"):
        home.stream(every=every)


def test_clocks() -> None:
    stop = threading.Event()
    assert not SystemClock().wait(0.001, stop)
    stop.set()
    assert SystemClock().wait(100, stop)
    assert not HandClock().wait(5, threading.Event())
