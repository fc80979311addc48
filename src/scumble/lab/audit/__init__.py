"""Audits of epsilon: lower bounds on what mechanisms really lose, on tables that are made up and public.

audit, Finding      run a mechanism many times on two neighbouring tables, and bound its epsilon from below
shown               an exact loss as text
chosen, NAMES       the mechanisms that are built in: trees, slack, capacity, every private index, the whole database
Subject             any other mechanism

A bound below the claimed epsilon proves nothing: the proofs are in docs/privacy.md. One above it is a defect.
"""

from scumble.lab.audit.mechanisms import NAMES, chosen, subject
from scumble.lab.audit.run import DOUBT, Finding, Subject, audit, shown

__all__ = ["DOUBT", "NAMES", "Finding", "Subject", "audit", "chosen", "shown", "subject"]
