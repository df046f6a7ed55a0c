"""The conformance suite of the store's port: the behaviour that every database must share.

Import the classes into a test module that has two fixtures: `store`, an open store on an empty database, and
`make_store`, an async function that opens one more store on the same database (skip there if that cannot be). With
pytest-asyncio in auto mode the suite then runs as it is.

    from tests.store.conformance import *

Times are small integers, so that each test can state them.
"""

from tests.store.conformance.admin_queries import (
    TestAuditAndBulkActions,
    TestChannelQueries,
    TestCounts,
    TestRollUp,
    TestScans,
)
from tests.store.conformance.batches import TestBatches
from tests.store.conformance.builders import MakeStore
from tests.store.conformance.channels import TestBroadcast, TestChannels, TestDirect
from tests.store.conformance.claims import TestClaims
from tests.store.conformance.competing_channels import TestCompeting
from tests.store.conformance.creation import TestCreation
from tests.store.conformance.deadlines import TestDeadlines
from tests.store.conformance.event_intake import TestAccepting
from tests.store.conformance.events import TestEvents
from tests.store.conformance.generations import TestGenerations, TestMemberships
from tests.store.conformance.groups import TestGroups
from tests.store.conformance.losses import TestLosses
from tests.store.conformance.maintenance import TestMaintenance
from tests.store.conformance.outbox import TestAdding, TestDeadLetters, TestRelaying
from tests.store.conformance.random_channels import TestRandomChannels
from tests.store.conformance.reads import TestReading
from tests.store.conformance.requests import TestRequests
from tests.store.conformance.retries import TestRetries
from tests.store.conformance.steps import TestSteps
from tests.store.conformance.transitions import TestTransitions
from tests.store.conformance.two_stores import TestSharing

__all__ = [
    "MakeStore",
    "TestAccepting",
    "TestAdding",
    "TestAuditAndBulkActions",
    "TestBatches",
    "TestBroadcast",
    "TestChannelQueries",
    "TestChannels",
    "TestClaims",
    "TestCompeting",
    "TestCounts",
    "TestCreation",
    "TestDeadLetters",
    "TestDeadlines",
    "TestDirect",
    "TestEvents",
    "TestGenerations",
    "TestGroups",
    "TestLosses",
    "TestMaintenance",
    "TestMemberships",
    "TestRandomChannels",
    "TestReading",
    "TestRelaying",
    "TestRequests",
    "TestRetries",
    "TestRollUp",
    "TestScans",
    "TestSharing",
    "TestSteps",
    "TestTransitions",
]
