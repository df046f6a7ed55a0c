"""The requests: the parameters of each GET and the body of each POST. Unknown parameters and keys are refused."""

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
Limit = Annotated[int, Field(ge=1, le=200, description="The maximum number of items in the response.")]


class RequestModel(BaseModel):
    """A request without parameters, and the base of all others."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RequestBody(RequestModel):
    """The base of request bodies. Values are not converted, because JSON has types, unlike a query."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


# --- queries


class ListInstancesParams(RequestModel):
    """A filter for instances, and a page of the result."""

    filter: Text = Field("", description="A filter, for example `status:failed workflow:checkout`. Default: all instances.")
    limit: Limit = 50
    page_token: Text | None = Field(None, description="`next_page_token` of the previous page.")


class InstanceParams(RequestModel):
    """The id of an instance."""

    id: Name = Field(description="The id of the instance.")


class GenerationParams(InstanceParams):
    """The id of an instance, and one of its generations."""

    generation: Generation | None = Field(None, description="An earlier generation. Default: the current one.")


class HistoryParams(GenerationParams):
    """A page of the history of an instance."""

    after: Seq = Field(0, description="Only entries after this `seq`.")
    limit: Annotated[int, Field(ge=1, le=1000, description="The maximum number of entries in the response.")] = 200


class WaitParams(InstanceParams):
    """A wait of an instance."""

    op: Name = Field(description="The waiting operation: `activity_id` in `waiting_for`.")


class NameParams(RequestModel):
    """The name of a workflow, channel or group."""

    name: Name = Field(description="The name of the workflow, channel or group.")


class ListNamesParams(RequestModel):
    """A page of names."""

    after: Position = Field("", description="Only names after this one: `next_after` of the previous page.")
    limit: Limit = 50


class ListMembersParams(ListNamesParams):
    """A page of the subscribers of a channel, or of the members of a group."""

    name: Name = Field(description="The name of the channel or group.")


class OutboxParams(RequestModel):
    """A page of the events in the outbox."""

    dead: bool | None = Field(None, description="`true`: only dead letters. `false`: only pending events. Default: both.")
    after: Seq = Field(0, description="Only events after this number: `next_after` of the previous page.")
    limit: Limit = 50


class BulkActionParams(RequestModel):
    """The id of a bulk action."""

    id: Name = Field(description="The id of the batch.")


class AuditParams(RequestModel):
    """A page of the audit."""

    id: Name | None = Field(None, description="Only actions on this instance.")
    before: Seq | None = Field(None, description="Only entries before this number: `next_before` of the previous page.")
    limit: Limit = 50


class WatchParams(RequestModel):
    """The instance to watch, or all of them."""

    id: Name | None = Field(None, description="The instance to watch. Default: all.")


# --- actions


class StartWorkflow(RequestBody):
    """A workflow to start, with its input."""

    workflow: Name = Field(description="The name of the workflow.")
    input: dict[str, Any] = Field(default_factory=dict, description="The arguments of the workflow, by name.")
    instance_id: Name | None = Field(None, description="The id of the new instance. Default: a generated one.")


class SubmitEvent(RequestBody):
    """An event to send."""

    type: Name = Field(description="The type of the event.")
    data: Any = Field(None, description="The data of the event: any JSON value.")
    source: Name = Field("romancy", description="The source of the event.")
    subject: Name | None = Field(None, description="The subject of the event, by which waits can select it.")
    to: Name | None = Field(None, description="Deliver the event only to this instance.")


class SubmitMessage(RequestBody):
    """A message to publish, or to send to one instance."""

    channel: Name = Field(description="The name of the channel.")
    data: Any = Field(None, description="The value of the message: any JSON value.")
    to: Name | None = Field(None, description="Deliver the message only to this instance.")


class PreviewAction(RequestBody):
    """An action on an instance, to be previewed."""

    action: ActionKind = Field(strict=False, description="The action to preview.")
    id: Name = Field(description="The id of the instance.")


class ApplyAction(RequestBody):
    """An action, and the instances to apply it to."""

    action: ActionKind = Field(strict=False, description="The action to apply.")
    ids: Annotated[list[Name], Field(min_length=1, max_length=1000, description="The ids of the instances.")]
    reason: Text | None = Field(None, description="The reason for the action, which the audit records.")


class StartBulkAction(RequestBody):
    """An action to apply to all instances that match a filter."""

    action: ActionKind = Field(strict=False, description="The action to apply.")
    filter: Text = Field(description="The filter that the instances match.")
    reason: Text | None = Field(None, description="The reason for the action, which the audit records.")


class AbortBulkAction(RequestBody):
    """The batch to abort."""

    id: Name = Field(description="The id of the batch.")


class RequeueOutbox(RequestBody):
    """The dead letters to requeue."""

    ids: Annotated[list[Seq], Field(min_length=1, max_length=1000)] | None = Field(
        None, description="The numbers of the dead letters. Default: all of them."
    )


class PruneInstances(RequestBody):
    """The age of the instances to delete."""

    older_than: Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)] = Field(
        description="Delete instances that ended at least this many seconds ago."
    )
