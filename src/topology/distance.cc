// How far a NIC and a GPU are apart, from their paths below /sys/devices: each part of a path is a bridge.
#include <algorithm>
#include <string_view>

#include "cgx/topology.h"

namespace cgx::topology {
namespace {

std::vector<std::string_view> partsOf(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end > 0) parts.push_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return parts;
}

}  // namespace

const char* name(Distance distance) noexcept {
  switch (distance) {
    case Distance::Pix:
      return "PIX";
    case Distance::Pxb:
      return "PXB";
    case Distance::Phb:
      return "PHB";
    case Distance::Node:
      return "NODE";
    case Distance::Sys:
      return "SYS";
  }
  return "SYS";
}

Distance between(const Nic& nic, const Gpu& gpu) {
  if (nic.pciPath.empty() || gpu.pciPath.empty()) return Distance::Sys;  // NCCL, too, puts such a NIC far away
  const auto a = partsOf(nic.pciPath);
  const auto b = partsOf(gpu.pciPath);
  std::size_t common = 0;
  while (common < std::min(a.size(), b.size()) && a[common] == b[common]) ++common;
  // sys, devices, pci0000:16, 0000:16:01.0 (root port), bridges ..., function
  constexpr std::size_t kHostBridge = 3;
  if (common < kHostBridge) return nic.numaNode >= 0 && nic.numaNode == gpu.numaNode ? Distance::Node : Distance::Sys;
  if (common == kHostBridge) return Distance::Phb;
  // A switch is two bridges on the way, up and down; more than that on either side is more than one switch.
  const std::size_t bridges = std::max(a.size(), b.size()) - common;
  return bridges <= 2 ? Distance::Pix : Distance::Pxb;
}

}  // namespace cgx::topology
