"""The four tiers: what moves between them, when, and who leaves.

Moves happen in the transaction that causes them; jobs, eviction, quotas, the monitor and the optional tuner live
beside them. What a record says in fewer words is in `loom.knowledge`.
"""

__all__: list[str] = []
