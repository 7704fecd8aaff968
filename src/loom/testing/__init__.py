"""A model server for tests and demonstrations. It follows a script and speaks the real wire protocols."""

from loom.testing.replies import Answer, Broken, Call, Cut, Fail, Hang, Reply, ScriptLine
from loom.testing.server import Request, ScriptedModel

__all__ = ["Answer", "Broken", "Call", "Cut", "Fail", "Hang", "Reply", "Request", "ScriptLine", "ScriptedModel"]
