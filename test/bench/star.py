"""A star of network namespaces: one for each rank, a veth from each to a bridge, tbf on both ends. Root only.
Knows links; knows nothing of what runs over them."""
import json
import os
import subprocess

SUBNET = "10.77.0."
SEGMENT = 16 << 10


def sh(*words):
    subprocess.run(words, check=True, capture_output=True, text=True)


class Star:
    """with Star(4, 1000) as star: star.popen(0, [...]); 0: rank 0's namespace; links of 1000 Mb/s each way (0: not shaped)."""

    def __init__(self, ranks, mbps):
        self.ranks, self.mbps = ranks, mbps
        self.tag = f"cgx{os.getpid() % 100000}"
        self.hub = self.tag + "hub"

    def namespace(self, rank):
        return f"{self.tag}r{rank}"

    def address(self, rank):
        return SUBNET + str(rank + 1)

    def __enter__(self):
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in [self.hub] + [self.namespace(rank) for rank in range(self.ranks)]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def _build(self):
        sh("ip", "netns", "add", self.hub)
        sh("ip", "-n", self.hub, "link", "add", "br0", "type", "bridge")
        sh("ip", "-n", self.hub, "link", "set", "br0", "up")
        for rank in range(self.ranks):
            ns, port = self.namespace(rank), f"port{rank}"
            sh("ip", "netns", "add", ns)
            sh("ip", "-n", self.hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns)
            sh("ip", "-n", self.hub, "link", "set", port, "master", "br0", "up")
            sh("ip", "-n", ns, "link", "set", "lo", "up")
            sh("ip", "-n", ns, "addr", "add", f"{self.address(rank)}/24", "dev", "eth0")
            sh("ip", "-n", ns, "link", "set", "eth0", "up")
            for where, device in ((self.hub, port), (ns, "eth0")):
                self._shape(where, device)

    def _shape(self, namespace, device):
        if not self.mbps:
            return
        # burst: what passes at once. Up to a few Gb/s some small segments, so that short messages take a link's time, too; above, a
        # segment of 64 KiB must fit, and what a late timer (some 100 us) leaves to catch up.
        # limit: the queue of a switch port with plenty of buffer (25 ms, at least 4 MiB), so that many senders to one do not drop.
        if self.mbps <= 2500:
            sh("ip", "-n", namespace, "link", "set", device, "gso_max_size", str(SEGMENT), "gso_max_segs", "64")
            burst = 2 * SEGMENT
        else:
            burst = max(128 << 10, self.mbps * 1000000 // 8 // 5000)
        limit = max(4 << 20, self.mbps * 1000000 // 8 // 40)
        sh("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", "rate", f"{self.mbps}mbit", "burst", str(burst),
           "limit", str(limit))

    def command(self, rank, words):
        return ["ip", "netns", "exec", self.namespace(rank), *words]

    def popen(self, rank, words, **options):
        return subprocess.Popen(self.command(rank, words), **options)

    def goodput(self, seconds=3):
        """iperf3's goodput from rank 1 to rank 0 in bytes/s: the line rate that everything is compared with."""
        server = self.popen(0, ["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(20):
                done = subprocess.run(self.command(1, ["iperf3", "-c", self.address(0), "-t", str(seconds), "-O", "1", "-J"]),
                                      capture_output=True, text=True)
                report = json.loads(done.stdout)
                if "error" not in report:
                    return report["end"]["sum_received"]["bits_per_second"] / 8
            raise RuntimeError("iperf3: " + report["error"])
        finally:
            server.kill()
            server.wait()
