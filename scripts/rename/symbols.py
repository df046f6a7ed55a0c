"""Rename symbols by pyright's language server: `symbols.py ROOT symbols.tsv > symbols.log`."""

# ruff: noqa
import ast, json, os, subprocess, sys, threading, queue, re, time
from pathlib import Path


class Server:
    def __init__(self, root):
        self.root = Path(root).resolve()
        self.p = subprocess.Popen(
            [str(self.root / ".venv/bin/pyright-langserver"), "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.root,
        )
        self.n = 0
        self.answers = {}
        self.cond = threading.Condition()
        self.diags = 0
        threading.Thread(target=self._read, daemon=True).start()
        self.req(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": self.root.as_uri(),
                "workspaceFolders": [{"uri": self.root.as_uri(), "name": "w"}],
                "capabilities": {
                    "workspace": {
                        "workspaceEdit": {"documentChanges": False},
                        "configuration": True,
                        "workspaceFolders": True,
                    },
                    "textDocument": {"rename": {"prepareSupport": True}},
                },
                "initializationOptions": {},
            },
        )
        self.note("initialized", {})

    def _send(self, m):
        b = json.dumps(m).encode()
        self.p.stdin.write(b"Content-Length: %d\r\n\r\n" % len(b) + b)
        self.p.stdin.flush()

    def _read(self):
        f = self.p.stdout
        while True:
            n = None
            while True:
                l = f.readline()
                if not l:
                    return
                l = l.strip()
                if not l:
                    break
                if l.lower().startswith(b"content-length"):
                    n = int(l.split(b":")[1])
            m = json.loads(f.read(n))
            if "id" in m and "method" in m:
                r = None
                if m["method"] == "workspace/configuration":
                    r = [self.config(i) for i in m["params"]["items"]]
                elif m["method"] == "workspace/workspaceFolders":
                    r = [{"uri": self.root.as_uri(), "name": "w"}]
                self._send({"jsonrpc": "2.0", "id": m["id"], "result": r})
            elif "id" in m:
                with self.cond:
                    self.answers[m["id"]] = m
                    self.cond.notify_all()

    def config(self, item):
        s = item.get("section")
        if s == "python":
            return {"pythonPath": str(self.root / ".venv/bin/python"), "analysis": {"diagnosticMode": "openFilesOnly"}}
        if s == "python.analysis":
            return {"diagnosticMode": "openFilesOnly"}
        return {}

    def note(self, m, p):
        self._send({"jsonrpc": "2.0", "method": m, "params": p})

    def req(self, m, p, timeout=600):
        self.n += 1
        i = self.n
        self._send({"jsonrpc": "2.0", "id": i, "method": m, "params": p})
        with self.cond:
            end = time.time() + timeout
            while i not in self.answers:
                if not self.cond.wait(end - time.time()):
                    raise TimeoutError(m)
            a = self.answers.pop(i)
        if "error" in a:
            raise RuntimeError(a["error"])
        return a["result"]


def find(tree, path, src):
    """(line, col) of the name in its definition"""
    parts = path.split(".")
    node = tree
    for k, part in enumerate(parts):
        last = k == len(parts) - 1
        hit = None
        body = node.body

        def stmts(b):
            for s in b:
                yield s
                if isinstance(s, (ast.If, ast.Try, ast.With)):
                    for x in ("body", "orelse", "finalbody"):
                        yield from stmts(getattr(s, x, []) or [])
                    for h in getattr(s, "handlers", []):
                        yield from stmts(h.body)

        for s in stmts(body):
            if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and s.name == part:
                hit = s
                if last:
                    line = src[s.lineno - 1]
                    ln = s.lineno
                    m = re.compile(r"\b(?:def|class)\s+" + re.escape(part) + r"\b")
                    while not m.search(src[ln - 1]):
                        ln += 1
                    mm = m.search(src[ln - 1])
                    return ln - 1, mm.end() - len(part)
                break
            if last:
                t = None
                if isinstance(s, ast.AnnAssign):
                    t = [s.target]
                elif isinstance(s, ast.Assign):
                    t = []
                    for x in s.targets:
                        t += x.elts if isinstance(x, (ast.Tuple, ast.List)) else [x]
                for x in t or []:
                    if isinstance(x, ast.Name) and x.id == part:
                        return x.lineno - 1, x.col_offset
                if isinstance(s, (ast.Import, ast.ImportFrom)):
                    pass
        if hit is None and last and isinstance(node, ast.ClassDef):
            for f in ast.walk(node):
                if (
                    isinstance(f, ast.Attribute)
                    and isinstance(f.ctx, ast.Store)
                    and isinstance(f.value, ast.Name)
                    and f.value.id == "self"
                    and f.attr == part
                ):
                    return f.end_lineno - 1, f.end_col_offset - len(part)
        if hit is None and last and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for a in (
                node.args.posonlyargs
                + node.args.args
                + node.args.kwonlyargs
                + [x for x in (node.args.vararg, node.args.kwarg) if x]
            ):
                if a.arg == part:
                    return a.lineno - 1, a.col_offset
            for f in ast.walk(node):
                if isinstance(f, ast.Name) and isinstance(f.ctx, ast.Store) and f.id == part:
                    return f.lineno - 1, f.col_offset
        if hit is None:
            return None
        node = hit
    return None


T0 = time.time()


def main():
    root = Path(sys.argv[1]).resolve()
    rows = []
    for l in open(sys.argv[2]):
        l = l.rstrip("\n")
        if not l.strip() or l.startswith("#"):
            continue
        f, s, n = l.split("\t")[:3]
        rows.append((f.strip(), s.strip(), n.strip()))
    s = Server(root)
    opened = {}
    edits = {}
    bad = 0
    probe = "src/romancy/core/commands.py"
    t = (root / probe).read_text()
    s.note(
        "textDocument/didOpen",
        {"textDocument": {"uri": (root / probe).as_uri(), "languageId": "python", "version": 1, "text": t}},
    )
    opened[probe] = (t, ast.parse(t), t.split("\n"))
    line, col = find(opened[probe][1], "Issue", opened[probe][2])
    last = -1
    for _ in range(200):
        r = (
            s.req(
                "textDocument/references",
                {
                    "textDocument": {"uri": (root / probe).as_uri()},
                    "position": {"line": line, "character": col},
                    "context": {"includeDeclaration": True},
                },
            )
            or []
        )
        n = len({x["uri"] for x in r})
        print("warm", n, flush=True)
        if n >= 8 and n == last:
            break
        last = n
        time.sleep(3)

    def text(f):
        return (root / f).read_text()

    for f, sym, new in rows:
        if f not in opened:
            try:
                t = text(f)
            except OSError:
                print("NO FILE", f)
                bad += 1
                continue
            opened[f] = (t, ast.parse(t), t.split("\n"))
            s.note(
                "textDocument/didOpen",
                {"textDocument": {"uri": (root / f).as_uri(), "languageId": "python", "version": 1, "text": t}},
            )
        t, tree, lines = opened[f]
        pos = find(tree, sym, lines)
        if pos is None:
            print("NOT FOUND", f, sym)
            bad += 1
            continue
        line = lines[pos[0]]
        col = len(line.encode()[: pos[1]].decode().encode("utf-16-le")) // 2
        try:
            r = s.req(
                "textDocument/rename",
                {
                    "textDocument": {"uri": (root / f).as_uri()},
                    "position": {"line": pos[0], "character": col},
                    "newName": new,
                },
            )
        except Exception as e:
            print("ERROR", f, sym, new, e)
            bad += 1
            continue
        if not r:
            print("NO EDITS", f, sym, new)
            bad += 1
            continue
        ch = r.get("changes") or {d["textDocument"]["uri"]: d["edits"] for d in r["documentChanges"]}
        c = 0
        for uri, es in ch.items():
            for e in es:
                k = (
                    e["range"]["start"]["line"],
                    e["range"]["start"]["character"],
                    e["range"]["end"]["line"],
                    e["range"]["end"]["character"],
                )
                d = edits.setdefault(uri, {})
                if k in d and d[k] != e["newText"]:
                    print("CONFLICT", uri, k, d[k], e["newText"])
                d[k] = e["newText"]
                c += 1
        print(f"{time.time() - T0:7.1f} {c:5d} {f}:{sym} -> {new}", flush=True)
    from urllib.parse import unquote

    for uri, d in edits.items():
        p = Path(unquote(uri[7:]))
        ls = p.read_text().split("\n")
        if ".venv" in str(p):
            continue
        for (l1, c1, l2, c2), new in sorted(d.items(), reverse=True):
            assert l1 == l2
            b = ls[l1].encode("utf-16-le")
            ls[l1] = (b[: 2 * c1] + new.encode("utf-16-le") + b[2 * c2 :]).decode("utf-16-le")
        p.write_text("\n".join(ls))
    print("applied", sum(map(len, edits.values())), "edits in", len(edits), "files; bad", bad)
    s.p.kill()


if __name__ == "__main__":
    main()
