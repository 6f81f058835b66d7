"""Postgres, and nothing but Postgres: the only place that decides.

Every question asked of the database is one function here, named for the question. Every write by a
worker carries its attempt and holds only while the job's attempt is still that one (the fence).
The schema changes only through migrations/.
"""
