#!/usr/bin/env python3
"""The examples in docs/use.md: shell is shell, nccl.conf holds assignments, YAML is YAML, a Dockerfile has a Dockerfile's instructions, each
CGX_* variable is a setting, each link leads somewhere. Exit 1: a rule is broken, each place is printed."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs/use.md"
INSTRUCTIONS = {"FROM", "RUN", "COPY", "ENV", "WORKDIR", "ARG"}


def check_sh(text):
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    return [done.stderr.strip()] if done.returncode else []


def check_conf(text):
    return [f"not NAME=value: {line}" for line in text.splitlines()
            if line and not re.fullmatch(r"#.*|[A-Z][A-Z0-9_]*=\S+", line)]


def check_dockerfile(text):
    joined = re.sub(r"\\\n\s*", " ", text)
    bad = [f"no instruction: {line}" for line in joined.splitlines() if line and line.split()[0] not in INSTRUCTIONS]
    for line in joined.splitlines():
        if line.startswith("RUN "):
            bad += check_sh(line[4:])
    return bad


def check_yaml(text):
    try:
        import yaml
    except ImportError:
        print("skipped: the YAML, as python3-yaml is not installed")
        return []
    try:
        parts = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        return [str(error)]
    bad = [f"{key} is missing" for part in parts for key in ("apiVersion", "kind", "metadata", "spec") if key not in part]
    for part in parts:
        for container in part["spec"].get("containers", []):
            bad += [f"{v['name']}: a value must be text" for v in container.get("env", []) if not isinstance(v["value"], str)]
    return bad


CHECKS = {"sh": check_sh, "conf": check_conf, "dockerfile": check_dockerfile, "yaml": check_yaml}


def main():
    text = PAGE.read_text(encoding="utf-8")
    bad = []
    seen = set()
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S):
        seen.add(kind)
        bad += [f"{kind}: {message}" for message in (CHECKS[kind](block) if kind in CHECKS else ["nobody checks this kind"])]
    bad += [f"no example of {kind}" for kind in sorted(CHECKS.keys() - seen)]
    settings = set(re.findall(r"`(CGX_[A-Z_]+)`", (ROOT / "README.md").read_text(encoding="utf-8")))
    bad += [f"{name} is no setting" for name in sorted(set(re.findall(r"\bCGX_[A-Z_]+\b", text)) - settings)]
    for link in re.findall(r"\]\(([^)#]+)", text):
        if "://" not in link and not (PAGE.parent / link).exists():
            bad.append(f"a link to nothing: {link}")
    print("\n".join(f"docs/use.md: {message}" for message in bad) if bad else "ok")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
