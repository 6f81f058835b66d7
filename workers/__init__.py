"""Which processes make it happen: the Celery workers, their pullers and the speech engines.

`pipeline/` says what happens to a recording; this package runs it. Nothing in `pipeline/` imports
from here. Importing this package is cheap: vLLM loads `workers.die_with_parent` in every process
it starts.
"""
