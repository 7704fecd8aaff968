"""The four tiers: the moves between them, and the choice of the records that leave.

Moves happen in the transaction that causes them; jobs, eviction, quotas, the monitor and the optional tuner live
beside them. Stand-ins and summaries are in `loom.knowledge`.
"""

__all__: list[str] = []
