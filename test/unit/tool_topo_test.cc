// `cgx topo` on prepared trees: golden text, JSON with the same facts, the topology for NCCL_TOPO_FILE, exit codes.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "support/host_tree.h"
#include "topo/topo.h"

namespace cgx::tool::topo {
namespace {

using Variables = std::map<std::string, std::string>;

Lookup lookupIn(const Variables& variables) {
  return [variables](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
}

Options at(const test::HostTree& tree) {
  Options options;
  options.root = tree.root();
  return options;
}

Facts factsOf(const test::HostTree& tree, const Variables& variables = {}) {
  Result<Facts> facts = collect(at(tree), lookupIn(variables));
  EXPECT_TRUE(facts.ok()) << facts.status().text();
  return facts.ok() ? std::move(facts).value() : Facts();
}

std::string contentOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Two nodes of sixteen CPUs, one NIC on the first.
struct LargeHost : test::HostTree {
  LargeHost() {
    node(0, "0-15");
    node(1, "16-31");
    device("/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0", "0x15b3", "0x020000", 0, "0-15");
    interface("eth0", "/sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0", "100000");
  }
};

TEST(Topo, PrintsWhereThingsAreAndHowFarApart) {
  const test::TwoNodes tree;
  EXPECT_EQ(text(factsOf(tree)), R"(NUMA node  CPUs
0          0-3,8
1          4-7

interface  Mb/s   NUMA node  CPUs   PCI path
br0        -      -          -      no PCI device
ens3*      -      1          4-7    /sys/devices/pci0000:c0/0000:c0:03.0
eth0*      25000  0          0-3,8  /sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0/0000:18:01.0/0000:1b:00.0
* taken to be used: a copied tree does not tell which ones are up.

GPU  bus id        NUMA node  CPUs   model
0    0000:1a:00.0  0          0-3,8  NVIDIA GeForce RTX 3090
1    0000:c1:00.0  1          4-7    -
NVLink and peer access between GPUs: not known, as libnvidia-ml was not asked.

distance  GPU 0  GPU 1
br0       -      -
ens3      SYS    PHB
eth0      PIX    SYS
-: no PCI device: NCCL puts it at the first CPU.
PHB: the CPU's PCIe host bridge.
PIX: one PCIe switch.
SYS: the link between NUMA nodes.

CPUs allowed there: 0-8
Threads of the plugin: on any of them (all of them are near the interfaces in use).
)");
}

TEST(Topo, SaysPlainlyThatThereIsNoGpu) {
  const LargeHost tree;
  EXPECT_EQ(text(factsOf(tree)), R"(NUMA node  CPUs
0          0-15
1          16-31

interface  Mb/s    NUMA node  CPUs  PCI path
eth0*      100000  0          0-15  /sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0
* taken to be used: a copied tree does not tell which ones are up.

No NVIDIA GPU found.

CPUs allowed there: 0-31
Threads of the plugin: kept to 0-15 (near the interfaces in use).
)");
}

TEST(Topo, SaysWhyThreadsStayWhereTheyAre) {
  const LargeHost large;
  const auto why = [&](const Variables& variables) {
    const Facts facts = factsOf(large, variables);
    EXPECT_TRUE(facts.kept.empty());
    return whyKept(facts);
  };
  EXPECT_EQ(why({{"CGX_AFFINITY", "inherit"}}), "CGX_AFFINITY=inherit");
  EXPECT_EQ(why({{"LOCAL_WORLD_SIZE", "8"}}),
            "only 0-15 are near the interfaces in use, too few for 8 ranks with 4 busy threads each");
  EXPECT_EQ(why({{"CGX_THREADS", "40"}}),
            "only 0-15 are near the interfaces in use, too few for 1 rank with 43 busy threads each");
  test::HostTree virtualOnly;
  virtualOnly.node(0, "0-7");
  virtualOnly.interface("eth0", "", "10000");
  const Facts facts = factsOf(virtualOnly);
  EXPECT_EQ(whyKept(facts), "no interface is used");
  EXPECT_NE(text(facts).find("None can be used: no interface is a PCI device."), std::string::npos);
}

TEST(Topo, WritesTheSameAsJson) {
  const test::TwoNodes tree;
  const test::HostTree folder;
  Options options = at(tree);
  options.json = folder.root() + "/topo.json";
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run(options, lookupIn({})), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), text(factsOf(tree)));
  const auto json = nlohmann::json::parse(contentOf(options.json));
  EXPECT_EQ(json["nodes"], nlohmann::json::parse(R"([{"id":0,"cpus":[0,1,2,3,8]},{"id":1,"cpus":[4,5,6,7]}])"));
  ASSERT_EQ(json["interfaces"].size(), 3u);
  EXPECT_EQ(json["interfaces"][2]["name"], "eth0");
  EXPECT_EQ(json["interfaces"][2]["pci_path"], test::TwoNodes::kNicA);
  EXPECT_EQ(json["interfaces"][2]["speed_mbps"], 25000);
  EXPECT_EQ(json["interfaces"][2]["distances"], nlohmann::json::parse(R"(["PIX","SYS"])"));
  EXPECT_EQ(json["gpus"][0]["bus_id"], "0000:1a:00.0");
  EXPECT_EQ(json["gpus"][1]["cpus"], nlohmann::json::parse("[4,5,6,7]"));
  EXPECT_TRUE(json["nvlink"].is_null());
  EXPECT_EQ(json["threads"]["kept_to"], nlohmann::json::array());
  EXPECT_EQ(json["threads"]["allowed"].size(), 9u);
}

TEST(Topo, OfThisHostSucceedsWhateverIsMissing) {
  Result<Facts> facts = collect(Options(), lookupIn({}));
  ASSERT_TRUE(facts.ok()) << facts.status().text();
  EXPECT_FALSE(facts->allowed.empty());
  for (const int cpu : facts->kept) EXPECT_TRUE(std::count(facts->allowed.begin(), facts->allowed.end(), cpu)) << cpu;
  EXPECT_NE(text(facts.value()).find("Threads of the plugin: "), std::string::npos);
}

TEST(Topo, WrongRootsAndSettingsAreNamed) {
  Options options;
  options.root = "/nowhere";
  EXPECT_NE(collect(options, lookupIn({})).status().text().find("/nowhere/sys is no folder"), std::string::npos);
  const LargeHost tree;
  EXPECT_NE(collect(at(tree), lookupIn({{"CGX_AFFINITY", "far"}})).status().text().find("near, inherit"),
            std::string::npos);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(options, lookupIn({})), 2);
  EXPECT_TRUE(::testing::internal::GetCapturedStderr().starts_with("cgx topo: "));
}

TEST(TopoGdr, IsPrintedOrWrittenToAFile) {
  const test::TwoNodes tree;
  Options options = at(tree);
  options.gdr = true;
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run(options, lookupIn({})), 0);
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(printed, topology::gdrXml(topology::read(tree.root())));
  EXPECT_NE(printed.find("<gpu dev=\"0\" gdr=\"1\"/>"), std::string::npos);

  const test::HostTree folder;
  options.output = folder.root() + "/topo.xml";
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run(options, lookupIn({})), 0);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("NCCL_TOPO_FILE=" + options.output), std::string::npos);
  EXPECT_EQ(contentOf(options.output), printed);
}

TEST(TopoGdr, WithoutAGpuIsAnErrorAndWritesNothing) {
  const LargeHost tree;
  const test::HostTree folder;
  Options options = at(tree);
  options.gdr = true;
  options.output = folder.root() + "/topo.xml";
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run(options, lookupIn({})), 1);
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("no NVIDIA GPU found"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_empty(folder.root()));
}

TEST(TopoGdr, ReplacesALinkItselfAndNothingButPlainFiles) {
  const test::TwoNodes tree;
  const test::HostTree folder;
  folder.write("/precious", "keep me");
  std::filesystem::create_symlink(folder.root() + "/precious", folder.root() + "/link");
  ASSERT_EQ(::mkfifo((folder.root() + "/pipe").c_str(), 0600), 0);
  Options options = at(tree);
  options.gdr = true;
  ::testing::internal::CaptureStderr();
  options.output = folder.root() + "/link";
  EXPECT_EQ(run(options, lookupIn({})), 0);
  for (const std::string bad : {"/pipe", "/no/such/folder", ""}) {
    options.output = folder.root() + bad;
    EXPECT_EQ(run(options, lookupIn({})), 2) << bad;
  }
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(contentOf(folder.root() + "/precious"), "keep me");
  EXPECT_FALSE(std::filesystem::is_symlink(folder.root() + "/link"));
  EXPECT_EQ(contentOf(folder.root() + "/link"), topology::gdrXml(topology::read(tree.root())));
}

}  // namespace
}  // namespace cgx::tool::topo
