"""Who asks, and what its key allows.

Where keys are off everybody is `ANYONE`: one tenant without a name, who may do everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Scope(StrEnum):
    """What a key may allow."""

    SUBMIT = "submit"
    """Send recordings; cancel, retry and erase one's own; keep webhooks."""
    READ = "read"
    """Status and transcripts of one's own."""
    LISTEN = "listen"
    """The recordings themselves."""
    OPERATE = "operate"
    """The order of work and the state of every tenant's jobs; not what they say."""


@dataclass(frozen=True)
class Caller:
    """Whoever sent a request."""

    key_id: str | None
    """None where keys are off."""
    tenant: str | None
    """Whose jobs it makes and sees; None where keys are off."""
    scopes: frozenset[Scope]
    rate_per_s: float | None = None
    """Requests a second; None: as the settings say."""
    rate_burst: int | None = None
    """Requests at once; None: as the settings say."""

    def may(self, scope: Scope) -> bool:
        """Whether its key allows this."""
        return scope in self.scopes

    def sees(self, tenant: str | None) -> bool:
        """Whether things of `tenant` exist for it."""
        return self.key_id is None or self.tenant == tenant


ANYONE = Caller(None, None, frozenset(Scope))
"""The caller where keys are off."""
