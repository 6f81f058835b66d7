"""The stories: each file is one step of a recording's life and reads as a list.

A step does not import a step; the next one is reached through a queue or a task. Steps get their
parts (store, storage, queues) as arguments and settings as values.
"""
