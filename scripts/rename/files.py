"""Move files, and let everything follow that names one: `files.py ROOT moves.tsv`."""

# ruff: noqa
import ast, re, subprocess, sys, os
from pathlib import Path

root = Path(sys.argv[1])
rows = [l.rstrip("\n").split("\t")[:2] for l in open(sys.argv[2]) if l.strip() and not l.startswith("#")]
rows = [(a.strip(), b.strip()) for a, b in rows if a.strip() != b.strip()]
os.chdir(root)


def dotted(p):
    p = p[:-3] if p.endswith(".py") else p
    if p.startswith("src/"):
        p = p[4:]
    if p.endswith("/__init__"):
        p = p[:-9]
    return p.replace("/", ".")


mods = {}
for a, b in rows:
    if not Path(a).exists():
        print("MISSING", a)
        continue
    if Path(a).is_dir():
        for f in sorted(Path(a).rglob("*")):
            if f.is_file() and "__pycache__" not in str(f):
                mods[str(f)] = str(Path(b) / f.relative_to(a))
for a, b in rows:
    if Path(a).is_file():
        mods[a] = b
new = list(mods.values())
assert len(set(new)) == len(new), [x for x in new if new.count(x) > 1]
dot = {}
for a, b in mods.items():
    if a.endswith(".py"):
        dot[dotted(a)] = dotted(b)
for a, b in rows:
    if Path(a).is_dir():
        dot[dotted(a)] = dotted(b)
# folders whose every file moved into one folder
# 1. imports of modules by name
files = [f for f in subprocess.check_output(["git", "ls-files"], text=True).split("\n") if f and Path(f).is_file()]
pys = [f for f in files if f.endswith(".py")]
for f in pys:
    s = Path(f).read_text()
    try:
        t = ast.parse(s)
    except SyntaxError as e:
        print("SYNTAX", f, e)
        continue
    lines = s.split("\n")
    edits = []
    ren = {}
    for n in ast.walk(t):
        if isinstance(n, ast.ImportFrom) and n.module and not n.level:
            hits = [(al, dot[n.module + "." + al.name]) for al in n.names if n.module + "." + al.name in dot]
            if not hits:
                continue
            groups = {}
            for al in n.names:
                full = n.module + "." + al.name
                if full in dot:
                    pk, _, base = dot[full].rpartition(".")
                else:
                    pk, base = n.module, al.name  # the regex follows the package
                if full not in dot and pk in dot:
                    pk = dot[pk]
                groups.setdefault(pk, []).append((al, base))
                if full in dot and not al.asname and base != al.name:
                    ren[al.name] = base
            ind = " " * n.col_offset
            out = []
            for pk, als in sorted(groups.items()):
                out.append(
                    f"{ind}from {pk} import "
                    + ", ".join(b + (f" as {al.asname}" if al.asname else "") for al, b in sorted(als, key=lambda x: x[1]))
                )
            edits.append(
                (n.lineno, n.end_lineno, "\n".join(out).replace("import ", "import §", 1) if False else "\n".join(out))
            )
    if ren:
        names = (
            {x.id for x in ast.walk(t) if isinstance(x, ast.Name)}
            | {x.arg for x in ast.walk(t) if isinstance(x, ast.arg)}
            | {x.name for x in ast.walk(t) if isinstance(x, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
        )
        stored = {x.id for x in ast.walk(t) if isinstance(x, ast.Name) and not isinstance(x.ctx, ast.Load)} | {
            x.arg for x in ast.walk(t) if isinstance(x, ast.arg)
        }
        for o, nw in ren.items():
            if nw in names and nw not in ren:
                print("COLLIDES", f, o, "->", nw)
            if o in stored:
                print("SHADOWED", f, o)
        pos = [(x.lineno, x.col_offset, x.id) for x in ast.walk(t) if isinstance(x, ast.Name) and x.id in ren]
        for ln, co, i in sorted(set(pos), reverse=True):
            b = lines[ln - 1].encode()
            lines[ln - 1] = (b[:co] + ren[i].encode() + b[co + len(i.encode()) :]).decode()
    for a, b, x in sorted(edits, reverse=True):
        lines[a - 1 : b] = x.split("\n")
    if edits:
        Path(f).write_text("\n".join(lines))
# 2. moves
for a, b in mods.items():
    Path(b).parent.mkdir(parents=True, exist_ok=True)
tmp = {}
for a, b in mods.items():
    r = subprocess.run(["git", "mv", a, b + ".moving"], capture_output=True, text=True)
    if r.returncode:
        print("MV", a, b, r.stderr)
for a, b in mods.items():
    if Path(b + ".moving").exists():
        subprocess.check_call(["git", "mv", "-f", b + ".moving", b])
# 3. text
fdot = sorted(dot.items(), key=lambda x: -len(x[0]))
pathmap = {a: b for a, b in mods.items()}
for a, b in rows:
    if Path(b).is_dir():
        pathmap[a] = b
pm = {}
for a, b in pathmap.items():
    pm[a] = b
    if a.startswith("src/"):
        pm[a[4:]] = b[4:] if b.startswith("src/") else b
rx_d = re.compile(r"(?<![\w./])(" + "|".join(re.escape(a) for a, _ in fdot) + r")(?![\w])")
rx_p = re.compile(r"(?<![\w.])(" + "|".join(re.escape(a) for a in sorted(pm, key=lambda x: -len(x))) + r")(?![\w])")
files = [f for f in subprocess.check_output(["git", "ls-files"], text=True).split("\n") if f and Path(f).is_file()]
n = 0
for f in files:
    if f.endswith((".png", ".db", ".gz", ".json")) or "constraints.txt" in f:
        continue
    try:
        s = Path(f).read_text()
    except UnicodeDecodeError:
        continue
    t = rx_p.sub(lambda m: pm[m[1]], s)
    t = rx_d.sub(lambda m: dot[m[1]], t)
    if t != s:
        Path(f).write_text(t)
        n += 1
ff = Path("tests/mutants/faults.py")
if ff.exists():
    s = ff.read_text()
    for a, b in mods.items():
        if a.startswith("src/romancy/") and b.startswith("src/romancy/"):
            s = s.replace('"' + a[12:] + '"', '"' + b[12:] + '"')
    ff.write_text(s)
print("moved", len(mods), "rewrote", n)
