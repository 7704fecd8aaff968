"""loom: a durable, token-budgeted memory for LLM agents in one local file."""
