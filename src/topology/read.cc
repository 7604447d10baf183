// What /sys and /proc show of this host.
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "cgx/topology.h"
#include "topology/kernel_files.h"

namespace cgx::topology {
namespace {

constexpr std::string_view kNvidia = "0x10de";

/// Below `root`, but written as on the host itself.
std::string devicePath(const std::string& link, const std::string& root) {
  std::string path = realPath(root + link);
  const std::string base = root.empty() ? std::string() : realPath(root);
  if (!path.starts_with(base + "/sys/devices/")) return {};
  return path.substr(base.size());
}

std::string lastPart(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::vector<Node> readNodes(const std::string& root) {
  std::vector<Node> nodes;
  const std::string folder = root + "/sys/devices/system/node";
  for (const std::string& name : listFolder(folder)) {
    if (!name.starts_with("node") || name.find_first_not_of("0123456789", 4) != name.npos || name.size() > 9) continue;
    if (name.size() == 4) continue;
    nodes.push_back({std::stoi(name.substr(4)), parseCpuList(readLine(folder + "/" + name + "/cpulist"))});
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.id < b.id; });
  if (nodes.empty()) nodes.push_back({0, parseCpuList(readLine(root + "/sys/devices/system/cpu/online"))});
  return nodes;
}

std::vector<Nic> readNics(const std::string& root) {
  std::vector<Nic> nics;
  for (const std::string& name : listFolder(root + "/sys/class/net")) {
    Nic nic;
    nic.name = name;
    nic.pciPath = pciPathOf(name, root);
    if (!nic.pciPath.empty()) nic.numaNode = readInt(root + nic.pciPath + "/numa_node", -1);
    nic.speedMbps = std::max(0, readInt(root + "/sys/class/net/" + name + "/speed", 0));
    nics.push_back(std::move(nic));
  }
  return nics;
}

/// The value behind `key` in /proc/cpuinfo, of the first CPU: all are alike.
std::string cpuInfo(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::size_t colon = line.find(": ");
    if (colon != line.npos && line.starts_with(key) && line.find_first_not_of(" \t", key.size()) == colon)
      return std::string(line.substr(colon + 2));
  }
  return {};
}

Processor readProcessor(const std::string& root) {
  const std::string text = readStart(root + "/proc/cpuinfo");
  Processor processor;
  processor.vendor = cpuInfo(text, "vendor_id");
  if (!processor.vendor.empty()) {
    processor.arch = "x86_64";
    processor.family = std::atoi(cpuInfo(text, "cpu family").c_str());
    processor.model = std::atoi(cpuInfo(text, "model").c_str());
  } else if (!cpuInfo(text, "CPU implementer").empty()) {
    processor.arch = "arm64";
  } else if (cpuInfo(text, "cpu").starts_with("POWER")) {
    processor.arch = "ppc64";
  }
  return processor;
}

/// "Model: \t\t NVIDIA A100-SXM4-40GB" is the driver's first line.
std::string modelOf(const std::string& busId, const std::string& root) {
  const std::string line = readLine(root + "/proc/driver/nvidia/gpus/" + busId + "/information");
  if (!line.starts_with("Model:")) return {};
  const std::size_t start = line.find_first_not_of(" \t", 6);
  return start == line.npos ? std::string() : line.substr(start);
}

bool isGpu(const std::string& device) {
  const std::string kind = readLine(device + "/class");
  return readLine(device + "/vendor") == kNvidia && (kind.starts_with("0x0300") || kind.starts_with("0x0302"));
}

std::vector<Gpu> readGpus(const std::string& root) {
  std::vector<Gpu> gpus;
  // A container sees all devices in /sys but the driver shows only those that it may use.
  const std::vector<std::string> granted = listFolder(root + "/proc/driver/nvidia/gpus");
  for (const std::string& name : listFolder(root + "/sys/bus/pci/devices")) {
    if (!granted.empty() && std::find(granted.begin(), granted.end(), name) == granted.end()) continue;
    Gpu gpu;
    gpu.busId = name;
    gpu.pciPath = devicePath("/sys/bus/pci/devices/" + name, root);
    if (gpu.pciPath.empty() || !isGpu(root + gpu.pciPath)) continue;
    gpu.numaNode = readInt(root + gpu.pciPath + "/numa_node", -1);
    gpu.model = modelOf(name, root);
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

}  // namespace

std::string pciPathOf(const std::string& interface, const std::string& root) {
  std::string path = devicePath("/sys/class/net/" + interface + "/device", root);
  // The device below a virtio NIC's PCI function is not itself a PCI device.
  if (lastPart(path).starts_with("virtio")) path.resize(path.rfind('/'));
  return isPciFunction(lastPart(path)) ? path : std::string();
}

Topology read(const std::string& root) {
  return {readProcessor(root), readNodes(root), readNics(root), readGpus(root)};
}

std::string hostIdentity(const std::string& root) {
  utsname host{};
  const std::string name = ::uname(&host) == 0 ? host.nodename : "";
  return name + ":" + readLine(root + "/proc/sys/kernel/random/boot_id");
}

}  // namespace cgx::topology
