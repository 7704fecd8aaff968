"""Nodes in trees and teams: the scopes in which they share memory."""

__all__: list[str] = []
