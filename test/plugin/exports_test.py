#!/usr/bin/env python3
"""What the finished library asks of a host and shows to it, read from the file. exports_test.py LIBRARY EXPORTS_MAP"""
import re
import subprocess
import sys
import unittest

LIBRARY, EXPORTS_MAP = sys.argv[1:3]
TABLES = {f"{table}_v{version}" for table in ("ncclNetPlugin", "ncclCollNetPlugin") for version in range(6, 13)}
TABLES |= {f"ncclTunerPlugin_v{version}" for version in range(2, 7)}
TABLES |= {"ncclEnvPlugin_v1", "ncclEnvPlugin_v2"}
EXPORTED = TABLES | {"cgxCounters", "cgxTotals"}  # include/cgx/observe.h
NEEDED = {"libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
NEWEST_GLIBC = (2, 34)


def tool(*command):
    return subprocess.run([*command, LIBRARY], check=True, capture_output=True, text=True).stdout


def symbols():
    """(type, binding, section, name without version) of each dynamic symbol."""
    for line in tool("readelf", "--dyn-syms", "--wide").splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit():
            yield fields[3], fields[4], fields[6], fields[7].split("@")[0]


class Library(unittest.TestCase):
    def test_it_exports_the_plugin_tables_and_its_counters_and_nothing_else(self):
        exported = {name for _, binding, section, name in symbols() if section != "UND" and binding != "LOCAL"}
        self.assertEqual(exported, EXPORTED)

    def test_the_tables_are_data(self):
        for kind, _, section, name in symbols():
            if section != "UND" and name in TABLES:
                self.assertEqual(kind, "OBJECT", name)

    def test_the_exports_map_names_each_export(self):
        text = open(EXPORTS_MAP, encoding="utf-8").read()
        listed = set(re.findall(r"^\s*(\w+);", text, re.M)) - {"local"}
        self.assertEqual(listed, EXPORTED)

    def test_it_needs_only_what_every_host_has(self):
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", tool("readelf", "--dynamic", "--wide")))
        self.assertIn("libc.so.6", needed)
        self.assertLessEqual(needed, NEEDED)

    def test_its_name_is_the_one_that_nccl_looks_for(self):
        self.assertEqual(re.findall(r"\(SONAME\).*\[(.*)\]", tool("readelf", "--dynamic", "--wide")),
                         ["libnccl-net-cgx.so"])

    def test_it_loads_on_glibc_2_34_and_without_a_libstdcxx(self):
        versions = re.findall(r"Name: (\w+)_([\d.]+)\s", tool("readelf", "--version-info", "--wide"))
        self.assertTrue(versions)
        for family, version in versions:
            self.assertIn(family, ("GLIBC", "GCC"), f"{family}_{version}")
            if family == "GLIBC":
                self.assertLessEqual(tuple(map(int, version.split("."))), NEWEST_GLIBC, version)

    def test_no_symbol_pins_it_in_memory(self):
        self.assertEqual([name for _, binding, _, name in symbols() if binding == "UNIQUE"], [])
        self.assertNotIn("NODELETE", tool("readelf", "--dynamic", "--wide"))

    def test_it_has_no_executable_stack_and_no_text_relocations(self):
        stack = [line for line in tool("readelf", "--segments", "--wide").splitlines() if "GNU_STACK" in line]
        self.assertEqual(len(stack), 1)
        self.assertNotIn("RWE", stack[0])
        self.assertNotIn("TEXTREL", tool("readelf", "--dynamic", "--wide"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
