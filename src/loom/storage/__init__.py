"""The truth: records, their places in the tiers, entries, jobs and blobs, behind one contract.

`contract` says what a backend does and `conformance` tests it; `sqlite` is the backend. Snapshots are in
`loom.snapshots`, and what a question is worth is in `loom.recall`.
"""

__all__: list[str] = []
