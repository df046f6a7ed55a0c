"""What the language server misses: attributes named in strings, dotted names, planted faults: `strings.py ROOT symbols.tsv symbols.log`."""

# ruff: noqa
import ast, re, subprocess, sys, json, tokenize, io
from pathlib import Path

root = Path(sys.argv[1])
rows = [l.rstrip("\n").split("\t")[:3] for l in open(sys.argv[2]) if l.strip()]
failed = set()
for l in open(sys.argv[3]):
    m = re.match(r"(NOT FOUND|ERROR|NO EDITS|NO FILE) (\S+) (\S+)", l)
    if m:
        failed.add((m[2], m[3]))
rows = [(f, s, n) for f, s, n in rows if (f, s) not in failed]


def old(f):
    return subprocess.check_output(["git", "show", f"HEAD:{f}"], cwd=root, text=True)


cls = {}  # class old -> new
for f, s, n in rows:
    if "." not in s and s[:1].lstrip("_")[:1].isupper() or re.match(r"_?[A-Z]", s) and "." not in s and not s.isupper():
        cls[s] = n
# 1. slots
attr = {}
for f, s, n in rows:
    p = s.split(".")
    if len(p) == 2:
        attr.setdefault((f, p[0]), {})[p[1]] = n
cnt = 0
for (f, c), m in attr.items():
    path = root / f
    src = path.read_text()
    newc = next((n for g, s, n in rows if g == f and s == c), c)
    t = ast.parse(src)
    for node in ast.walk(t):
        if isinstance(node, ast.ClassDef) and node.name in (c, newc):
            for st in node.body:
                if isinstance(st, ast.Assign) and any(isinstance(x, ast.Name) and x.id == "__slots__" for x in st.targets):
                    lines = src.split("\n")
                    seg = "\n".join(lines[st.lineno - 1 : st.end_lineno])
                    new = re.sub(r'"(\w+)"', lambda k: '"%s"' % m.get(k[1], k[1]), seg)
                    if new != seg:
                        lines[st.lineno - 1 : st.end_lineno] = new.split("\n")
                        src = "\n".join(lines)
                        cnt += 1
    path.write_text(src)
print("slots", cnt)
# 6. attribute strings
byattr = {}
for f, s, n in rows:
    p = s.split(".")
    if len(p) <= 2:
        byattr.setdefault(p[-1], set()).add((p[0] if len(p) == 2 else Path(f).stem, n))
todo = []
for f in subprocess.check_output(["git", "ls-files", "*.py"], cwd=root, text=True).split():
    path = root / f
    src = path.read_text()
    try:
        t = ast.parse(src)
    except SyntaxError:
        print("SYNTAX", f)
        continue
    lines = src.split("\n")
    edits = []
    for node in ast.walk(t):
        if (
            isinstance(node, ast.Call)
            and len(node.args) >= 2
            and isinstance(node.args[1], ast.Constant)
            and isinstance(node.args[1].value, str)
        ):
            fn = ast.unparse(node.func)
            if not re.search(r"(setattr|getattr|hasattr|delattr|patch\.object)$", fn):
                continue
            name = node.args[1].value
            tgt = ast.unparse(node.args[0])
            if name not in byattr:
                continue
            leaf = tgt.split(".")[-1]
            inv = {v: k for k, v in cls.items()}
            oldc = inv.get(leaf, leaf)
            c = [n for o, n in byattr[name] if o in (oldc, leaf)]
            allnew = {n for _, n in byattr[name]}
            pick = c[0] if len(set(c)) == 1 else (allnew.pop() if len(allnew) == 1 else None)
            todo.append((f, node.args[1].lineno, tgt, name, pick))
            if pick:
                edits.append((node.args[1].lineno, node.args[1].col_offset, name, pick))
    for ln, co, a, b in sorted(edits, reverse=True):
        l = lines[ln - 1].encode()
        q = l[co : co + 1].decode()
        o = (q + a + q).encode()
        assert l[co : co + len(o)] == o, (f, ln, l)
        lines[ln - 1] = (l[:co] + (q + b + q).encode() + l[co + len(o) :]).decode()
    if edits:
        path.write_text("\n".join(lines))
for x in todo:
    print("ATTR", *x)
# dotted strings: "romancy.x.y.NAME"
top = {}
for f, s, n in rows:
    if "." not in s:
        top[".".join(Path(f).with_suffix("").parts[1:]) + "." + s] = n
for f in subprocess.check_output(["git", "ls-files", "*.py", "*.toml", "*.md"], cwd=root, text=True).split():
    path = root / f
    src = path.read_text()

    def r(m):
        k = m[0]
        return k.rpartition(".")[0] + "." + top[k] if k in top else k

    new = re.sub(r"romancy(?:\.\w+)+", r, src)
    if new != src:
        path.write_text(new)
        print("DOTTED", f)
# 7. faults
ff = root / "tests/mutants/faults.py"
src = ff.read_text()
t = ast.parse(src)
lines = src.split("\n")
edits = []
tok = lambda s: re.findall(r"\w+|[^\w\s]|\s+", s)
for node in ast.walk(t):
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Fault":
        name = node.args[0].value
        file = node.args[2].value
        o = ast.literal_eval(node.args[3])
        nw = ast.literal_eval(node.args[4])
        if not file.endswith(".py"):
            continue
        f = "src/romancy/" + file
        ot = old(f)
        nt = (root / f).read_text()
        if ot.count(o) != 1:
            print("FAULT base", name)
            continue
        at = ot.index(o)
        l0 = ot.count("\n", 0, at)
        l1 = ot.count("\n", 0, at + len(o))
        # token alignment on the covered lines
        ol = ot.split("\n")[l0 : l1 + 1]
        nl = nt.split("\n")[l0 : l1 + 1]
        a, b = tok("\n".join(ol)), tok("\n".join(nl))
        if len(a) != len(b):
            print("FAULT lines differ", name)
            continue
        mp = {}
        pre = ot[ot.rfind("\n", 0, at) + 1 : at]
        # walk tokens to cut the same region
        text_o = ""
        text_n = ""
        res = ""
        pos = 0
        start = len(pre)
        end = start + len(o)
        for x, y in zip(a, b):
            if x != y:
                mp.setdefault(x, set()).add(y)
            if pos >= start and pos + len(x) <= end:
                res += y
            elif pos < end and pos + len(x) > start:
                res += y if x != y and False else x[max(0, start - pos) : end - pos] if x == y else y
            pos += len(x)
        amb = {k: v for k, v in mp.items() if len(v) > 1}
        nn = "".join(next(iter(mp[x])) if x in mp and len(mp[x]) == 1 else x for x in tok(nw))
        if amb:
            print("FAULT ambiguous", name, amb)
        if res != o or nn != nw:
            edits.append((name, o, res, nw, nn, node.args[3], node.args[4]))
        if nt.count(res) != 1:
            print("FAULT not once", name, nt.count(res), repr(res))


def lit(s, ind):
    parts = s.splitlines(keepends=True)
    import json

    def q(x):
        return json.dumps(x, ensure_ascii=False) if '"' not in x else repr(x)

    return ("\n" + " " * ind).join(q(x) for x in parts)


rep = []
for name, o, res, nw, nn, n3, n4 in edits:
    rep.append((n3, lit(res, n3.col_offset)))
    rep.append((n4, lit(nn, n4.col_offset)))
off = [0]
for l in lines:
    off.append(off[-1] + len(l.encode()) + 1)
by = src.encode()
for n, txt in sorted(rep, key=lambda x: -(off[x[0].lineno - 1] + x[0].col_offset)):
    a = off[n.lineno - 1] + n.col_offset
    b = off[n.end_lineno - 1] + n.end_col_offset
    by = by[:a] + txt.encode() + by[b:]
ff.write_bytes(by)
print("faults changed", len(edits))
