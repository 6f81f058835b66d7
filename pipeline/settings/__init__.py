"""Settings: what there is to set (`fields`), where it is read (`reading`), URLs of the
stores (`urls`), addresses of parts (`hosts`).

In: the environment of the process. Out: one frozen object, or `BadSetting`.
"""

from pipeline.settings.fields import (
    BY_FILE,
    DEFAULT_POLICY,
    SECRETS,
    Settings,
    default_home,
)
from pipeline.settings.hosts import address, is_loopback, nearby
from pipeline.settings.reading import (
    NOT_SETTINGS,
    PREFIX,
    SettingRow,
    read_settings,
    setting_rows,
)
from pipeline.settings.urls import (
    broker_tls,
    celery_broker_url,
    sqlalchemy_url,
    without_password,
)

__all__ = [
    "BY_FILE",
    "DEFAULT_POLICY",
    "NOT_SETTINGS",
    "PREFIX",
    "SECRETS",
    "SettingRow",
    "Settings",
    "address",
    "broker_tls",
    "celery_broker_url",
    "default_home",
    "is_loopback",
    "nearby",
    "read_settings",
    "setting_rows",
    "sqlalchemy_url",
    "without_password",
]
