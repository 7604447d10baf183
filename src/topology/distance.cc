// How far a NIC and a GPU are apart, from their paths below /sys/devices: each part of a path is a bridge.
#include <algorithm>
#include <string_view>

#include "cgx/topology.h"
#include "topology/kernel_files.h"

namespace cgx::topology {

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
