"""Which files of tests take longest, so that several test processes end at about the same time.

A process takes the next file when it is done with one: whoever took a long file last would work on alone. So the long
ones come first. A file that is not here comes after these; one that takes ten seconds of the processor deserves its
line.
"""

LONGEST = """
docs/test_docs
replay/test_page
scale/test_cluster
scale/test_own_ray
core/test_interpreted_worlds
truth/test_pyvrp_truth
cli/test_cli
truth/test_delivery_learning
core/test_processes
core/test_check
truth/test_gymnasium_conformance
truth/test_collect_episodes
truth/test_torchrl_conformance
truth/test_collect_exhaustive
truth/test_truckdrone_reference
api/test_workers_failure
truth/test_dat_conformance
truth/test_defaults_bite
api/test_gymnasium
api/test_interrupts
api/test_torchrl_env
api/test_binding_laws
api/test_sb3_subproc
truth/test_collect_reference
truth/test_fuzz_tensordicts
tracking/test_link_processes
delivery/test_tspd_contract
bench/test_api_ratios
core/test_rng
truth/test_darp_reference
core/test_fallback
solvers/test_pyvrp
core/test_interrupts
truth/test_darp_by_hand
api/test_workers
api/test_dat_link_deaths
truth/test_truckdrone_roads
truth/test_sb3_learning
truth/test_binding_memory
docs/test_add_a_world
truth/test_fill_statistics
docs/test_use_it_with
truth/test_darp_episodes
""".split()
