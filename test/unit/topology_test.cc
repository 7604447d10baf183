// What is read of a host, on a prepared tree: two NUMA nodes; on the first a switch with a GPU and a NIC, on the second
// a GPU and a virtio NIC; an interface without a device.
#include "cgx/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace cgx::topology {
namespace {

namespace fs = std::filesystem;

const std::string kSwitch = "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0";
const std::string kGpuA = kSwitch + "/0000:18:00.0/0000:1a:00.0";
const std::string kNicA = kSwitch + "/0000:18:01.0/0000:1b:00.0";
const std::string kGpuB = "/sys/devices/pci0000:c0/0000:c0:01.0/0000:c1:00.0";
const std::string kNicB = "/sys/devices/pci0000:c0/0000:c0:03.0";

class TopologyOfATree : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cgx-topology-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    write("/sys/devices/system/node/node0/cpulist", "0-3,8\n");
    write("/sys/devices/system/node/node1/cpulist", "4-7\n");
    write("/sys/devices/system/node/nodes_possible/cpulist", "99\n");
    device(kGpuA, "0x10de", "0x030200", 0, "0-3,8");
    device(kGpuB, "0x10de", "0x030000", 1, "4-7");
    device(kNicA, "0x15b3", "0x020000", 0, "0-3,8");
    device(kNicB, "0x1af4", "0x020000", 1, "4-7");
    interface("eth0", kNicA);
    write("/sys/class/net/eth0/speed", "25000\n");
    fs::create_directories(root_ + kNicB + "/virtio2");
    interface("ens3", kNicB + "/virtio2");
    write("/sys/class/net/ens3/speed", "-1\n");
    fs::create_directories(root_ + "/sys/class/net/br0");
    write("/proc/driver/nvidia/gpus/0000:1a:00.0/information", "Model: \t\t NVIDIA GeForce RTX 3090\nIRQ: 1\n");
    write("/proc/driver/nvidia/gpus/0000:c1:00.0/information", "nothing known\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void device(const std::string& path, const std::string& vendor, const std::string& kind, int node,
              const std::string& cpus) {
    write(path + "/vendor", vendor + "\n");
    write(path + "/class", kind + "\n");
    write(path + "/numa_node", std::to_string(node) + "\n");
    write(path + "/local_cpulist", cpus + "\n");
    fs::create_directories(root_ + "/sys/bus/pci/devices");
    fs::create_directory_symlink(root_ + path, root_ + "/sys/bus/pci/devices/" + fs::path(path).filename().string());
  }
  void interface(const std::string& name, const std::string& path) {
    fs::create_directories(root_ + "/sys/class/net/" + name);
    fs::create_directory_symlink(root_ + path, root_ + "/sys/class/net/" + name + "/device");
  }
  const Nic& nic(const Topology& topology, const std::string& name) {
    for (const Nic& one : topology.nics)
      if (one.name == name) return one;
    ADD_FAILURE() << name;
    return topology.nics.at(0);
  }

  std::string root_;
};

TEST_F(TopologyOfATree, HasItsNodesNicsAndGpus) {
  const Topology topology = read(root_);
  ASSERT_EQ(topology.nodes.size(), 2u);
  EXPECT_EQ(topology.nodes[0].cpus, (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(topology.nodes[1].cpus, (std::vector<int>{4, 5, 6, 7}));
  ASSERT_EQ(topology.nics.size(), 3u);
  EXPECT_EQ(nic(topology, "eth0").pciPath, kNicA);
  EXPECT_EQ(nic(topology, "eth0").speedMbps, 25000);
  EXPECT_EQ(nic(topology, "eth0").numaNode, 0);
  EXPECT_EQ(nic(topology, "ens3").pciPath, kNicB) << "the function that the virtio device sits on";
  EXPECT_EQ(nic(topology, "ens3").speedMbps, 0);
  EXPECT_EQ(nic(topology, "br0").pciPath, "");
  ASSERT_EQ(topology.gpus.size(), 2u);
  EXPECT_EQ(topology.gpus[0].busId, "0000:1a:00.0");
  EXPECT_EQ(topology.gpus[0].model, "NVIDIA GeForce RTX 3090");
  EXPECT_EQ(topology.gpus[1].pciPath, kGpuB);
  EXPECT_EQ(topology.gpus[1].model, "");
}

TEST_F(TopologyOfATree, HasOnlyTheGpusThatTheDriverShows) {
  fs::remove_all(root_ + "/proc/driver/nvidia/gpus/0000:1a:00.0");
  const Topology topology = read(root_);
  ASSERT_EQ(topology.gpus.size(), 1u);
  EXPECT_EQ(topology.gpus[0].busId, "0000:c1:00.0");
}

TEST_F(TopologyOfATree, TellsHowFarNicAndGpuAreApart) {
  const Topology topology = read(root_);
  EXPECT_EQ(between(nic(topology, "eth0"), topology.gpus[0]), Distance::Pix);
  EXPECT_EQ(between(nic(topology, "eth0"), topology.gpus[1]), Distance::Sys);
  EXPECT_EQ(between(nic(topology, "ens3"), topology.gpus[1]), Distance::Phb);
  EXPECT_EQ(between(nic(topology, "br0"), topology.gpus[0]), Distance::Sys);
  EXPECT_STREQ(name(Distance::Pxb), "PXB");
}

TEST_F(TopologyOfATree, NamesCpusNearADeviceOnlyIfTheyAreEnough) {
  const std::vector<int> all{0, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(cpusNear({kNicB}, all, 2, 2, root_), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(cpusNear({kNicB}, {0, 5, 6}, 1, 2, root_), (std::vector<int>{5, 6})) << "only what is allowed";
  EXPECT_TRUE(cpusNear({kNicB}, all, 2, 3, root_).empty()) << "six threads do not fit on four CPUs";
  EXPECT_TRUE(cpusNear({kNicB, ""}, all, 1, 1, root_).empty()) << "a device without a place";
  EXPECT_TRUE(cpusNear({kNicA, kNicB}, all, 1, 1, root_).empty()) << "near everything";
}

TEST_F(TopologyOfATree, OfAnEmptyHostIsEmpty) {
  const Topology topology = read(root_ + "/nowhere");
  EXPECT_TRUE(topology.nics.empty());
  EXPECT_TRUE(topology.gpus.empty());
}

TEST(CpuLists, AreReadAndWrittenAsTheKernelDoes) {
  for (const char* text : {"0-3,8", "5", "0,2,4-5", ""}) EXPECT_EQ(cpuListText(parseCpuList(text)), text);
  EXPECT_TRUE(parseCpuList("0-4000000000").empty() || parseCpuList("0-4000000000").size() < 100000);
  EXPECT_TRUE(parseCpuList("cpu").empty());
}

TEST(HostIdentity, IsTheSameForAllProcessesOfABoot) {
  EXPECT_EQ(hostIdentity(), hostIdentity());
  EXPECT_FALSE(hostIdentity().empty());
}

}  // namespace
}  // namespace cgx::topology
