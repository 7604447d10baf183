#!/usr/bin/env python3
"""`cgx run` as a launcher's prefix: exit status, signals, input and output are the program's; what it sets is what --print prints; the
plugin that it names can be loaded. launch_test.py CGX LIBRARY"""
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

CGX, LIBRARY = sys.argv[1:3]
SET = ("NCCL_", "CGX_", "LD_LIBRARY_PATH")
# What NCCL does with the name: a path as it is (2.21 and later), else libnccl-net-<name>.so by the loader's path.
LOAD = """import ctypes, os
name = os.environ["NCCL_NET_PLUGIN"]
library = ctypes.CDLL(name if "/" in name else f"libnccl-net-{name}.so")
print([hasattr(library, symbol) for symbol in ("ncclNetPlugin_v12", "ncclCollNetPlugin_v12", "ncclTunerPlugin_v6", "no_such_symbol")])"""


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(SET)}
    return {**clean, **more}


def run(*words, env=None, **options):
    return subprocess.run([CGX, "run", "--plugin", LIBRARY, *words], env=env if env is not None else environment(), capture_output=True,
                          timeout=60, check=False, **options)


def fake_nccl(folder, version):
    """A file that the finder takes for NCCL: an ELF file that says its version among its constants."""
    said = f"\0NCCL version {version}+cuda12.4\0".encode()
    constant = b"All-reduces with at most this much content travel exact"
    with open(LIBRARY, "rb") as file:
        content = file.read()
    assert constant in content
    with open(os.path.join(folder, "libnccl.so.2"), "wb") as file:
        file.write(content.replace(constant, said.ljust(len(constant), b"\0")))


class Launch(unittest.TestCase):
    def test_exit_status_is_the_programs(self):
        for status in (0, 1, 42, 255):
            self.assertEqual(run("--", "sh", "-c", f"exit {status}").returncode, status)
        self.assertEqual(run("--", "sh", "-c", "kill -KILL $$").returncode, -signal.SIGKILL)

    def test_input_and_output_are_the_programs_and_nothing_else_is_said(self):
        data = bytes(range(256)) * 1000
        done = run("--", "sh", "-c", "cat; echo oops >&2", input=data)
        self.assertEqual((done.stdout, done.stderr), (data, b"oops\n"))

    def test_arguments_arrive_as_they_are(self):
        words = ["--print", "-v", "", "a b", "--", "$HOME", "*", "--help"]
        done = run("--", sys.executable, "-c", "import sys; print(sys.argv[1:])", *words)
        self.assertEqual(done.stdout.decode().strip(), repr(words))

    def test_it_becomes_the_program_so_signals_reach_it(self):
        script = "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
        process = subprocess.Popen([CGX, "run", "--plugin", LIBRARY, "--", sys.executable, "-c", script], env=environment(),
                                   stdout=subprocess.PIPE)
        self.assertEqual(int(process.stdout.readline()), process.pid)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 7)
        process.stdout.close()

    def test_what_cannot_be_started_is_told_as_a_shell_tells_it(self):
        with tempfile.TemporaryDirectory() as folder:
            plain = os.path.join(folder, "plain")
            open(plain, "w").close()
            os.chmod(plain, stat.S_IRUSR)
            for words, status, text in (((f"{folder}/absent",), 127, "absent: No such file"), ((plain,), 126, "plain: Permission denied"),
                                        ((), 2, "no command given")):
                done = run("--", *words)
                self.assertEqual(done.returncode, status, done)
                self.assertIn(text, done.stderr.decode())

    def test_bad_settings_and_a_missing_plugin_are_errors_before_the_program_starts(self):
        done = run("--", "echo", "started", env=environment(CGX_BITS="77"))
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertIn("CGX_BITS", done.stderr.decode())
        done = subprocess.run([CGX, "run", "--plugin", "/no/such.so", "--", "echo", "started"], env=environment(), capture_output=True,
                              timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertIn("/no/such.so", done.stderr.decode())

    def test_the_environment_is_what_print_prints_for_each_nccl(self):
        for version in ("2.18.3", "2.21.5", "2.27.7", "2.28.9", "2.30.7"):
            with tempfile.TemporaryDirectory(prefix="it's ") as folder:
                fake_nccl(folder, version)
                env = environment(LD_LIBRARY_PATH=folder)
                printed = run("--print", "--", "env", env=env)
                self.assertEqual(printed.returncode, 0)
                self.assertIn(f"# NCCL {version}: ", printed.stdout.decode())
                names = "env | grep -E '^(NCCL_|LD_LIBRARY_PATH)' | sort"
                by_shell = subprocess.run(["sh", "-c", printed.stdout.decode() + names], env=env, capture_output=True, timeout=60, check=True)
                self.assertEqual(run("--", "sh", "-c", names, env=env).stdout, by_shell.stdout)
                self.assertIn(b"NCCL_COLLNET_ENABLE=1", by_shell.stdout)

    def test_the_plugin_is_found_under_the_name_that_is_set(self):
        for version in ("2.18.3", "2.27.3", "2.28.9"):
            with tempfile.TemporaryDirectory() as folder:
                fake_nccl(folder, version)
                done = run("--", sys.executable, "-c", LOAD, env=environment(LD_LIBRARY_PATH=folder))
                self.assertEqual(done.stdout.decode().strip(), "[True, True, True, False]", done.stderr.decode())

    def test_what_the_user_has_set_stays(self):
        env = environment(NCCL_NET_PLUGIN="aws-ofi", NCCL_DEBUG="INFO")
        done = run("--", "sh", "-c", "env | grep ^NCCL_ | sort", env=env)
        self.assertEqual(done.stdout.decode().split(), ["NCCL_DEBUG=INFO", "NCCL_NET_PLUGIN=aws-ofi"])
        self.assertIn("aws-ofi", done.stderr.decode())

    def test_under_mpirun(self):
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            self.skipTest("mpirun is not installed (apt-get install openmpi-bin)")
        words = [mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2", CGX, "run", "--plugin", LIBRARY, "--", "sh", "-c"]
        done = subprocess.run([*words, "echo $NCCL_COLLNET_ENABLE $NCCL_HOSTID"], env=environment(CGX_INTRA="on"), capture_output=True,
                              timeout=120, check=False)
        ids = sorted(line.split()[1][-2:] for line in done.stdout.decode().splitlines())
        self.assertEqual(ids, [":0", ":1"], done)
        self.assertNotEqual(subprocess.run([*words, "exit 3"], env=environment(), capture_output=True, timeout=120, check=False).returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
