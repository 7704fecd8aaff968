"""What an agent is built with: tools over its memory."""

__all__: list[str] = []
