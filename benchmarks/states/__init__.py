"""States that replace each other, and pairs that must not be merged: two lists, and how compaction treats them."""
