"""Turns: who is next among tenants, databases, addresses and sessions, and what happens to those who leave."""

import asyncio
from collections.abc import Callable

from scumble.provider.turns import Path, Quota, Turns


def served(places: int, paths: list[Path], leaving: int | None = None) -> list[Path]:
    """In which order requests get their places if each has its own for one step, and one leaves while it waits."""
    order: list[Path] = []

    async def ask(turns: Turns, number: int, path: Path) -> None:
        def watch(leave: Callable[[], None]) -> None:
            if number == leaving:
                asyncio.get_running_loop().call_soon(leave)

        if await turns.take(path, watch):
            order.append(path)
            await asyncio.sleep(0.001)
            turns.give_back(path)

    async def all_of_them() -> None:
        turns = Turns(places)
        await asyncio.gather(*(ask(turns, number, path) for number, path in enumerate(paths)))
        assert not len(turns._queue)
        assert turns._free == places
        assert not turns._held

    asyncio.run(all_of_them())
    return order


def test_tenants_take_turns_whatever_each_has_waiting() -> None:
    many = [("greedy", "d", "a", str(number)) for number in range(20)]
    order = served(1, [*many, ("modest", "d", "a", "1"), ("modest", "d", "a", "2")])
    assert [path[0] for path in order[:5]].count("modest") == 2


def test_databases_addresses_and_sessions_take_turns_within_a_tenant() -> None:
    many = [("t", "big", "a", str(number % 4)) for number in range(20)]
    order = served(1, [*many, ("t", "small", "a", "x"), ("t", "big", "b", "y")])
    assert order.index(("t", "small", "a", "x")) <= 2
    assert order.index(("t", "big", "b", "y")) <= 4


def test_no_tenant_takes_the_last_place_and_a_session_has_one() -> None:
    async def ask() -> None:
        turns = Turns(3)
        assert await turns.take(("t", "1"))
        assert await turns.take(("t", "2"))
        third = asyncio.ensure_future(turns.take(("t", "3")))
        await asyncio.sleep(0)
        assert not third.done()
        assert await turns.take(("u", "1"))
        again = asyncio.ensure_future(turns.take(("u", "1")))
        await asyncio.sleep(0)
        turns.give_back(("t", "1"))
        assert await third
        assert not again.done()
        turns.give_back(("u", "1"))
        assert await again

    asyncio.run(ask())


def test_who_leaves_is_passed_over() -> None:
    paths: list[Path] = [("t", "d", "a", str(number)) for number in range(5)]
    assert served(1, paths, leaving=2) == [paths[0], paths[1], paths[3], paths[4]]


def test_a_quota_counts_each_and_all() -> None:
    quota: Quota[str] = Quota(2, 3)
    assert [quota.take(name) for name in "aaabb"] == [True, True, False, True, False]
    quota.give_back("a")
    assert quota.take("b")
    assert (quota.used("a"), quota.used("b"), quota.used("c"), quota.total) == (1, 2, 0, 3)
