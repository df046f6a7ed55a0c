"""Apply schema.tsv to the .sql files: `statements.py ROOT [--dry]`, before statements.tsv."""

# ruff: noqa
import re, sys
from collections import Counter
from pathlib import Path

PLAIN = [  # everywhere in code, in every dialect: these words have one meaning in the SQL
    (r"\bromancy_turn\b", "romancy_messaging_lock"),
    (r"\bromancy_taken\b", "romancy_consumed_events"),
    (r"\bromancy_members\b", "romancy_group_members"),
    (r"\bromancy_marks\b", "romancy_watermarks"),
    (r"\bromancy_batches\b", "romancy_bulk_actions"),
    (r"\bromancy_bell\b", "romancy_notifications"),
    (r"\bromancy_hints\b", "romancy_pending_notifications"),
    (r"\bromancy_waits_met\b", "romancy_waits_matched"),
    (r"\bromancy_waits_line\b", "romancy_waits_queue"),
    (r"\bromancy_waits_particular\b", "romancy_waits_match"),
    (r"\bromancy_instances_listed\b", "romancy_instances_status"),
    (r"\bromancy_taken_wanted\b", "romancy_consumed_events_selector"),
    (r"\bromancy_taken_seq\b", "romancy_consumed_events_seq"),
    (r"\bromancy_members_instance\b", "romancy_group_members_instance"),
    (r"\bromancy_batches_created\b", "romancy_bulk_actions_created"),
    (r"\bromancy_batches_running\b", "romancy_bulk_actions_running"),
    (r"\bromancy_events_unused\b", "romancy_events_unconsumed"),
    (r"\bromancy_outbox_buried\b", "romancy_outbox_dead_at"),
    (r"\bromancy_accept\b", "romancy_accept_events"),
    (r"\bromancy_new\b", "romancy_new_instance"),
    (r"\bromancy_held\b", "romancy_owned_row"),
    (r"\bsignal_seen\b", "inbox_version_seen"),
    (r"`signal`|\bsignal\b", "inbox_version"),
    (r"\bborn\b", "created_at_event_seq"),
    (r"\bbonds\b", "memberships"),
    (r"\bbeat_at\b", "heartbeat_at"),
    (r"\bhost\b", "hostname"),
    (r"\balone\b", "isolated"),
    (r"\bdeed\b", "action"),
    (r"\blooked_at\b", "scanned"),
    (r":looked\b", ":scanned"),
    (r"\bstuck\b", "blocked_workflow"),
    (r"\blisted\b", "listed_status"),
    (r"\bretried_since\b", "retrying_created_at"),
    (r"\bmade\b", "committed"),
    (r"\brung\b", "version"),
    (r"\btaken AS \(", "recorded AS ("),  # a CTE of quick_answers
    (r"\bused AS \(", "addressed AS ("),  # another
    (r"\bunused\b", "unconsumed"),
    (r"\bused\b", "consumed"),
    (r"\bmet AS \(", "matched AS ("),  # CTEs
    (r"\bis_met\b", "is_matched"),
    (r"\bmet\b", "matched_seq"),
    (r"\bcalled AS \(", "woken AS ("),  # a CTE
    (r"\bcalled\b", "wait"),  # jsonb_array_elements(...) AS called
    (r"(?<=python, )kinds(?=, started_at)", "workflows"),  # the column; `:kinds`, `kinds (` and `<<kinds` stay
    (r"\bkinds = excluded\.kinds\b", "workflows = excluded.workflows"),
    (r"^(    )kinds( +(?:TEXT|LONGTEXT) +NOT NULL)", r"\1workflows\2"),  # its definition
]
OF_TAKEN = ("looked_up_to", "take_event", "find_events", "quick_answers")  # here `wanted` is the column and its parameter
OF_BATCHES = (
    "add_batch",
    "batch_of",
    "last_batches",
    "open_batch",
    "save_batch",
)  # here `place` is the column and its parameter
QUICK = ("quick", "quick_steps", "quick_step", "quick_others", "quick_done", "quick_answers", "quick_answered")


def rules(dialect, statement, file):
    found = [(a, b) for a, b in PLAIN if b is not None]
    if dialect == "mysql":
        found += [
            (r"\bw\.line\b", "w.queue_channel"),
            (r"^(    )line(?= +VARBINARY)", r"\1queue_channel"),
            (r"\(line(?=, since\))", "(queue_channel"),
        ]
    migration = file.endswith("migrations")
    if statement in OF_TAKEN or migration:
        found += [(r"\bwanted\b", "selector")]
    else:  # an alias of what a query is given or reads
        found += [(r"\bwanted_all\b", "shared"), (r"\bwanted_own\b", "own"), (r"\bwanted\b", "given")]
    if statement in OF_BATCHES:
        found += [(r":place\b", ":cursor"), (r"(?<!:)\bplace\b", "`cursor`" if dialect == "mysql" else "cursor")]
    elif migration:
        found += [(r"^(    )place(?= +(?:TEXT|LONGTEXT),)", r"\1`cursor`" if dialect == "mysql" else r"\1cursor")]
        found += [(r"\bplace\b", "ordinal")]  # the function's ORDINALITY
    else:
        found += [(r"\bplace\b", "ordinal")]  # ORDINALITY of accept_events and rows
    if dialect == "postgres" and (statement in QUICK or migration):
        found += [
            (r"\bwish\b", "selector"),
            (r"\bheld\b", "owned"),
            (r"(?<!_)\bseen\b", "inbox_seen"),
            (r"\basked\b", "awaited"),
        ]
    return found


def code(text, dialect, statement, file, counts):
    out = []
    for line in text.split("\n"):
        body, dash, comment = line.partition("--")
        for old, new in rules(dialect, statement, file):
            body, n = re.subn(old, new, body, flags=re.MULTILINE)
            counts[(file, old, new)] += n
        out.append(body + dash + comment)
    return "\n".join(out)


def apply(root, dry=False):
    counts, texts = Counter(), {}
    for dialect in ("sqlite", "postgres", "mysql"):
        base = root / "src/romancy/store" / dialect
        for path in sorted([*base.glob("*.sql"), *base.glob("queries/*.sql")]):
            parts = re.split(r"^(-- name: \w+)$", path.read_text(), flags=re.MULTILINE)
            new = [parts[0]]
            for head, body in zip(parts[1::2], parts[2::2]):
                new += [head, code(body, dialect, head.split()[-1], f"{dialect}/{path.name}", counts)]
            texts[path] = "".join(new)
        for path in sorted((base / "migrations").glob("*.sql")):
            texts[path] = code(path.read_text(), dialect, "", f"{dialect}/migrations", counts)
    for path, text in texts.items():
        if not dry:
            path.write_text(text)
    return counts, texts


if __name__ == "__main__":
    counts, texts = apply(Path(sys.argv[1]), "--dry" in sys.argv)
    for (file, old, new), n in sorted(counts.items()):
        if n:
            print(f"{n:4d} {file:28s} {old}  ->  {new}")
    words = r"\b(?:turn|taken|wanted|wish|met|called|held|seen|born|bonds|signal|deed|place|looked|rung|hint|bell|beat|mark|marks|host|line|alone|used|stuck|listed|made|asked)\b"
    print("--- left in code")
    for path, text in texts.items():
        name = ""
        for n, line in enumerate(text.split("\n"), 1):
            if line.startswith("-- name: "):
                name = line[9:]
            body = line.partition("--")[0]
            for found in re.finditer(words, body):
                print(f"{path}:{n} [{name}] {found[0]}: {body.strip()[:110]}")
