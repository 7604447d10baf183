#!/usr/bin/env python3
"""The table in test/README.md: each case of the field log once, each test that it names in the file that it names.
Exit 1: a rule is broken, each place is printed."""
import pathlib
import re
import sys

TEST = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- cases: begin -->", "<!-- cases: end -->"

# Of the field log; the numbers that are missing were duplicates.
CASES = {
    1: (1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13),
    2: (1, 2, 3, 6, 7, 8, 9, 10, 11, 12),
    3: (1, 2, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18),
    4: (1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 14, 15, 16),
    5: (1, 2, 4, 5, 6, 7, 8),
    6: (1, 2, 3, 4, 5, 6, 7, 9, 10, 11),
    7: (1, 2, 4, 5, 6, 7, 8, 9),
    8: (2, 3, 4, 5, 6, 7, 9, 10, 12, 13, 14, 15, 16, 17),
    9: (3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23),
    10: (2, 3, 4, 5, 6, 7, 8),
    11: (1, 2, 4, 5, 6, 7, 8, 9, 10),
    12: (1, 2, 3, 5, 6),
}


def tests_in(path):
    """Names of the tests of a source, or of the programs that a CMakeLists.txt makes tests of."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return set(re.findall(r"^\s+def (test_\w+)", text, re.M))
    if path.suffix == ".cc":
        return {f"{suite}.{name}" for suite, name in
                re.findall(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", text, re.M)}
    return set(re.findall(r"(?:add_test\(NAME|cgx_\w+\()\s*(\w+)", text))


def wrong_names(text):
    """`file: Test, Test` in the whole page."""
    bad = []
    for file, names in re.findall(r"`([\w/.]+): ([^`]+)`", text):
        path = TEST / file
        if not path.is_file():
            bad.append(f"{file}: no such file")
            continue
        known = tests_in(path)
        bad += [f"{file}: no test {name}" for name in names.split(", ") if name not in known]
    return bad


def wrong_rows(table):
    bad = []
    wanted = {f"{group}-{number:02}" for group, numbers in CASES.items() for number in numbers}
    seen = []
    for line in table.splitlines():
        row = re.match(r"\| (\d+-\d\d) \| ([^|]+) \| ([^|]+) \|$", line)
        if row:
            seen.append(row[1])
            if not row[3].strip():
                bad.append(f"{row[1]}: neither a test nor a reason")
        elif re.match(r"\| *\d", line):
            bad.append(f"a row that cannot be read: {line}")
    bad += [f"{case}: not in the table" for case in sorted(wanted - set(seen))]
    bad += [f"{case}: more than once in the table" for case in sorted(wanted) if seen.count(case) > 1]
    return bad


def main():
    text = (TEST / "README.md").read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        sys.exit(f"test/README.md: no {BEGIN} ... {END}")
    bad = wrong_names(text) + wrong_rows(text.split(BEGIN)[1].split(END)[0])
    print("\n".join(f"test/README.md: {message}" for message in bad) if bad else "ok")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
