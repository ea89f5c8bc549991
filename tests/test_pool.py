"""Which devices a job gets, and what is left then."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sysjobs.devices import Device, Share, parse_gpus
from sysjobs.errors import Refused
from sysjobs.jobs import Status
from sysjobs.resources import Amount, parse_cpus
from sysjobs.scheduling.backfill import Rules, outlook
from sysjobs.scheduling.explain import describe, refuse_infeasible, why_waiting
from sysjobs.scheduling.holdings import Holdings
from sysjobs.scheduling.pending import Pending
from sysjobs.scheduling.pool import Capacity, Grant, Pool, all_of
from tests.models import queued


def asks(text: str) -> Amount:
    gpus, model = parse_gpus(text)
    return Amount(gpus=gpus, model=model)


def node(*models: str) -> Pool:
    """Devices that are called a, b, c, ..."""
    devices = tuple(Device(name, model) for name, model in zip("abcdefgh", models, strict=False))
    return all_of(Capacity(1000, 1 << 30, devices, {"licence": 3}))


def said(shares: tuple[Share, ...] | None) -> str:
    if shares is None:
        return "-"
    return "+".join(f"{share.amount / 1000:g}{share.device}".removeprefix("1") for share in shares)


def run(pool: Pool, *texts: str) -> tuple[str, Pool]:
    """'a b 0.5c -' for what each of them gets, in turn; '-' for none."""
    got = []
    for text in texts:
        shares = pool.pick(asks(text))
        got.append(said(shares))
        pool = pool if shares is None else pool.take(Grant(asks(text), shares))
    return " ".join(got), pool


PICKS = [
    ("each its own", ["L4"] * 4, ["1", "1", "L4"], "a b c"),
    ("four share one", ["L4"] * 4, ["L4:0.25"] * 4, "0.25a 0.25a 0.25a 0.25a"),
    ("two that don't fit on one", ["L4"] * 4, ["L4:0.75", "L4:0.5"], "0.75a 0.5b"),
    (
        "ten quarters on three",
        ["L4"] * 3,
        ["L4:0.25"] * 10,
        " ".join(["0.25a"] * 4 + ["0.25b"] * 4 + ["0.25c"] * 2),
    ),
    ("a part goes where the least is left", ["L4"] * 3, ["0.5", "0.75", "0.25"], "0.5a 0.75b 0.25b"),
    ("and not where it would be too little", ["L4"] * 3, ["0.5", "0.75", "0.4"], "0.5a 0.75b 0.4a"),
    ("whole ones are left for those who want them", ["L4"] * 2, ["0.5", "1", "0.5"], "0.5a b 0.5a"),
    ("as many as there are", ["L4"] * 3, ["4", "3"], "- a+b+c"),
    ("not of several models", ["L4", "T4", "L4", "T4"], ["3", "2", "2"], "- a+c b+d"),
    ("of the model that has the fewest left", ["L4", "L4", "T4"], ["1", "2"], "c a+b"),
    ("of the model that is meant", ["L4", "T4", "L40S"], ["T4", "L40S:0.5", "L4:1", "L4"], "b 0.5c a -"),
    ("a model that isn't there", ["L4"], ["H100", "H100:0.1"], "- -"),
    ("none at all", [], ["1", "0.1"], "- -"),
    ("nothing is asked for", ["L4"], ["0"], ""),
]


@pytest.mark.parametrize(("models", "texts", "got"), [p[1:] for p in PICKS], ids=[p[0] for p in PICKS])
def test_which_devices_are_picked(models: list[str], texts: list[str], got: str) -> None:
    assert run(node(*models), *texts)[0] == got


CORES = [
    ("the first", ["1", "1", "2", "1"], "cpu0 cpu1 cpu2+cpu3 -"),
    ("parts share one", ["0.5", "0.25", "1", "0.25", "0.1"], "0.5cpu0 0.25cpu0 cpu1 0.25cpu0 0.1cpu2"),
    ("whole ones and a part", ["2.5", "0.5", "1.5", "1"], "cpu0+cpu1+0.5cpu2 0.5cpu2 - cpu3"),
    (
        "enough in all, but not of one",
        ["0.75", "0.75", "0.75", "0.75", "0.5"],
        "0.75cpu0 0.75cpu1 0.75cpu2 0.75cpu3 -",
    ),
    ("none", ["0", "4", "0"], " cpu0+cpu1+cpu2+cpu3 "),
]


@pytest.mark.parametrize(("asked", "got"), [c[1:] for c in CORES], ids=[c[0] for c in CORES])
def test_cpus_that_jobs_are_kept_to(asked: list[str], got: str) -> None:
    pool = all_of(Capacity(4000, 9, cores=(0, 1, 2, 3)))
    found = []
    for text in asked:
        amount = Amount(parse_cpus(text))
        shares = pool.pick(amount)
        assert pool.fits(amount) == (shares is not None)
        pool = pool.take(Grant(amount, shares)) if shares is not None else pool
        found.append(said(shares))
    assert " ".join(found) == got


amounts = st.builds(
    Amount, st.integers(0, 500), st.integers(0, 9), st.sampled_from([0, 1, 250, 333, 999, 1000, 2000]),
    st.sampled_from(["", "L4", "T4"]), st.sampled_from([(), (("licence", 1),), (("seat", 1),)]),
)  # fmt: skip


@given(st.lists(st.tuples(st.booleans(), amounts)))
def test_what_is_taken_and_given_back_is_exact(steps: list[tuple[bool, Amount]]) -> None:
    whole = pool = node("L4", "L4", "T4")
    held: list[Grant] = []
    for gives, amount in steps:
        if gives and held:
            pool = pool.give(held.pop())
        elif pool.fits(amount):
            grant = Grant(amount, pool.pick(amount) or ())
            assert sum(share.amount for share in grant.shares) == amount.gpus
            assert all(share.amount in (1000, amount.gpus) for share in grant.shares)
            pool = pool.take(grant)
            held.append(grant)
        assert all(0 <= part <= 1000 for part in pool.parts.values())
    for grant in held:
        pool = pool.give(grant)
    assert pool == whole


@given(st.lists(st.tuples(st.integers(0, 2500), st.sampled_from([0, 250, 333, 999, 1000, 2000]))))
def test_what_fits_is_what_can_be_picked(asked: list[tuple[int, int]]) -> None:
    pool = all_of(Capacity(4000, 9, DEVICES, cores=(0, 1, 2, 3)))
    for cpus, gpus in asked:
        amount = Amount(cpus, gpus=gpus)
        shares = pool.pick(amount)
        assert pool.fits(amount) == (shares is not None and cpus <= pool.cpus)
        if shares is not None and pool.fits(amount):
            pool = pool.take(Grant(amount, shares))


def test_a_device_that_vanished_comes_back_as_it_is_held() -> None:
    two = (Device("a", "L4"), Device("b", "L4"))
    holdings = Holdings(Capacity(1000, 9, two))
    half, one = Amount(gpus=500), Amount(gpus=1000)
    job = queued(Status.RUNNING, amount=half, shares=(Share("a", 500),), shard=0)
    holdings.take(job)
    holdings.resize(Capacity(1000, 9, two[1:]))
    assert holdings.free.pick(half) == (Share("b", 500),)
    other = replace(job, id=43, amount=one, shares=(Share("b", 1000),))
    holdings.take(other)
    assert not holdings.free.fits(half)
    holdings.resize(Capacity(1000, 9, two))
    assert holdings.free.parts == {"a": 500, "b": 0}
    holdings.resize(Capacity(1000, 9, two[1:]))
    holdings.give_back(job)
    holdings.give_back(other)
    assert holdings.free == holdings.all


def test_what_the_settings_name_no_more_can_be_given_back() -> None:
    holdings = Holdings(Capacity(1000, 9, others={"licence": 2}))
    job = queued(Status.RUNNING, amount=Amount(others=(("licence", 2),)), shard=0)
    holdings.take(job)
    assert holdings.free.others == {"licence": 0}
    holdings.resize(Capacity(1000, 9, others={"seat": 1}))
    holdings.give_back(job)
    assert holdings.free.others == {"seat": 1}


DEVICES = (Device("a", "NVIDIA L4"), Device("b", "NVIDIA L4"), Device("c", "NVIDIA T4"))
CAPACITY = Capacity(4000, 8 << 30, DEVICES, {"licence": 3})
IT_HAS = "4 CPUs, 8G of memory, 2 NVIDIA L4, 1 NVIDIA T4 and 3 of licence"
INFEASIBLE = [
    (Amount(gpus=3000), "--gpus 3"),
    (Amount(gpus=2000, model="T4"), "--gpus T4:2"),
    (Amount(others=(("licence", 4),)), "--resource licence=4"),
    (Amount(9000, gpus=9000), "--cpus 9"),
]


@pytest.mark.parametrize(("asked", "said"), INFEASIBLE)
def test_infeasible(asked: Amount, said: str) -> None:
    with pytest.raises(Refused) as caught:
        refuse_infeasible(asked, CAPACITY)
    assert caught.value.message == f"{said} is more than this node has."
    assert caught.value.hint == f"It has {IT_HAS}; ask for no more than that."


UNKNOWN = [
    (Amount(gpus=250, model="H100"), "GPU 'H100'", "It has NVIDIA L4, NVIDIA T4."),
    (
        Amount(gpus=1000, model="A100"), "GPU 'A100'",
        "It has NVIDIA L4, NVIDIA T4. Out of use: d, /dev/nvidia3 is missing.",
    ),
    (
        Amount(others=(("seat", 1),)), "resource 'seat'",
        "Its resources are licence; the administrator names them in [resources].",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("asked", "what", "hint"), UNKNOWN)
def test_what_there_is_none_of(asked: Amount, what: str, hint: str) -> None:
    out = ((Device("d", "NVIDIA A100"), "/dev/nvidia3 is missing"),)
    with pytest.raises(Refused) as caught:
        refuse_infeasible(asked, replace(CAPACITY, out_of_use=out))
    assert (caught.value.message, caught.value.hint) == (f"This node has no {what}.", hint)


def test_a_node_without_gpus() -> None:
    with pytest.raises(Refused) as caught:
        refuse_infeasible(Amount(gpus=1000), Capacity(1000, 9))
    assert (caught.value.message, caught.value.hint) == ("This node has no GPUs.", "It has none at all.")


def test_describe() -> None:
    assert describe(CAPACITY) == IT_HAS
    refuse_infeasible(Amount(4000, 8 << 30, 2000, "L4", (("licence", 3),)), CAPACITY)


WAITS = [
    ("L4:2", "Waits for GPUs: asks for L4:2; 1 of the node's 2 are free."),
    ("2", "Waits for GPUs: asks for 2; 1 of the node's 3 are free."),
    ("T4", "Waits for GPUs: asks for T4:1; 0 of the node's 1 are free."),
    ("T4:0.75", "Waits for a GPU: asks for T4:0.75; 0.5 is the most that is free of one."),
]


@pytest.mark.parametrize(("text", "says"), WAITS)
def test_why_one_waits_for_devices(text: str, says: str) -> None:
    holdings, pending = Holdings(CAPACITY), Pending()
    for number, shares in enumerate([(Share("a", 1000),), (Share("c", 500),)]):
        amount = Amount(gpus=shares[0].amount)
        holdings.take(queued(Status.RUNNING, id=100 + number, amount=amount, shares=shares, shard=0))
    job = queued(id=1, amount=asks(text))
    pending.add(job)
    seen = outlook(pending, holdings, Rules(), 0)
    assert why_waiting(job, seen, holdings, Rules(), 0).text == says


CORES_MISSED = [
    ("1.5", "Waits for CPUs: asks for 1.5 to be kept to; 0 of 1.5 that are free are whole ones."),
    ("0.75", "Waits for CPUs: asks for 0.75 of one to be kept to; 0.6 is the most that is free of one."),
]


@pytest.mark.parametrize(("cpus", "says"), CORES_MISSED)
def test_why_one_waits_for_cpus_of_its_own(cpus: str, says: str) -> None:
    """There are enough, but not of one; and devices are none of what it lacks."""
    holdings, pending = Holdings(replace(CAPACITY, cores=(0, 1, 2, 3))), Pending()
    for number, share in enumerate([1000, 600, 400, 500]):
        amount, shares = Amount(share), (Share(f"cpu{number}", share),)
        holdings.take(queued(Status.RUNNING, id=100 + number, amount=amount, shares=shares, shard=0))
    job = queued(id=1, amount=Amount(parse_cpus(cpus), gpus=1000))
    pending.add(job)
    seen = outlook(pending, holdings, Rules(), 0)
    assert why_waiting(job, seen, holdings, Rules(), 0).text == says


def test_why_one_waits_for_something_else() -> None:
    holdings, pending = Holdings(CAPACITY), Pending()
    licences = Amount(others=(("licence", 2),))
    holdings.take(queued(Status.RUNNING, amount=licences, shard=0))
    job = queued(id=1, amount=licences)
    pending.add(job)
    reason = why_waiting(job, outlook(pending, holdings, Rules(), 0), holdings, Rules(), 0)
    assert reason.text == "Waits for licence: asks for 2; 1 of the node's 3 are free."
