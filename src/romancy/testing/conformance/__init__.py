"""The conformance suite of the store's port: what every database must do alike.

Import the classes into a test module that has two fixtures: `store`, an open store on an empty database, and
`make_store`, an async function that opens one more store on the same database (skip there if that cannot be). With
pytest-asyncio in auto mode the suite then runs as it is.

    from romancy.testing.conformance import *

Time is a plain number here: every test is a short dated story.
"""

from romancy.testing.conformance.accepting import TestAccepting
from romancy.testing.conformance.batches import TestBatches
from romancy.testing.conformance.builders import MakeStore
from romancy.testing.conformance.channels import TestBroadcast, TestChannels, TestDirect
from romancy.testing.conformance.claims import TestClaims
from romancy.testing.conformance.competing import TestCompeting
from romancy.testing.conformance.creation import TestCreation
from romancy.testing.conformance.crowds import TestCrowds
from romancy.testing.conformance.deadlines import TestDeadlines
from romancy.testing.conformance.events import TestEvents
from romancy.testing.conformance.generations import TestBonds, TestGenerations
from romancy.testing.conformance.groups import TestGroups
from romancy.testing.conformance.losses import TestLosses
from romancy.testing.conformance.operators import TestCounts, TestDesk, TestPlaces, TestRollUp, TestSurveys
from romancy.testing.conformance.outbox import TestPuttingIn, TestRelaying, TestTheDead
from romancy.testing.conformance.reading import TestReading
from romancy.testing.conformance.requests import TestRequests
from romancy.testing.conformance.retries import TestRetries
from romancy.testing.conformance.sharing import TestSharing
from romancy.testing.conformance.steps import TestSteps
from romancy.testing.conformance.transitions import TestTransitions
from romancy.testing.conformance.upkeep import TestUpkeep

__all__ = [
    "MakeStore",
    "TestAccepting",
    "TestBatches",
    "TestBonds",
    "TestBroadcast",
    "TestChannels",
    "TestClaims",
    "TestCompeting",
    "TestCounts",
    "TestCreation",
    "TestCrowds",
    "TestDeadlines",
    "TestDesk",
    "TestDirect",
    "TestEvents",
    "TestGenerations",
    "TestGroups",
    "TestLosses",
    "TestPlaces",
    "TestPuttingIn",
    "TestReading",
    "TestRelaying",
    "TestRequests",
    "TestRetries",
    "TestRollUp",
    "TestSharing",
    "TestSteps",
    "TestSurveys",
    "TestTheDead",
    "TestTransitions",
    "TestUpkeep",
]
