"""What can be asked: the parameters of each GET, the body of each POST. What is not known is refused."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.config import JsonDict

from romancy.admin.records import ActionKind

_MAX_ID = 1024
_MAX_SEQ = 2**63 - 1
_MAX_GENERATION = 2**31 - 1


def _check_storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("it contains a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it contains a lone surrogate, which cannot be encoded") from None
    return text


def _check_length(text: str) -> str:
    if len(text.encode()) > _MAX_ID:
        raise ValueError(f"it is longer than {_MAX_ID} bytes")
    return text


_WITHOUT_NUL: JsonDict = {"pattern": r"^[^\x00]*$"}
Text = Annotated[str, AfterValidator(_check_storable), Field(max_length=4096, json_schema_extra=_WITHOUT_NUL)]
Name = Annotated[
    str,
    AfterValidator(_check_storable),
    AfterValidator(_check_length),
    Field(min_length=1, max_length=_MAX_ID, json_schema_extra=_WITHOUT_NUL),
]
Position = Annotated[str, AfterValidator(_check_storable), Field(max_length=_MAX_ID, json_schema_extra=_WITHOUT_NUL)]
Generation = Annotated[int, Field(ge=1, le=_MAX_GENERATION)]
Seq = Annotated[int, Field(ge=0, le=_MAX_SEQ)]
Limit = Annotated[int, Field(ge=1, le=200)]


class RequestModel(BaseModel):
    """A question without parts, and the ground of all others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RequestBody(RequestModel):
    """The ground of bodies: JSON has types, so nothing is guessed."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# --- looking


class ListInstancesParams(RequestModel):
    """Which instances."""

    filter: Text = Field("", description="A filter line, for example `status:failed workflow:checkout`.")
    limit: Limit = 50
    page_token: Text | None = Field(None, description="`next_page_token` of the previous page.")


class InstanceParams(RequestModel):
    """Which instance."""

    id: Name = Field(description="The id of the instance.")


class GenerationParams(InstanceParams):
    """Which instance, and which of its generations."""

    generation: Generation | None = Field(None, description="An earlier generation. Default: the current one.")


class HistoryParams(GenerationParams):
    """Which part of a history."""

    after: Seq = Field(0, description="Only entries after this `seq`.")
    limit: Annotated[int, Field(ge=1, le=1000)] = 200


class WaitParams(InstanceParams):
    """Which wait of an instance."""

    op: Name = Field(description="The waiting operation: `activity_id` in `waiting_for`.")


class NameParams(RequestModel):
    """Which workflow, channel or group."""

    name: Name


class ListNamesParams(RequestModel):
    """Which names."""

    after: Position = Field("", description="Only names after this one: `next_after` of the previous page.")
    limit: Limit = 50


class ListMembersParams(ListNamesParams):
    """Who, of a channel or group."""

    name: Name


class OutboxParams(RequestModel):
    """Which events of the outbox."""

    dead: bool | None = Field(None, description="True: only dead letters. False: only the others.")
    after: Seq = 0
    limit: Limit = 50


class BulkActionParams(RequestModel):
    """Which batch."""

    id: Name


class AuditParams(RequestModel):
    """What of the record of actions."""

    id: Name | None = Field(None, description="Only actions on this instance.")
    before: Seq | None = Field(None, description="Only entries before this number: `next_before` of the previous page.")
    limit: Limit = 50


class WatchParams(RequestModel):
    """What to watch."""

    id: Name | None = Field(None, description="The instance to watch. Default: all.")


# --- doing


class StartWorkflow(RequestBody):
    """Which workflow to start, with what."""

    workflow: Name
    input: dict[str, Any] = Field(default_factory=dict, description="The arguments by name.")
    instance_id: Name | None = None


class SubmitEvent(RequestBody):
    """What to send."""

    type: Name
    data: Any = None
    source: Name = "romancy"
    subject: Name | None = None
    to: Name | None = Field(None, description="Deliver the event only to this instance.")


class SubmitMessage(RequestBody):
    """What to publish."""

    channel: Name
    data: Any = None
    to: Name | None = Field(None, description="Deliver the message only to this instance.")


class PreviewAction(RequestBody):
    """What would be done to which instance."""

    action: ActionKind = Field(strict=False)
    id: Name


class ApplyAction(RequestBody):
    """What to do to which instances."""

    action: ActionKind = Field(strict=False)
    ids: Annotated[list[Name], Field(min_length=1, max_length=1000)]
    reason: Text | None = None


class StartBulkAction(RequestBody):
    """What to do to all instances that a filter finds."""

    action: ActionKind = Field(strict=False)
    filter: Text
    reason: Text | None = None


class AbortBulkAction(RequestBody):
    """Which batch."""

    id: Name


class RequeueOutbox(RequestBody):
    """Which dead letters to send again."""

    ids: Annotated[list[Seq], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="Default: all dead letters."
    )


class PruneInstances(RequestBody):
    """What to delete."""

    older_than: Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)] = Field(
        description="Delete instances that ended at least this many seconds ago."
    )
