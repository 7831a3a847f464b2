"""Who straggles: against peers, with a quorum, without flickering, with the cause the node itself found."""

from __future__ import annotations

from ingero.fleet.collector.peers import ABSENT_NS, Hysteresis, Member, advice, standings
from ingero.fleet.limits import ROUNDS, own_share
from ingero.model.fleet import FindingHealth, Straggler
from tests.unit.fleet.rounds import finding, member

TEN_S = 10**10
OWN = {"gpu_wait": 1.0, "runqueue": 6.0, "host_cpu": 3.0}  # little waiting: the others wait for this one


def ranks(number: int = 1, slow: dict[int, dict[str, float]] | None = None, count: int = 8) -> list[Member]:
    return [
        member(f"n{rank}", rank, number, time_s=(slow or {}).get(rank, {"gpu_wait": 8.0, "host_cpu": 2.0}))
        for rank in range(count)
    ]


def beyond(members: list[Member]) -> set[tuple[str, str]]:
    return {(each.member.node, each.measure) for each in standings(members) if each.beyond}


def looked(
    hysteresis: Hysteresis,
    rounds: list[list[Member]],
    findings: dict[tuple[str, str], list[FindingHealth]] | None = None,
    from_ns: int = 1000,
) -> list[Straggler]:
    found: list[tuple[str, Straggler]] = []
    for at, members in enumerate(rounds):
        found, _ = hysteresis.step(standings(members), from_ns + at * TEN_S, findings or {})
    return [each for _, each in found]


def test_the_rank_that_waits_least_holds_the_others_up_though_all_have_one_pace() -> None:
    assert beyond(ranks(slow={5: OWN})) == {("n5", "own-time")}


def test_a_healthy_job_has_no_straggler_though_ranks_differ_a_little() -> None:
    varied = {rank: {"gpu_wait": 8.0 - rank * 0.05, "host_cpu": 2.0 + rank * 0.05} for rank in range(8)}
    assert beyond(ranks(slow=varied)) == set()


def test_below_a_quorum_nothing_is_said() -> None:
    assert standings(ranks(slow={1: OWN}, count=3)) == []  # three of eight ranks were heard
    assert standings([member("n1", None), member("n2", None), member("n3", None)]) == []


def test_a_job_of_two_ranks_has_no_median_worth_the_name() -> None:
    two = [member(f"n{rank}", rank, world_size=2) for rank in range(2)]
    assert standings(two) == []


def test_ranks_of_different_jobs_or_clusters_are_not_peers() -> None:
    mixed = [*ranks(), member("x", 0, job="other", time_s=OWN)]
    assert {each.member.node for each in standings(mixed)} == {f"n{rank}" for rank in range(8)}


def test_jobs_without_ranks_are_compared_by_their_own_past() -> None:
    """Steps of different jobs differ; how they do against their own past does not."""
    jobs = [
        member(f"n{at}", None, job=f"j{at}", steps_per_s=pace, usual_steps_per_s=usual)
        for at, (pace, usual) in enumerate([(10, 10), (3, 3), (50, 50), (4.9, 5), (2, 10)])
    ]
    assert beyond(jobs) == {("n4", "pace")}


def test_gpu_models_and_phases_are_kept_apart() -> None:
    slow = {"steps_per_s": 2.0, "usual_steps_per_s": 10.0}
    jobs = [member(f"n{at}", None) for at in range(5)]
    assert beyond([*jobs, member("other", None, model="A100", **slow)]) == set()
    assert beyond([*jobs, member("serving", None, bound_by="requests", **slow)]) == set()
    assert beyond([*jobs, member("same", None, **slow)]) == {("same", "pace")}


def test_a_gpu_that_runs_slower_than_its_like_is_found_while_it_works() -> None:
    def card(node: str, mhz: float, busy: float = 0.9) -> Member:
        return member(node, None, pid=None, gpu=3, clock_hz=mhz * 1e6, busy_share=busy)

    cards = [card(f"n{at}", 1980) for at in range(6)]
    assert beyond([*cards, card("hot", 1200), card("idle", 300, busy=0.0)]) == {("hot", "clock")}


def test_one_bad_round_makes_no_straggler_and_one_good_round_ends_none() -> None:
    held = Hysteresis()
    bad, good = {5: OWN}, None
    plan = [bad] * (ROUNDS - 1) + [good] + [bad] * (ROUNDS - 1)
    rounds = [ranks(number, slow) for number, slow in enumerate(plan)]
    assert looked(held, rounds) == []
    assert [each.node for each in looked(held, [ranks(100, bad)])] == ["n5"]
    assert [each.node for each in looked(held, [ranks(101, good), ranks(102, bad)])] == ["n5"]
    assert looked(held, [ranks(200 + at, good) for at in range(ROUNDS)]) == []


def test_a_round_counts_once_however_often_it_is_looked_at() -> None:
    held = Hysteresis()
    assert looked(held, [ranks(1, {5: OWN})] * 10) == []


def test_straggling_began_with_the_first_bad_round() -> None:
    (found,) = looked(Hysteresis(), [ranks(number, {5: OWN}) for number in range(ROUNDS)])
    assert found.since_ns == 1000
    assert (found.rank, found.peers) == (5, 8)


def test_just_within_the_limit_does_not_end_it() -> None:
    """The limit is where it begins; half way to the median is where it ends."""
    held = Hysteresis()
    looked(held, [ranks(number, {5: OWN}) for number in range(ROUNDS)])
    edge = {5: {"gpu_wait": 7.2, "host_cpu": 2.8}}  # 28 % against a median of 20 % and a limit of 30 %
    assert beyond(ranks(50, edge)) == set()
    assert len(looked(held, [ranks(50 + at, edge) for at in range(6)])) == 1


def test_a_node_that_falls_silent_is_no_straggler_for_ever() -> None:
    held = Hysteresis()
    looked(held, [ranks(number, {5: OWN}) for number in range(ROUNDS)])
    gone = [[each for each in ranks(50 + at) if each.rank != 5] for at in range(ABSENT_NS // TEN_S)]
    assert len(looked(held, gone[:-1], from_ns=ROUNDS * TEN_S)) == 1
    assert looked(held, gone[-1:], from_ns=ROUNDS * TEN_S + ABSENT_NS) == []


def test_looks_that_follow_each_other_quickly_make_nobody_absent() -> None:
    held = Hysteresis()
    looked(held, [ranks(number, {5: OWN}) for number in range(ROUNDS)])
    for at in range(50):
        found, _ = held.step([], ROUNDS * TEN_S + at, {})
    assert [each.node for _, each in found] == ["n5"]


def test_the_cause_is_the_nodes_own_finding_about_that_process() -> None:
    told = [
        finding(pid=7, severity="CRITICAL", kind="disk-wait", cause="another process"),
        finding(severity="LOW", kind="gc-pause", cause="less"),
        finding(),
    ]
    (found,) = looked(Hysteresis(), [ranks(n, {5: OWN}) for n in range(ROUNDS + 1)], {("c1", "n5"): told})
    assert found.cause == "cpu-contention: waited 38 ms for a core"
    assert found.text.startswith("rank 5 on n5: 90.0 % of its time is its own")


def test_without_findings_the_cause_is_where_its_time_goes() -> None:
    (found,) = looked(Hysteresis(), [ranks(number, {5: OWN}) for number in range(ROUNDS + 1)])
    assert found.cause == "most of it runqueue: 60.0 % of its time, usually 0.0 %"


def test_another_collector_goes_on_where_one_stopped() -> None:
    first, second = Hysteresis(), Hysteresis()
    looked(first, [ranks(number, {5: OWN}) for number in range(ROUNDS)])
    ((key, known),), _ = first.step(standings(ranks(50, {5: OWN})), 2000, {})
    second.resume(key, known)
    # It was away, and so are the agents for a moment: they wait before they try again.
    assert len(looked(second, [[]] * 8, from_ns=10**18)) == 1
    (found,) = looked(second, [ranks(51, {5: OWN})], from_ns=10**18 + 8 * TEN_S)
    assert found.since_ns == known.since_ns


def test_nodes_are_told_where_they_stand() -> None:
    found = standings(ranks(1, {5: OWN}))
    told = advice(found, [])["c1", "n5"]
    own = next(each for each in told if each.measure == "own-time")
    assert (own.value, own.median, own.limit, own.peers) == (0.9, 0.2, 0.3, 8)
    assert not own.straggles


def test_own_time_is_unknown_where_no_time_was_told() -> None:
    assert own_share({}) is None
    assert own_share({"gpu_wait": 3.0, "host_cpu": 1.0}) == 0.25


def test_a_node_that_claims_ranks_of_others_outvotes_nobody() -> None:
    """It names their job, and says of as many ranks as it may that all is as with the slow one."""
    job = ranks(slow={5: OWN})
    liar = [member("liar", rank, pid=200 + rank, time_s=OWN) for rank in (0, 1, 2)]
    assert beyond([*job, *liar]) == {("n5", "own-time")}
    assert {each.member.node for each in standings([*job, *liar])} == {"n3", "n4", "n5", "n6", "n7"}
    more = [member("liar", rank, pid=300 + rank, time_s=OWN) for rank in range(8, 60)]  # there are eight
    assert beyond([*job, *more]) == {("n5", "own-time")}
    whole = [member("liar", rank, pid=400 + rank, time_s=OWN) for rank in range(8)]
    assert beyond([*job, *whole]) == {("n5", "own-time")}


def test_jobs_of_one_name_that_each_fit_a_node_are_jobs_of_their_own() -> None:
    """Servers started by one command on every node, with ranks of their own: nobody waits elsewhere."""
    idle = {"gpu_wait": 9.5, "host_cpu": 0.5}
    nodes = [
        member(f"n{node}", rank, pid=rank, time_s=OWN if node == 3 else idle)
        for node in range(6)
        for rank in range(8)
    ]
    assert beyond(nodes) == set()
    nodes[8] = member("n1", 0, pid=0, time_s=OWN)
    assert beyond(nodes) == {("n1", "own-time")}


def test_of_two_processes_of_one_rank_on_a_node_the_one_that_works_counts() -> None:
    job = ranks()
    child = member("n2", 2, pid=101, time_s={"host_cpu": 0.5})
    assert {each.member.pid for each in standings([*job, child])} == {100}
