"""What `fairscribe doctor` looks at: each check is a small function with a verdict.

verdict.py   what a check is given and what it answers
machine.py   Python, the state folder, ports, memory
stores.py    Postgres, Redis, clocks, webhooks
engine.py    weights, language, the build of the engine and its device
service.py   the API, Flower, the workers

A check waits a few seconds for what does not answer and never raises on purpose: all of them run
when everything is down.
"""

from pipeline.cli.checks import engine, machine, service, stores

CHECKS = (
    *(machine.python, machine.state_folder, machine.ports, machine.memory),
    *(stores.postgres, stores.redis, stores.clocks, stores.webhooks),
    *(engine.weights, engine.language, engine.build, engine.device),
    *(service.api, service.flower, service.workers),
)
"""All but the settings, which come first: the others need them."""
