"""Mend by what pytest --tb=short complains of: `failures.py ROOT symbols.tsv pytest.log`."""

# ruff: noqa
import re, sys, ast, subprocess
from pathlib import Path
from collections import defaultdict

root = Path(sys.argv[1])
rows = [l.rstrip("\n").split("\t")[:3] for l in open(sys.argv[2]) if l.strip()]
byattr = defaultdict(set)
bycls = {}
clsnew = {}
param = defaultdict(set)
mods = defaultdict(dict)
for f, s, n in rows:
    p = s.split(".")
    if len(p) == 1:
        clsnew[s] = n
        mods[".".join(Path(f).with_suffix("").parts[1:])][s] = n
        byattr[s].add(n)
    if len(p) == 2:
        bycls[(p[0], p[1])] = n
        byattr[p[1]].add(n)
    if len(p) >= 2:
        param[p[-1]].add(n)
inv = defaultdict(set)
for o, n in clsnew.items():
    inv[n].add(o)
bases = defaultdict(set)
import glob

for f in glob.glob(str(root / "src/**/*.py"), recursive=True) + glob.glob(str(root / "tests/**/*.py"), recursive=True):
    try:
        t = ast.parse(open(f).read())
    except SyntaxError:
        continue
    for n in ast.walk(t):
        if isinstance(n, ast.ClassDef):
            for b in n.bases:
                bases[n.name].add(
                    re.split(r"[\[.]", ast.unparse(b))[0] if "[" in ast.unparse(b) else ast.unparse(b).split(".")[-1]
                )


def family(c):
    out = []
    todo = [c]
    while todo:
        x = todo.pop()
        if x in out:
            continue
        out.append(x)
        todo += list(inv.get(x, ())) + list(bases.get(x, ()))
    return out


log = open(sys.argv[3]).read()
fixes = set()
unk = set()
lines = log.split("\n")
for i, l in enumerate(lines):
    m = re.match(r"E\s+(?:AttributeError|TypeError|ImportError|NameError): (.*)", l) or re.match(
        r"E\s+(.*unexpected keyword argument.*)", l
    )
    if not m:
        continue
    msg = m[1]
    # location: next lines with file:line
    loc = None
    if loc is None:
        for k in range(i - 1, max(0, i - 20), -1):
            q = re.match(r"(\S+\.py):(\d+): ", lines[k])
            if q:
                loc = (q[1], int(q[2]))
                break
    if loc is None:
        unk.add(("noloc", msg))
        continue
    a = re.search(r"'(\w+)' object has no attribute '(\w+)'", msg) or re.search(
        r"type object '(\w+)' has no attribute '(\w+)'", msg
    )
    b = re.search(r"module '([\w.]+)' has no attribute '(\w+)'", msg)
    c = re.search(r"unexpected keyword argument '(\w+)'", msg)
    g = re.search(r"<class '([\w.]+)'> does not have the attribute '(\w+)'", msg) or re.search(
        r"<module '([\w.]+)' from .* does not have the attribute '(\w+)'", msg
    )
    if a or g:
        x = a or g
        c0, at = x[1].split(".")[-1], x[2]
        new = None
        for o in family(c0):
            new = new or bycls.get((o, at))
        if not new and len(byattr[at]) == 1:
            new = next(iter(byattr[at]))
        if new:
            fixes.add((loc, at, new, "attr"))
        else:
            unk.add((loc, msg, str(byattr.get(at))))
    elif b:
        new = None
        for mod, d in mods.items():
            if mod.endswith(b[1].split(".")[-1]) and b[2] in d:
                new = d[b[2]]
        if new:
            fixes.add((loc, b[2], new, "attr"))
        else:
            unk.add((loc, msg))
    elif c:
        at = c[1]
        cand = byattr[at] | param[at]
        m2 = re.search(r"(\w+)\.__(?:init|new)__\(\)|(\w+)\(\) got", msg)
        new = None
        if m2:
            c0 = m2[1] or m2[2]
            for o in family(c0):
                new = new or bycls.get((o, at))
        if not new and len(cand) == 1:
            new = next(iter(cand))
        if new:
            fixes.add((loc, at, new, "kw"))
        else:
            unk.add((loc, msg, str(cand)))
    else:
        unk.add((loc, msg))
done = 0
for (f, ln), a, n, k in fixes:
    p = Path(f) if Path(f).is_absolute() else root / f
    if not str(p.resolve()).startswith(str(root)):
        unk.add(("outside", f, ln, a, n))
        continue
    L = p.read_text().split("\n")
    i = ln - 1
    pat = {"attr": r'(?<=\.)%s\b|(?<=")%s(?=")' % (a, a), "kw": r"\b%s(?==)" % a}[k]
    hit = False
    for j in [i] if k == "attr" else [i] + [x for d in range(1, 14) for x in (i + d,)]:
        if 0 <= j < len(L) and re.search(pat, L[j]):
            L[j] = re.sub(pat, n, L[j])
            hit = True
            done += 1
            break
    if not hit:
        for j in range(i, min(len(L), i + 6)):
            if re.search(pat, L[j]):
                L[j] = re.sub(pat, n, L[j])
                hit = True
                done += 1
                break
    if hit:
        p.write_text("\n".join(L))
    else:
        unk.add(("nohit", f, ln, a, n))
print("fixed", done)
for u in sorted(map(str, unk))[:40]:
    print("  ", u[:260])
