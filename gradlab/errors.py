"""Errors meant for people: each says what was expected, what was found, where, and what to do."""

from __future__ import annotations


class GradlabError(Exception):
    """Any mistake or limit that gradlab explains in one message; commands print it, exit 1."""


class ScenarioError(GradlabError):
    """A mistake in a scenario or in the call; all of a file's mistakes in one message, exit 2."""


class StoreError(GradlabError):
    """A directory that cannot be read or written as a sweep, exit 2."""


class NothingToPlotError(GradlabError):
    """The tables hold nothing that this figure could draw; the message says why."""
