// A prepared tree of the files in /sys and /proc that tell where devices are, in a temporary folder or wherever asked.
// Knows the kernel's layout, not who reads it.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace cgx::test {

class HostTree {
 public:
  HostTree() {
    std::string pattern = (std::filesystem::temp_directory_path() / "cgx-host-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data()) == nullptr ? "/nowhere" : pattern;
    own_ = root_ == pattern;
  }
  /// Below `root`, which stays.
  explicit HostTree(std::string root) : root_(std::move(root)) {}
  HostTree(const HostTree&) = delete;
  HostTree& operator=(const HostTree&) = delete;
  ~HostTree() {
    std::error_code ignored;
    if (own_) std::filesystem::remove_all(root_, ignored);
  }

  const std::string& root() const { return root_; }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void node(int id, const std::string& cpus) const {
    write("/sys/devices/system/node/node" + std::to_string(id) + "/cpulist", cpus + "\n");
  }
  /// `path` below /sys/devices; `kind`: the PCI class.
  void device(const std::string& path, const std::string& vendor, const std::string& kind, int node,
              const std::string& cpus) const {
    write(path + "/vendor", vendor + "\n");
    write(path + "/class", kind + "\n");
    write(path + "/numa_node", std::to_string(node) + "\n");
    write(path + "/local_cpulist", cpus + "\n");
    std::filesystem::create_directories(root_ + "/sys/bus/pci/devices");
    std::filesystem::create_directory_symlink(
        root_ + path, root_ + "/sys/bus/pci/devices/" + std::filesystem::path(path).filename().string());
  }
  /// A network interface on the device at `path`; without one it is virtual.
  void interface(const std::string& name, const std::string& path = "", const std::string& speed = "") const {
    std::filesystem::create_directories(root_ + "/sys/class/net/" + name);
    if (!path.empty())
      std::filesystem::create_directory_symlink(root_ + path, root_ + "/sys/class/net/" + name + "/device");
    if (!speed.empty()) write("/sys/class/net/" + name + "/speed", speed + "\n");
  }
  void gpuModel(const std::string& busId, const std::string& firstLine) const {
    write("/proc/driver/nvidia/gpus/" + busId + "/information", firstLine + "\nIRQ: 1\n");
  }

 private:
  std::string root_;
  bool own_ = false;
};

/// Two NUMA nodes. On the first a switch with a GPU and eth0; on the second a GPU and ens3, a virtio NIC; br0 has no
/// device.
struct TwoNodes : HostTree {
  inline static const std::string kSwitch = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";
  inline static const std::string kGpuA = kSwitch + "/0000:18:00.0/0000:1a:00.0";
  inline static const std::string kNicA = kSwitch + "/0000:18:01.0/0000:1b:00.0";
  inline static const std::string kGpuB = "/sys/devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0";
  inline static const std::string kNicB = "/sys/devices/pci0000:c0/0000:c0:03.0";

  TwoNodes() {
    node(0, "0-3,8");
    node(1, "4-7");
    write("/sys/devices/system/node/nodes_possible/cpulist", "99\n");
    device(kGpuA, "0x10de", "0x030200", 0, "0-3,8");
    device(kGpuB, "0x10de", "0x030000", 1, "4-7");
    device(kNicA, "0x15b3", "0x020000", 0, "0-3,8");
    device(kNicB, "0x1af4", "0x020000", 1, "4-7");
    interface("eth0", kNicA, "25000");
    std::filesystem::create_directories(root() + kNicB + "/virtio2");
    interface("ens3", kNicB + "/virtio2", "-1");
    interface("br0");
    gpuModel("0000:1a:00.0", "Model: \t\t NVIDIA GeForce RTX 3090");
    gpuModel("0000:c1:00.0", "nothing known");
  }
};

}  // namespace cgx::test
