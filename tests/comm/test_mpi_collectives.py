"""Runs the tests of collectives (comm.collectives and its faults) and of ranks with other programs under mpirun."""

import os
import time

import mpi
import tool

OK = "[       OK ]"


def team(program, ranks, test="*", only="", **environment):
    environment.update(TEAM_PROCESSES=str(ranks), TEAM_TEST=test)
    if only:
        environment["TEAM_ONLY"] = str(only)
    begin = time.monotonic()
    process = mpi.start(ranks, os.path.join(mpi.TESTS, program), **environment)
    code, out, err = tool.finish(process)
    assert "ERROR" not in out + err and "[  PASSED  ] 0" not in out + err, (program, ranks, test, only, out, err)
    # If no team has this many ranks, the test has nothing to do.
    assert f"a team of {ranks}\n" in out, (program, ranks, test, only, out, err)
    assert time.monotonic() - begin < 60, (program, ranks, test, only)
    return code, out + err


def test_collectives():
    for ranks in (3,) if tool.SANITIZED else (2, 3, 4):
        for unreadable in ({},) if tool.SANITIZED else ({}, {"TEAM_UNREADABLE": "1"}):
            code, text = team("test_comm_collectives", ranks, **unreadable)
            assert code == 0 and mpi.tests_pass(text, ranks), (ranks, unreadable, code, text)


def test_ranks_that_agree():
    for program, test, ranks in (("mismatched_calls", "groups_of_one_name_are_told_apart_by_order", 4),
                                 ("mismatched_calls", "communicators_are_independent", 4),
                                 ("mismatched_calls", "sends_and_receives_match_in_order", 4),
                                 ("mismatched_calls", "sixteen_ranks_on_two_cores_make_progress", 16),
                                 ("mismatched_calls", "repeated_sums_have_the_same_bits_on_all_ranks", 5),
                                 ("mismatched_calls", "who_waits_sleeps", 2),
                                 ("lost", "calls_that_are_begun_are_not_late_before_their_end", 2),
                                 ("lost", "who_is_stopped_with_all_others_is_not_late", 2)):
        code, text = team(f"test_comm_{program}", ranks, test)
        assert code == 0 and text.count(OK) == ranks, (test, code, text)


def test_ranks_that_do_not():
    # A broken world ends the program on all ranks, so each of these is a run of its own.
    calls, lost = "mismatched_calls", "lost"
    for program, test, ranks, teams in ((calls, "mismatched_calls_break_the_world_and_are_named", 3, 10),
                                        (calls, "a_receive_of_another_size_than_the_send_is_refused", 2, 1),
                                        (calls, "groups_that_do_not_match_are_refused_at_once", 3, 2),
                                        (calls, "groups_that_do_not_match_are_refused_at_once", 2, 4),
                                        (lost, "a_deadline_names_group_rank_and_who_is_missing", 4, 2),
                                        (lost, "deadlines_hold_for_opening_and_sending", 3, 2),
                                        (lost, "deadlines_count_from_when_a_call_is_wanted", 2, 4),
                                        (lost, "breaking_wakes_all", 4, 1),
                                        (lost, "nobody_uses_a_buffer_after_its_call", 3, 1)):
        if tool.SANITIZED and program == calls and ranks == 2:
            continue  # processes start slowly then
        for only in range(1, 1 + (1 if tool.SANITIZED else teams)):
            _, text = team(f"test_comm_{program}", ranks, test, only)
            assert OK in text, (test, only)


def test_programs_that_differ():
    for odd in (3,) if tool.SANITIZED else (-1, 1, 3):
        program = os.path.join(mpi.TESTS, "test_engine_unlike_programs")
        process = mpi.start(4, program, TEAM_PROCESSES="4", TEAM_ODD=str(odd))
        code, out, err = tool.finish(process)
        assert (out + err).count(OK) == 4 and out.count("told") == (odd >= 0), (odd, code, out, err)


if __name__ == "__main__":
    tool.enter_scratch()
    mpi.skip_without()
    tool.main(dict(globals()))
