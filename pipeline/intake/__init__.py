"""Recordings as they come from outside: kept, measured, and turned into packed speech.

`storage` keeps the bytes. Everything that reads *into* them runs behind `prober`, a sandboxed
process: `opening` (which demuxer, which decoder), `container`, `headers` and `claims` (what is it,
how long), `decode`, `channels`, `speech` and `pack` (what is worth hearing). `storage`, `prober`
and `raw` (what is declared) are all that the rest of the program imports; they load neither a codec
nor a model.
"""

import os

# onnxruntime's Linux wheel reports its use to its maker over the network unless this stands in the
# environment before it is imported; its reporting thread would also make a fork unsafe.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
