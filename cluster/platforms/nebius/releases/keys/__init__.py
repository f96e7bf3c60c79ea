"""Which values a chart takes: Helm itself accepts any key, and ignores those that the chart does not know."""

from cluster.platforms.nebius.releases.keys.check import CHARTS, UnknownKey, UnknownValue, check_values, unknown

__all__ = ["CHARTS", "UnknownKey", "UnknownValue", "check_values", "unknown"]
