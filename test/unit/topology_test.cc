// What is read of a host, on prepared trees.
#include "cgx/topology.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/host_tree.h"

namespace cgx::topology {
namespace {

class TopologyOfATree : public ::testing::Test {
 protected:
  const Nic& nic(const Topology& topology, const std::string& name) {
    for (const Nic& one : topology.nics)
      if (one.name == name) return one;
    ADD_FAILURE() << name;
    return topology.nics.at(0);
  }

  const test::TwoNodes tree_;
  const std::string& root_ = tree_.root();
};

TEST_F(TopologyOfATree, HasItsNodesNicsAndGpus) {
  const Topology topology = read(root_);
  ASSERT_EQ(topology.nodes.size(), 2u);
  EXPECT_EQ(topology.nodes[0].cpus, (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(topology.nodes[1].cpus, (std::vector<int>{4, 5, 6, 7}));
  ASSERT_EQ(topology.nics.size(), 3u);
  EXPECT_EQ(nic(topology, "eth0").pciPath, test::TwoNodes::kNicA);
  EXPECT_EQ(nic(topology, "eth0").speedMbps, 25000);
  EXPECT_EQ(nic(topology, "eth0").numaNode, 0);
  EXPECT_EQ(nic(topology, "ens3").pciPath, test::TwoNodes::kNicB) << "the function that the virtio device sits on";
  EXPECT_EQ(nic(topology, "ens3").speedMbps, 0);
  EXPECT_EQ(nic(topology, "br0").pciPath, "");
  ASSERT_EQ(topology.gpus.size(), 2u);
  EXPECT_EQ(topology.gpus[0].busId, "0000:1a:00.0");
  EXPECT_EQ(topology.gpus[0].model, "NVIDIA GeForce RTX 3090");
  EXPECT_EQ(topology.gpus[1].pciPath, test::TwoNodes::kGpuB);
  EXPECT_EQ(topology.gpus[1].model, "");
}

TEST_F(TopologyOfATree, HasOnlyTheGpusThatTheDriverShows) {
  std::filesystem::remove_all(root_ + "/proc/driver/nvidia/gpus/0000:1a:00.0");
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

TEST_F(TopologyOfATree, NamesTheCpusNearDevices) {
  EXPECT_EQ(cpusNear({test::TwoNodes::kNicB}, root_), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(cpusNear({test::TwoNodes::kNicA, test::TwoNodes::kNicB}, root_).size(), 9u) << "of both";
  EXPECT_TRUE(cpusNear({test::TwoNodes::kNicB, ""}, root_).empty()) << "one of them is virtual";
  EXPECT_TRUE(cpusNear({}, root_).empty());
  EXPECT_TRUE(cpusNear({test::TwoNodes::kNicB + "/gone"}, root_).empty()) << "unplugged";
}

TEST(TopologyOfOneNode, HasEveryCpuNearTheNic) {
  const test::HostTree tree;
  const std::string path = "/sys/devices/pci0000:00/0000:00:03.0";
  tree.node(0, "0-15");
  tree.device(path, "0x8086", "0x020000", -1, "0-15");  // the kernel names all CPUs where it knows no node
  tree.interface("eth0", path, "10000");
  const Topology topology = read(tree.root());
  ASSERT_EQ(topology.nodes.size(), 1u);
  ASSERT_EQ(topology.nics.size(), 1u);
  EXPECT_EQ(topology.nics[0].numaNode, -1);
  EXPECT_EQ(cpusNear({topology.nics[0].pciPath}, tree.root()), topology.nodes[0].cpus);
}

// As in NCCL's own socket net: ports of a card are functions of their own, and what NCCL cannot find is left out.
TEST(TopologyOfOddNics, HasAPciPathOnlyWhereNcclTakesOne) {
  const test::HostTree tree;
  const std::string card = "/sys/devices/pci0000:80/0000:80:02.0/0000:81:00.";
  for (const std::string port : {"0", "1"}) {
    tree.device(card + port, "0x15b3", "0x020000", 0, "0-3");
    tree.interface("eth" + port, card + port);
  }
  const std::string usb = "/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0";
  tree.write(usb + "/bInterfaceClass", "ff\n");
  tree.interface("usb0", usb);
  const std::string vmd = "/sys/devices/pci0000:e2/0000:e2:00.5/pci10000:00/10000:00:02.0";
  tree.device(vmd, "0x8086", "0x020000", 0, "0-3");
  tree.interface("vmd0", vmd);
  const std::string platform = "/sys/devices/platform/soc/fd58.ethernet";
  tree.write(platform + "/modalias", "of:NethernetT(null)\n");
  tree.interface("soc0", platform);
  const auto path = [&](const std::string& name) { return pciPathOf(name, tree.root()); };
  EXPECT_EQ(path("eth0"), card + "0");
  EXPECT_EQ(path("eth1"), card + "1");
  EXPECT_EQ(path("usb0"), "");
  EXPECT_EQ(path("soc0"), "");
  EXPECT_EQ(path("vmd0"), vmd);
  EXPECT_EQ(path("none"), "");
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
