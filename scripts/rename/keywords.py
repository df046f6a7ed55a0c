"""Keywords of replace() and _replace() by what mypy complains of: `keywords.py ROOT symbols.tsv mypy.log`."""

# ruff: noqa
import re, ast
from pathlib import Path
import sys

root = Path(sys.argv[1])
rows = [l.rstrip("\n").split("\t")[:3] for l in open(sys.argv[2]) if l.strip()]
cls = {}
for f, s, n in rows:
    if "." not in s:
        cls.setdefault(n, set()).add(s)
fields = {}
for f, s, n in rows:
    p = s.split(".")
    if len(p) == 2:
        fields[(p[0], p[1])] = n
n = 0
for l in open(sys.argv[3]):
    m = re.match(r'([^:]+):(\d+):.*Unexpected keyword argument "(\w+)" for "_?replace" of "(\w+)"', l)
    if not m:
        continue
    f, ln, k, c = m[1], int(m[2]), m[3], m[4]
    new = None
    for o in {c} | cls.get(c, set()):
        new = new or fields.get((o, k))
    if not new:
        print("no field", l.strip())
        continue
    p = root / f
    L = p.read_text().split("\n")
    t = ast.parse("\n".join(L))
    done = False
    for node in ast.walk(t):
        if isinstance(node, ast.Call) and node.lineno <= ln <= node.end_lineno:
            fn = ast.unparse(node.func)
            if not fn.endswith("replace"):
                continue
            for kw in node.keywords:
                if kw.arg == k:
                    i = kw.lineno - 1
                    b = L[i].encode()
                    a = kw.col_offset
                    if b[a : a + len(k)] == k.encode():
                        L[i] = (b[:a] + new.encode() + b[a + len(k) :]).decode()
                        done = True
                        n += 1
            if done:
                break
    p.write_text("\n".join(L))
    if not done:
        print("not done", l.strip())
print(n)
