// The topology for NCCL_TOPO_FILE. Expected texts are by NCCL's rule, worked out by hand: from a device two bridges up,
// as long as both are PCI functions.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cgx/topology.h"

namespace cgx::topology {
namespace {

Gpu gpuAt(const std::string& way, int node) {
  Gpu gpu;
  gpu.pciPath = "/sys/devices/" + way;
  gpu.busId = way.substr(way.rfind('/') + 1);
  gpu.numaNode = node;
  return gpu;
}

TEST(GdrXml, HasEachGpuBelowItsSwitchesAndEveryNode) {
  Topology topology;
  topology.nodes = {{0, {}}, {1, {}}, {2, {}}};
  const std::string outer = "pci0000:16/0000:16:01.0/0000:17:00.0";
  const std::string inner = outer + "/0000:18:04.0/0000:20:00.0";
  topology.gpus = {gpuAt(outer + "/0000:18:00.0/0000:1a:00.0", 0), gpuAt(inner + "/0000:21:00.0/0000:22:00.0", 0),
                   gpuAt(inner + "/0000:21:01.0/0000:23:00.0", 0), gpuAt("pci0000:c0/0000:c0:01.0/0000:c1:00.0", 1)};
  EXPECT_EQ(gdrXml(topology), R"(<system version="1">
  <cpu numaid="0">
    <pci busid="0000:17:00.0">
      <pci busid="0000:1a:00.0">
        <gpu dev="0" gdr="1"/>
      </pci>
      <pci busid="0000:20:00.0">
        <pci busid="0000:22:00.0">
          <gpu dev="1" gdr="1"/>
        </pci>
        <pci busid="0000:23:00.0">
          <gpu dev="2" gdr="1"/>
        </pci>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1">
    <pci busid="0000:c1:00.0">
      <gpu dev="3" gdr="1"/>
    </pci>
  </cpu>
  <cpu numaid="2">
  </cpu>
</system>
)");
}

TEST(GdrXml, KnowsTheNodesOfDevicesThatTheKernelGivesNone) {
  Topology topology;
  topology.nodes = {{0, {}}};
  topology.processor = {"x86_64", "GenuineIntel", 6, 143};
  topology.gpus = {gpuAt("pci0000:00/0000:00:05.0", -1)};
  EXPECT_EQ(gdrXml(topology), R"(<system version="1">
  <cpu numaid="-1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:00:05.0">
      <gpu dev="0" gdr="1"/>
    </pci>
  </cpu>
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
  </cpu>
</system>
)");
}

TEST(GdrXml, StaysReadableWhateverTheCpuCallsItself) {
  Topology topology;
  topology.nodes = {{0, {}}};
  topology.processor = {"x86_64", "\"/><gpu", 6, 1};
  EXPECT_EQ(gdrXml(topology), "<system version=\"1\">\n  <cpu numaid=\"0\">\n  </cpu>\n</system>\n");
  topology.processor = {"arm64", "", 0, 0};
  EXPECT_EQ(gdrXml(topology), "<system version=\"1\">\n  <cpu numaid=\"0\" arch=\"arm64\">\n  </cpu>\n</system>\n");
}

/// What is read of a /proc/cpuinfo with this text.
Processor processorOf(const std::string& text) {
  std::string root = (std::filesystem::temp_directory_path() / "cgx-cpuinfo-XXXXXX").string();
  EXPECT_NE(::mkdtemp(root.data()), nullptr);
  std::filesystem::create_directory(root + "/proc");
  std::ofstream(root + "/proc/cpuinfo") << text;
  const Processor processor = read(root).processor;
  std::filesystem::remove_all(root);
  return processor;
}

TEST(Processor, IsReadAsTheKernelWritesIt) {
  const Processor intel = processorOf(
      "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Intel(R) Xeon(R): 2\n\n"
      "processor\t: 1\nvendor_id\t: GenuineIntel\ncpu family\t: 7\n");
  EXPECT_EQ(intel.arch, "x86_64");
  EXPECT_EQ(intel.vendor, "GenuineIntel");
  EXPECT_EQ(intel.family, 6);
  EXPECT_EQ(intel.model, 85);
  EXPECT_EQ(processorOf("vendor_id\t:   Shanghai  \n").vendor, "  Shanghai  ") << "NCCL's word has the spaces";
  EXPECT_EQ(processorOf("processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\n").arch, "arm64");
  EXPECT_EQ(processorOf("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n").arch, "ppc64");
  for (const char* text : {"", "vendor_id", "vendor_id\t:\n", "model name\t: vendor_id : x\n", "\n\n"})
    EXPECT_EQ(processorOf(text).arch, "") << text;
}

}  // namespace
}  // namespace cgx::topology
