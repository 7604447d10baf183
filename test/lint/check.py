#!/usr/bin/env python3
"""Rules about the text of the sources. check.py [--table PROGRAM] [--write] [rule ...]; without a rule all of them.
Exit 1: a rule is broken, each place is printed. Exit 77: nothing to check yet, the reason is printed."""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SKIP = 77
MOST_LINES = 400   # beyond: listed
LIMIT_LINES = 500  # beyond: an error
BEGIN, END = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"


def files(*suffixes, folders=("include", "src", "plugin", "tools", "test")):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and (not suffixes or path.suffix in suffixes):
                yield path


def getenv(_):
    """Only src/base/settings.cc reads the environment, so that every variable is in one table; main() of the tool may too, for what
    launchers put there. Tests may."""
    allowed = ("src/base/settings.cc", "tools/cgx.cc")
    bad = []
    for path in files(".h", ".cc", folders=("include", "src", "plugin", "tools")):
        if path.relative_to(ROOT).as_posix() in allowed:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("//")[0]
            if re.search(r"\b(secure_)?getenv\s*\(|\benviron\b", code):
                bad.append(f"{path.relative_to(ROOT)}:{number}: reads the environment: {line.strip()}")
    return bad


def lines(_):
    """Long files are listed, so that somebody sees them; very long ones are an error."""
    bad = []
    for path in files(".h", ".cc", ".py", ".sh"):
        count = len(path.read_text().splitlines())
        if count > LIMIT_LINES:
            bad.append(f"{path.relative_to(ROOT)}: {count} lines, at most {LIMIT_LINES}")
        elif count > MOST_LINES:
            print(f"long: {path.relative_to(ROOT)}: {count} lines")
    return bad


def paths(_):
    """No path of the machine that somebody happened to work on."""
    pattern = re.compile(r"(?<![\w.])/(?:wo" r"rk|ro" r"ot|ho" r"me|Us" r"ers|tmp/ncc" r"l)/")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = listed.stdout.splitlines() if listed.returncode == 0 else [
        path.relative_to(ROOT).as_posix() for path in files()]
    bad = []
    for name in names:
        try:
            text = (ROOT / name).read_text()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                bad.append(f"{name}:{number}: a path of one machine: {line.strip()[:120]}")
    return bad


def settings(options):
    """The README's table is what the settings' own table prints."""
    readme = ROOT / "README.md"
    if not readme.exists():
        print("skipped: there is no README.md yet")
        sys.exit(SKIP)
    table = subprocess.run([options.table], check=True, capture_output=True, text=True).stdout
    text = readme.read_text()
    if BEGIN not in text or END not in text:
        return [f"README.md: no {BEGIN.strip()} ... {END.strip()}"]
    head, rest = text.split(BEGIN, 1)
    now, tail = rest.split(END, 1)
    if now.strip() == table.strip():
        return []
    if options.write:
        readme.write_text(head + BEGIN + "\n" + table + "\n" + END + tail)
        return []
    return ["README.md: the table of settings is not current; run: "
            "python3 test/lint/check.py --table build/release/test/lint/settings_table --write settings"]


RULES = {rule.__name__: rule for rule in (getenv, lines, paths, settings)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", default=ROOT / "build/release/test/lint/settings_table")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("rules", nargs="*", choices=[*RULES, []])
    options = parser.parse_args()
    bad = [message for name in options.rules or RULES for message in RULES[name](options)]
    print("\n".join(bad) if bad else "ok")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
