BEGIN TRANSACTION;
CREATE TABLE romancy_attempts (
    instance_id  TEXT    NOT NULL,
    generation   INTEGER NOT NULL,
    op           TEXT    NOT NULL,
    attempt      INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    open         INTEGER NOT NULL,
    worker       TEXT    NOT NULL,
    epoch        INTEGER NOT NULL,
    site         TEXT    NOT NULL,
    scheduled_at INTEGER NOT NULL,
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER,
    next_at      INTEGER,
    error        BLOB,
    details      BLOB,
    heartbeat_at INTEGER,
    PRIMARY KEY (instance_id, generation, op, attempt)
) WITHOUT ROWID;
INSERT INTO "romancy_attempts" VALUES('golden_retries',1,'patient:1',1,'patient',0,'golden/541f8df4',1,'tests.golden.workflows:golden_retries:252:18',1893456000000000,1893456000000000,1893456000000000,1893456030000000,X'7B2274797065223A226275696C74696E733A436F6E6E656374696F6E4572726F72222C226D657373616765223A226E6F7420796574222C227472616365223A2254726163656261636B20286D6F737420726563656E742063616C6C206C617374293A5C6E202046696C65205C222F776F726B2F6D61696E2F7372632F726F6D616E63792F776F726B65722F617474656D70742E70795C222C206C696E65203233392C20696E205F63616C6C5F677561726465645C6E2020202076616C7565203D206177616974202873656C662E5F63616C6C282920696620776F726B65722E686F6F6B5F64697370617463686572206973204E6F6E6520656C73652073656C662E5F63616C6C5F776974685F686F6F6B7328776F726B65722E686F6F6B5F6469737061746368657229295C6E2020202020202020202020205E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5E5C6E202046696C65205C222F776F726B2F6D61696E2F74657374732F676F6C64656E2F776F726B666C6F77732E70795C222C206C696E65203235392C20696E2070617469656E745C6E20202020726169736520436F6E6E656374696F6E4572726F72285C226E6F74207965745C22295C6E436F6E6E656374696F6E4572726F723A206E6F74207965745C6E222C2266696E6765727072696E74223A2238653733356164633832343537646161222C2261726773223A5B226E6F7420796574225D2C226174747273223A7B7D2C226669656C6473223A7B7D2C2272656275696C64223A747275657D',NULL,1893456000000000);
CREATE TABLE romancy_audit (
    number      INTEGER PRIMARY KEY AUTOINCREMENT,
    at          INTEGER NOT NULL,
    actor       TEXT    NOT NULL,
    action      TEXT    NOT NULL,
    instance_id TEXT,
    detail      TEXT    NOT NULL
);
CREATE TABLE romancy_bulk_actions (
    id            TEXT    NOT NULL PRIMARY KEY,
    action        TEXT    NOT NULL,
    filter        TEXT    NOT NULL,
    reason        TEXT,
    actor         TEXT    NOT NULL,
    status        TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    done          INTEGER NOT NULL,
    failed        INTEGER NOT NULL,
    scanned       INTEGER NOT NULL,
    failures      TEXT    NOT NULL,  
    cursor        TEXT,              
    claimed_by    TEXT,
    claimed_until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE romancy_consumed_events (
    instance_id TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    selector    TEXT    NOT NULL,
    PRIMARY KEY (instance_id, seq)
) WITHOUT ROWID;
CREATE TABLE romancy_deliveries (
    instance_id TEXT    NOT NULL,
    channel     TEXT    NOT NULL,
    seq         INTEGER NOT NULL,
    PRIMARY KEY (instance_id, channel, seq)
) WITHOUT ROWID;
CREATE TABLE romancy_events (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    source      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    type        TEXT    NOT NULL,
    subject     TEXT,
    target      TEXT,                        
    consumed    INTEGER NOT NULL DEFAULT 0,  
    accepted_at INTEGER NOT NULL,
    body        BLOB    NOT NULL             
);
CREATE TABLE romancy_group_members (
    name        TEXT    NOT NULL,
    instance_id TEXT    NOT NULL,
    since       INTEGER NOT NULL,
    PRIMARY KEY (name, instance_id)
) WITHOUT ROWID;
CREATE TABLE romancy_handlers (
    workflow TEXT    NOT NULL PRIMARY KEY,
    version  TEXT    NOT NULL,
    saved_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE romancy_history (
    instance_id  TEXT    NOT NULL,
    generation   INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    kind         TEXT    NOT NULL,
    op           TEXT    NOT NULL,
    outcome      TEXT    NOT NULL,
    at           INTEGER NOT NULL,
    name         TEXT    NOT NULL,
    role         INTEGER NOT NULL,
    digest       BLOB    NOT NULL,
    input        BLOB,
    value        BLOB,
    attempt      INTEGER NOT NULL,
    site         TEXT    NOT NULL,
    scheduled_at INTEGER,
    started_at   INTEGER,
    ended_at     INTEGER,
    worker       TEXT    NOT NULL,
    epoch        INTEGER NOT NULL,
    PRIMARY KEY (instance_id, generation, seq)
) WITHOUT ROWID;
INSERT INTO "romancy_history" VALUES('golden_waits_for_event',1,1,'activity','double:1','ok',1893456000000000,'double',0,X'1239CBE2DD247E9E',X'7B226E223A317D',X'32',1,'tests.golden.workflows:golden_waits_for_event:222:20',1893456000000000,1893456000000000,1893456000000000,'golden/541f8df4',1);
INSERT INTO "romancy_history" VALUES('golden_waits_for_message',1,1,'subscribe','subscribe:golden-line:1','ok',1893456000000000,'subscribe:golden-line',0,X'0B295032DF89C391',X'7B226368616E6E656C223A22676F6C64656E2D6C696E65222C226D6F6465223A22636F6D706574696E67227D',NULL,0,'tests.golden.workflows:golden_waits_for_message:230:11',1893456000000000,NULL,NULL,'golden/541f8df4',1);
INSERT INTO "romancy_history" VALUES('golden_waits_for_message',1,2,'message','receive:golden-line:1','ok',1893456000000000,'receive:golden-line',0,X'35791AB39878FAF5',X'7B226368616E6E656C223A22676F6C64656E2D6C696E65227D',X'7B226964223A2230316238646163352D623430302D376531352D623136662D653237613435353562333936222C226368616E6E656C223A22676F6C64656E2D6C696E65222C2273656E646572223A6E756C6C2C22637265617465645F6174223A22323033302D30312D30315430303A30303A30302B30303A3030222C226D65746164617461223A7B7D2C2264617461223A317D',0,'tests.golden.workflows:golden_waits_for_message.<locals>.<listcomp>:231:20',1893456000000000,NULL,NULL,'golden/541f8df4',2);
CREATE TABLE romancy_inbox (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    op          TEXT    NOT NULL,
    body        BLOB,
    at          INTEGER NOT NULL
);
CREATE TABLE romancy_instances (
    id                   TEXT    NOT NULL PRIMARY KEY,
    workflow             TEXT    NOT NULL,
    version              TEXT    NOT NULL,           
    status               TEXT    NOT NULL,
    generation           INTEGER NOT NULL,
    round                INTEGER NOT NULL,
    epoch                INTEGER NOT NULL,           
    owner                TEXT,
    wake_at              INTEGER,
    inbox_version        INTEGER NOT NULL,           
    inbox_version_seen   INTEGER NOT NULL,           
    cancel_requested_at  INTEGER,
    deadline_at          INTEGER,
    retrying_since       INTEGER,
    blocked_by           TEXT,
    fingerprint          TEXT    NOT NULL,           
    created_at           INTEGER NOT NULL,
    started_at           INTEGER,
    updated_at           INTEGER NOT NULL,
    ended_at             INTEGER,
    code                 TEXT    NOT NULL,
    python               TEXT    NOT NULL,
    digest               BLOB    NOT NULL,           
    created_at_event_seq INTEGER NOT NULL DEFAULT 0  
) WITHOUT ROWID;
INSERT INTO "romancy_instances" VALUES('golden_retries','golden_retries','','waiting_for_timer',1,0,1,NULL,1893456030000000,0,0,NULL,NULL,1893456000000000,NULL,'',1893456000000000,1893456000000000,1893456000000000,NULL,'92842fc227cbe00c','3.11.7',X'01E7B720FF566D53',0);
INSERT INTO "romancy_instances" VALUES('golden_rounds_on','golden_rounds_on','','waiting_for_event',2,0,1,NULL,NULL,0,0,NULL,NULL,NULL,NULL,'',1893456000000000,1893456000000000,1893456000000000,NULL,'d79a7ded94ec3831','3.11.7',X'1239CBE2DD247E9E',0);
INSERT INTO "romancy_instances" VALUES('golden_sleeps','golden_sleeps','','waiting_for_event',1,0,1,NULL,1893542400000000,0,0,NULL,NULL,NULL,NULL,'',1893456000000000,1893456000000000,1893456000000000,NULL,'4edbb47bd3e0ac5c','3.11.7',X'01E7B720FF566D53',0);
INSERT INTO "romancy_instances" VALUES('golden_waits_for_event','golden_waits_for_event','','waiting_for_event',1,0,1,NULL,NULL,0,0,NULL,NULL,NULL,NULL,'',1893456000000000,1893456000000000,1893456000000000,NULL,'2d9e3f721e17e167','3.11.7',X'01E7B720FF566D53',0);
INSERT INTO "romancy_instances" VALUES('golden_waits_for_message','golden_waits_for_message','','waiting_for_message',1,0,2,NULL,NULL,1,1,NULL,NULL,NULL,NULL,'',1893456000000000,1893456000000000,1893456000000000,NULL,'1cba23b6be1b6072','3.11.7',X'01E7B720FF566D53',0);
CREATE TABLE romancy_journal (
    id          INTEGER PRIMARY KEY,
    instance_id TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    detail      TEXT    NOT NULL,
    worker      TEXT    NOT NULL,
    epoch       INTEGER NOT NULL
);
CREATE TABLE romancy_losses (
    instance_id TEXT    NOT NULL PRIMARY KEY,
    generation  INTEGER NOT NULL,
    progress    INTEGER NOT NULL,  
    losses      INTEGER NOT NULL,
    isolated    INTEGER NOT NULL   
) WITHOUT ROWID;
CREATE TABLE romancy_messages (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    channel    TEXT    NOT NULL,
    pooled     INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    body       BLOB    NOT NULL
);
CREATE TABLE romancy_migrations (
    version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL);
INSERT INTO "romancy_migrations" VALUES(1,'initial',1893456000000000);
CREATE TABLE romancy_outbox (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    broker     TEXT    NOT NULL,
    body       BLOB    NOT NULL,  
    created_at INTEGER NOT NULL,
    since      INTEGER NOT NULL,  
    attempts   INTEGER NOT NULL DEFAULT 0,
    next_at    INTEGER,
    claimed_by TEXT,
    last_error TEXT,
    dead_at    INTEGER
);
CREATE TABLE romancy_payloads (
    instance_id TEXT    NOT NULL,
    generation  INTEGER NOT NULL,
    input       BLOB    NOT NULL,
    output      BLOB,
    error       BLOB,
    begun_at    INTEGER,  
    memberships TEXT,     
    PRIMARY KEY (instance_id, generation)
) WITHOUT ROWID;
INSERT INTO "romancy_payloads" VALUES('golden_retries',1,X'7B7D',NULL,NULL,NULL,NULL);
INSERT INTO "romancy_payloads" VALUES('golden_rounds_on',1,X'7B226E223A317D',NULL,NULL,NULL,NULL);
INSERT INTO "romancy_payloads" VALUES('golden_rounds_on',2,X'7B226E223A327D',NULL,NULL,1893456000000000,NULL);
INSERT INTO "romancy_payloads" VALUES('golden_sleeps',1,X'7B7D',NULL,NULL,NULL,NULL);
INSERT INTO "romancy_payloads" VALUES('golden_waits_for_event',1,X'7B7D',NULL,NULL,NULL,NULL);
INSERT INTO "romancy_payloads" VALUES('golden_waits_for_message',1,X'7B7D',NULL,NULL,NULL,NULL);
CREATE TABLE romancy_rollup (
    minute   INTEGER NOT NULL,  
    workflow TEXT    NOT NULL,
    outcome  TEXT    NOT NULL,
    ended    INTEGER NOT NULL,
    buckets  TEXT    NOT NULL,  
    PRIMARY KEY (minute, workflow, outcome)
) WITHOUT ROWID;
CREATE TABLE romancy_sources (
    code     TEXT    NOT NULL PRIMARY KEY,
    workflow TEXT    NOT NULL,
    version  TEXT    NOT NULL,
    source   TEXT    NOT NULL,
    saved_at INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "romancy_sources" VALUES('1cba23b6be1b6072','golden_waits_for_message','','# tests.golden.workflows:227 (5 lines)
@workflow
async def golden_waits_for_message(ctx: WorkflowContext) -> list[int]:
    """Has a message in its queue, and waits for two more."""
    await subscribe(ctx, "golden-line", "competing")
    return [(await receive(ctx, "golden-line")).data for _ in range(3)]
',1893456000000000);
INSERT INTO "romancy_sources" VALUES('2d9e3f721e17e167','golden_waits_for_event','','# tests.golden.workflows:219 (6 lines)
@workflow
async def golden_waits_for_event(ctx: WorkflowContext) -> int:
    """Waits for `golden.go`."""
    before = await double(ctx, 1)
    event = await wait_event(ctx, "golden.go", subject=ctx.instance_id)
    return before + await double(ctx, event.data["n"])
',1893456000000000);
INSERT INTO "romancy_sources" VALUES('4edbb47bd3e0ac5c','golden_sleeps','','# tests.golden.workflows:234 (13 lines)
@workflow
async def golden_sleeps(ctx: WorkflowContext) -> list[Any]:
    """Sleeps two months, beside something that waits for a day."""

    async def impatient() -> str:
        try:
            await wait_event(ctx, "golden.never", timeout=timedelta(days=1))
        except EventTimeoutError:
            return "gave up"
        return "?"

    _, said = await asyncio.gather(sleep(ctx, timedelta(days=60)), impatient())
    return [said, await double(ctx, 4)]
',1893456000000000);
INSERT INTO "romancy_sources" VALUES('92842fc227cbe00c','golden_retries','','# tests.golden.workflows:249 (4 lines)
@workflow
async def golden_retries(ctx: WorkflowContext) -> int:
    """Is between two attempts of an activity."""
    return await patient(ctx)
',1893456000000000);
INSERT INTO "romancy_sources" VALUES('["descriptor", "golden_retries", ""]','golden_retries','','{"schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "golden_retries", "type": "object", "properties": {}, "required": [], "additionalProperties": false, "description": "Is between two attempts of an activity."}, "compensable": ["pack"]}',1893456000000000);
INSERT INTO "romancy_sources" VALUES('["descriptor", "golden_rounds_on", ""]','golden_rounds_on','','{"schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "golden_rounds_on", "type": "object", "properties": {"n": {"title": "n", "type": "integer"}}, "required": ["n"], "additionalProperties": false, "description": "Waits for an event in its second generation."}, "compensable": ["pack"]}',1893456000000000);
INSERT INTO "romancy_sources" VALUES('["descriptor", "golden_sleeps", ""]','golden_sleeps','','{"schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "golden_sleeps", "type": "object", "properties": {}, "required": [], "additionalProperties": false, "description": "Sleeps two months, beside something that waits for a day."}, "compensable": ["pack"]}',1893456000000000);
INSERT INTO "romancy_sources" VALUES('["descriptor", "golden_waits_for_event", ""]','golden_waits_for_event','','{"schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "golden_waits_for_event", "type": "object", "properties": {}, "required": [], "additionalProperties": false, "description": "Waits for `golden.go`."}, "compensable": ["pack"]}',1893456000000000);
INSERT INTO "romancy_sources" VALUES('["descriptor", "golden_waits_for_message", ""]','golden_waits_for_message','','{"schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "golden_waits_for_message", "type": "object", "properties": {}, "required": [], "additionalProperties": false, "description": "Has a message in its queue, and waits for two more."}, "compensable": ["pack"]}',1893456000000000);
INSERT INTO "romancy_sources" VALUES('d79a7ded94ec3831','golden_rounds_on','','# tests.golden.workflows:263 (7 lines)
@workflow
async def golden_rounds_on(ctx: WorkflowContext, n: int) -> int:
    """Waits for an event in its second generation."""
    if n == 1:
        await recur(ctx, 2)
    event = await wait_event(ctx, "golden.go", subject=ctx.instance_id)
    return n + int(event.data["n"])
',1893456000000000);
CREATE TABLE romancy_subscriptions (
    channel     TEXT    NOT NULL,
    instance_id TEXT    NOT NULL,
    mode        TEXT    NOT NULL,
    since       INTEGER NOT NULL,
    PRIMARY KEY (channel, instance_id)
) WITHOUT ROWID;
INSERT INTO "romancy_subscriptions" VALUES('golden-line','golden_waits_for_message','competing',1893456000000000);
CREATE TABLE romancy_waits (
    instance_id TEXT    NOT NULL,
    op          TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    since       INTEGER NOT NULL,
    due         INTEGER,
    key         TEXT    NOT NULL,
    subject     TEXT,
    "match"     BLOB,
    site        TEXT    NOT NULL,
    matched_seq INTEGER,  
    PRIMARY KEY (instance_id, op)
) WITHOUT ROWID;
INSERT INTO "romancy_waits" VALUES('golden_retries','patient:1','retry',1893456000000000,1893456030000000,'',NULL,NULL,'tests.golden.workflows:golden_retries:252:18',NULL);
INSERT INTO "romancy_waits" VALUES('golden_rounds_on','golden.go:1','event',1893456000000000,NULL,'golden.go','golden_rounds_on',NULL,'tests.golden.workflows:golden_rounds_on:268:19',NULL);
INSERT INTO "romancy_waits" VALUES('golden_sleeps','golden.never:1','event',1893456000000000,1893542400000000,'golden.never',NULL,NULL,'tests.golden.workflows:golden_sleeps.<locals>.impatient:240:19',NULL);
INSERT INTO "romancy_waits" VALUES('golden_sleeps','sleep:1','timer',1893456000000000,1898640000000000,'',NULL,NULL,'tests.golden.workflows:golden_sleeps:245:36',NULL);
INSERT INTO "romancy_waits" VALUES('golden_waits_for_event','golden.go:1','event',1893456000000000,NULL,'golden.go','golden_waits_for_event',NULL,'tests.golden.workflows:golden_waits_for_event:223:19',NULL);
INSERT INTO "romancy_waits" VALUES('golden_waits_for_message','receive:golden-line:2','message',1893456000000000,NULL,'golden-line',NULL,NULL,'tests.golden.workflows:golden_waits_for_message.<locals>.<listcomp>:231:20',NULL);
CREATE TABLE romancy_watermarks (
    name TEXT    NOT NULL PRIMARY KEY,
    upto INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE romancy_workers (
    id           TEXT    NOT NULL PRIMARY KEY,
    label        TEXT    NOT NULL,
    service      TEXT    NOT NULL,
    hostname     TEXT    NOT NULL,
    pid          INTEGER NOT NULL,
    python       TEXT    NOT NULL,
    workflows    TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX romancy_instances_claimable ON romancy_instances (workflow, version, wake_at)
    WHERE owner IS NULL AND wake_at IS NOT NULL;
CREATE INDEX romancy_instances_owned ON romancy_instances (owner) WHERE owner IS NOT NULL;
CREATE INDEX romancy_instances_blocked ON romancy_instances (workflow, version) WHERE status = 'blocked';
CREATE INDEX romancy_instances_created ON romancy_instances (created_at, id);
CREATE INDEX romancy_instances_status ON romancy_instances (status, created_at, id)
    WHERE status NOT IN ('running', 'completed');
CREATE INDEX romancy_instances_ended ON romancy_instances (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX romancy_instances_retrying ON romancy_instances (created_at, id) WHERE retrying_since IS NOT NULL;
CREATE INDEX romancy_payloads_begun ON romancy_payloads (begun_at) WHERE begun_at IS NOT NULL;
CREATE INDEX romancy_waits_key ON romancy_waits (kind, key, subject) WHERE key <> '';
CREATE INDEX romancy_waits_matched ON romancy_waits (instance_id) WHERE matched_seq IS NOT NULL;
CREATE INDEX romancy_waits_queue ON romancy_waits (key, since, instance_id, op) WHERE kind = 'message' AND matched_seq IS NULL;
CREATE INDEX romancy_inbox_instance ON romancy_inbox (instance_id);
CREATE INDEX romancy_journal_instance ON romancy_journal (instance_id);
CREATE UNIQUE INDEX romancy_events_id ON romancy_events (source, id);
CREATE INDEX romancy_events_type ON romancy_events (type, seq) WHERE target IS NULL;
CREATE INDEX romancy_events_subject ON romancy_events (type, subject, seq) WHERE target IS NULL AND subject IS NOT NULL;
CREATE INDEX romancy_events_target ON romancy_events (target, type, seq) WHERE target IS NOT NULL;
CREATE INDEX romancy_events_unconsumed ON romancy_events (seq) WHERE target IS NOT NULL AND consumed = 0;
CREATE INDEX romancy_events_accepted ON romancy_events (accepted_at);
CREATE INDEX romancy_consumed_events_selector ON romancy_consumed_events (instance_id, selector, seq);
CREATE INDEX romancy_consumed_events_seq ON romancy_consumed_events (seq);
CREATE INDEX romancy_subscriptions_instance ON romancy_subscriptions (instance_id);
CREATE INDEX romancy_subscriptions_mode ON romancy_subscriptions (channel) WHERE mode <> 'direct';
CREATE INDEX romancy_messages_pool ON romancy_messages (channel, seq) WHERE pooled = 1;
CREATE INDEX romancy_messages_age ON romancy_messages (created_at) WHERE pooled = 1;
CREATE INDEX romancy_deliveries_seq ON romancy_deliveries (seq);
CREATE INDEX romancy_group_members_instance ON romancy_group_members (instance_id);
CREATE INDEX romancy_outbox_due ON romancy_outbox (broker, next_at, seq) WHERE next_at IS NOT NULL;
CREATE INDEX romancy_outbox_dead ON romancy_outbox (seq) WHERE dead_at IS NOT NULL;
CREATE INDEX romancy_outbox_dead_at ON romancy_outbox (broker, dead_at) WHERE dead_at IS NOT NULL;
CREATE INDEX romancy_audit_instance ON romancy_audit (instance_id, number) WHERE instance_id IS NOT NULL;
CREATE INDEX romancy_bulk_actions_created ON romancy_bulk_actions (created_at, id);
CREATE INDEX romancy_bulk_actions_running ON romancy_bulk_actions (created_at) WHERE status = 'running';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('romancy_messages',1);
COMMIT;
