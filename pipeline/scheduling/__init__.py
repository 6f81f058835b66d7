"""Rules of order: pure functions of numbers, no I/O, time comes in as an argument.

The queue's Lua script, the worker's dispatch and the simulator all rank by the same pairs
(u, v) made here, so what is simulated is what runs. Tested in tests/unit/.
"""
