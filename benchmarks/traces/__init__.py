"""Recorded traces of agents at work, and a replay of them with tuner, predictor and preload on and off."""
