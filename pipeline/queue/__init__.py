"""Redis, and nothing but Redis: who waits, who holds a lease, and in which order work is given.

In come ids and scores; out come ids. No payload, no state that Postgres does not also hold: the
whole index may be lost at any moment and is rebuilt (steps/reclaim.py). Every command is one Lua
script that is safe to send twice, because redis-py sends again when an answer is late.
"""
