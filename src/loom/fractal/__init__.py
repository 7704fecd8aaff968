"""Nodes in trees and teams: the scopes in which they share memory."""
