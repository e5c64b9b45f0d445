"""Units of time and their conversions (the only factor of 1000), and constants that all layers share.

Instants end in ``_at_ms`` or ``_at_s``, durations in ``_ms`` or ``_s``, shares in ``_ratio`` (0..1).
"""

from __future__ import annotations

MS_PER_S = 1000.0
SECONDS_PER_DAY = 24.0 * 3600.0
SECONDS_PER_MONTH = 30.0 * SECONDS_PER_DAY
#: Tolerance when instants are compared: sums of equal ticks differ from the end of a window by rounding.
CLOCK_SLACK_S = 1e-6
#: Confidence of every stated limit and interval, two-sided, unless its document or option sets another.
CONFIDENCE = 0.95


def s_from_ms(duration_ms: float) -> float:
    """Seconds in ``duration_ms`` milliseconds."""
    return duration_ms / MS_PER_S
