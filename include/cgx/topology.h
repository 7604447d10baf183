// Where things are in this host: NUMA nodes, network interfaces, GPUs, and how far apart. Read from /sys and /proc, and
// from libnvidia-ml where it is there; what cannot be read is missing, never an error. Knows no threads and no NCCL
// call; the words for distances are NCCL's.
//
// Not hwloc: the kernel's own files say all that is needed here (local_cpulist, numa_node, the path of bridges), while
// hwloc's structures would have to be restated, as the library links nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cgx/activation.h"

namespace cgx::topology {

struct Node {
  int id = 0;
  std::vector<int> cpus;  // ascending
};

/// `pciPath` is a real path below /sys/devices whose last part is a PCI function's name, as NCCL's topology code wants
/// it; empty for what is no PCI device. `numaNode` is -1 where the kernel knows none.
struct Nic {
  std::string name;
  std::string pciPath;
  int numaNode = -1;
  int speedMbps = 0;  // 0: the kernel knows none
};
struct Gpu {
  std::string busId;  // 0000:17:00.0
  std::string pciPath;
  int numaNode = -1;
  std::string model;  // "NVIDIA GeForce RTX 3090"; may be empty
};

/// What the kernel calls the CPUs of the host, in NCCL's words.
struct Processor {
  std::string arch;    // x86_64, arm64, ppc64; else empty
  std::string vendor;  // GenuineIntel, AuthenticAMD ...; x86_64 only, as are
  int family = 0;
  int model = 0;
};

struct Topology {
  Processor processor;
  std::vector<Node> nodes;
  std::vector<Nic> nics;
  std::vector<Gpu> gpus;  // NVIDIA's, by bus id: the driver's order
};

/// `root` is put before every path: "" on a real host, a prepared tree in tests.
Topology read(const std::string& root = "");

/// The PCI function of a network interface, or empty: virtual, USB, platform. A virtio NIC is the function it sits on.
std::string pciPathOf(const std::string& interface, const std::string& root = "");

/// What lies between two PCI devices, in NCCL's terms: one switch; several switches; the CPU's host bridge; several
/// host bridges of a NUMA node; the link between nodes.
enum class Distance : std::uint8_t { Pix, Pxb, Phb, Node, Sys };
const char* name(Distance distance) noexcept;  // "PIX" ...
Distance between(const Nic& nic, const Gpu& gpu);

/// "0-3,8" as in the kernel's files; what cannot be read ends the list.
std::vector<int> parseCpuList(const std::string& text);
std::string cpuListText(const std::vector<int>& cpus);

/// The CPUs that the kernel calls local to any of the devices at `pciPaths`, ascending. Empty where one device has no
/// place (virtual, unplugged, no /sys): it is as near to one CPU as to another.
std::vector<int> cpusNear(const std::vector<std::string>& pciPaths, const std::string& root = "");

/// How the GPUs are connected, by libnvidia-ml; without it Box::known is false where /sys shows a GPU.
activation::Box box();

/// Name of the host and of this boot: the same for all its processes, as NCCL's own identity.
std::string hostIdentity(const std::string& root = "");

/// A partial topology for NCCL_TOPO_FILE that marks each GPU as able to hand over its memory, at its place below its
/// PCIe switches; NCCL fills in the rest.
std::string gdrXml(const Topology& topology);

}  // namespace cgx::topology
