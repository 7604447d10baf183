// Each broken set-up is named, with its remedy; a healthy one has no problem.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "cgx/collective.h"
#include "doctor/checks.h"
#include "doctor/report.h"

namespace cgx::tool::doctor {
namespace {

Facts healthy() {
  Facts facts;
  facts.plugin = {"/usr/local/lib/libnccl-net-cgx.so", "environment"};
  facts.collnet = {"1", "/etc/nccl.conf"};
  facts.opened = facts.plugin.value;
  facts.ours = true;
  facts.devices = {"eth0, 10000 Mb/s"};
  facts.nccl = {{"/usr/lib/libnccl.so.2", {2, 27, 7}, "loader's path"}};
  facts.openFiles = 65536;
  facts.memory = {64ull << 30, 16ull << 30, 15ull << 30, UINT64_MAX};
  return facts;
}
std::string text(const std::vector<Check>& checks) { return text(Report{{{"here", checks}}, {}}); }
std::vector<std::string> problems(const Facts& facts) {
  std::vector<std::string> names;
  for (const Check& check : diagnose(facts))
    if (check.verdict == Verdict::Problem) {
      EXPECT_FALSE(check.text.empty());
      EXPECT_FALSE(check.remedy.empty()) << check.name;
      names.push_back(check.name);
    }
  return names;
}
using Names = std::vector<std::string>;

TEST(Doctor, HasNoProblemWithAHealthySetUp) {
  EXPECT_EQ(problems(healthy()), Names{});
  EXPECT_NE(text(diagnose(healthy())).find("no problem found"), std::string::npos);
}

TEST(Doctor, NamesAPluginThatIsNotNamedOrNotFoundOrAnother) {
  Facts facts = healthy();
  facts.plugin = {};
  EXPECT_EQ(problems(facts), Names{"named"});
  facts = healthy();
  facts.opened = "";
  facts.ours = false;
  facts.openError = "/usr/local/lib/libnccl-net-cgx.so: no such file";
  EXPECT_EQ(problems(facts), Names{"library"});
  EXPECT_NE(text(diagnose(facts)).find("NCCL_NET=CGX"), std::string::npos);
  facts = healthy();
  facts.ours = false;
  EXPECT_EQ(problems(facts), Names{"library"});
}

TEST(Doctor, NamesAPathThatSomeNcclsDoNotUnderstand) {
  for (const NcclVersion version : {NcclVersion{2, 20, 5}, NcclVersion{2, 27, 3}}) {
    Facts facts = healthy();
    facts.nccl[0].version = version;
    EXPECT_EQ(problems(facts), Names{"named"}) << version.text();
    facts.plugin.value = "cgx";
    EXPECT_EQ(problems(facts), Names{}) << version.text();
  }
}

TEST(Doctor, NamesACollnetThatIsOff) {
  Facts facts = healthy();
  facts.collnet = {};
  EXPECT_EQ(problems(facts), Names{"CollNet"});
  for (const char* value : {"0", "", "yes"}) {
    facts.collnet = {value, "environment"};
    EXPECT_EQ(problems(facts), Names{"CollNet"}) << value;
  }
}

TEST(Doctor, KnowsWhoSwitchesCollnetOnInEachVersion) {
  struct Case {
    NcclVersion nccl;
    bool envPlugin;
    bool on;
  };
  for (const Case& one : {Case{{2, 26, 5}, false, true}, Case{{2, 27, 7}, true, false}, Case{{2, 28, 3}, true, false},
                          Case{{2, 28, 9}, true, true}, Case{{2, 28, 9}, false, false}, Case{{2, 30, 7}, true, true}}) {
    Facts facts = healthy();
    facts.collnet = {};
    facts.nccl[0].version = one.nccl;
    facts.env.ours = one.envPlugin;
    EXPECT_EQ(problems(facts), one.on ? Names{} : Names{"CollNet"}) << one.nccl.text() << " " << one.envPlugin;
    facts.collnet = {"0", "environment"};
    EXPECT_EQ(problems(facts), Names{"CollNet"}) << "the user's word wins in " << one.nccl.text();
  }
  Facts facts = healthy();
  facts.collnet = {};
  facts.nccl.clear();
  EXPECT_EQ(problems(facts), Names{"CollNet"}) << "an unknown version";
}

TEST(Doctor, FindsTheEnvPluginAsNcclDoes) {
  const auto found = [](const std::string& value) {
    return collect([&](const char* name) { return std::string(name) == "NCCL_ENV_PLUGIN" ? value.c_str() : nullptr; })
        .env.ours;
  };
  EXPECT_FALSE(found("/nowhere/libnccl-env.so"));
  EXPECT_FALSE(found("libc.so.6"));
}

TEST(Doctor, NamesInterfacesSettingsAndLimits) {
  Facts facts = healthy();
  facts.devices.clear();
  EXPECT_EQ(problems(facts), Names{"interfaces"});
  facts = healthy();
  facts.badSettings = "CGX_BITS=9";
  EXPECT_EQ(problems(facts), Names{"settings"});
  facts = healthy();
  facts.unknownSettings = {"CGX_BIT is not a setting; CGX_BITS?"};
  EXPECT_EQ(problems(facts), Names{"settings"});
  facts = healthy();
  facts.openFiles = 256;
  EXPECT_EQ(problems(facts), Names{"open files"});
}

TEST(Doctor, NamesANetworkThatExcludesThePlugin) {
  Facts facts = healthy();
  facts.net = {"cgx", "environment"};
  EXPECT_EQ(problems(facts), Names{});
  facts.net = {"IB", "/etc/nccl.conf"};
  EXPECT_EQ(problems(facts), Names{"net"});
}

TEST(Doctor, NamesATunerThatTakesThePlaceOfOurs) {
  Facts facts = healthy();
  facts.tuner = {{}, "/usr/lib/libnccl-tuner.so", false, "AWS OFI"};
  EXPECT_EQ(problems(facts), Names{"tuner"});
  EXPECT_NE(text(diagnose(facts)).find("NCCL_TUNER_PLUGIN=/usr/local/lib/libnccl-net-cgx.so"), std::string::npos);
  facts.tuner.ours = true;
  EXPECT_EQ(problems(facts), Names{});
  for (const char* meant : {"none", "aws"}) {
    facts.tuner = {{meant, "environment"}, "/usr/lib/libnccl-tuner-aws.so", false, "AWS OFI"};
    EXPECT_EQ(problems(facts), Names{});
    EXPECT_NE(text(diagnose(facts)).find("the plugin's own tuner is not asked"), std::string::npos);
  }
}

TEST(Doctor, SumsUpStagingAndNamesWhatDoesNotFit) {
  Facts facts = healthy();
  facts.nodes = 4;
  const auto need = collective::stagingBytes(facts.settings, 4);
  facts.memory.available = need;
  EXPECT_EQ(problems(facts), Names{});
  facts.comms = 2;
  EXPECT_EQ(problems(facts), Names{"staging"});
  facts.comms = 1;
  facts.devices.push_back("eth1, 10000 Mb/s");
  EXPECT_EQ(problems(facts), Names{}) << "one process has one collnet rank";
  facts.settings.localRanks = 8;
  EXPECT_EQ(problems(facts), Names{"staging"}) << "two interfaces, two collnet ranks";
  facts.memory.available.reset();
  EXPECT_EQ(problems(facts), Names{});
}

TEST(Doctor, NamesASharedMemoryThatIsTinyOrMissing) {
  Facts facts = healthy();
  facts.memory.sharedSize = 64 << 20;  // Docker's
  facts.memory.sharedFree = 64 << 20;
  EXPECT_EQ(problems(facts), Names{});
  facts.settings.localRanks = 8;
  EXPECT_EQ(problems(facts), Names{"/dev/shm"});
  facts = healthy();
  facts.memory.sharedFree = 1 << 20;
  EXPECT_EQ(problems(facts), Names{"/dev/shm"});
  facts.memory.sharedSize.reset();
  EXPECT_EQ(problems(facts), Names{"/dev/shm"});
  EXPECT_NE(text(diagnose(facts)).find("--shm-size"), std::string::npos);
}

TEST(Doctor, SaysHowTheGpusAreConnectedAndWhatFollows) {
  Facts facts = healthy();
  EXPECT_NE(text(diagnose(facts)).find("none seen"), std::string::npos);
  facts.gpus = {"NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"};
  facts.box = {2, false, false, true};
  EXPECT_NE(text(diagnose(facts)).find("2 x NVIDIA GeForce RTX 3090; NVLink: no, P2P: no; CGX_INTRA=auto compresses"),
            std::string::npos);
  facts.box = {2, true, true, true};
  facts.settings.intra = Intra::On;
  EXPECT_NE(text(diagnose(facts)).find("NVLink: yes, P2P: yes; CGX_INTRA=on has no effect"), std::string::npos);
  facts.box.known = false;
  EXPECT_NE(text(diagnose(facts)).find("libnvidia-ml.so.1"), std::string::npos);
  EXPECT_EQ(problems(facts), Names{});
}

TEST(Doctor, SaysOnceWhatAllSayAndWhoSaysSomethingElse) {
  Report report{{{"a", {ok("same", "one"), ok("other", "x")}},
                 {"b", {ok("same", "one"), problem("other", "y", "do z")}},
                 {"c", {ok("same", "one"), ok("other", "x")}}},
                {note("all", "three")}};
  EXPECT_EQ(text(report),
            "ok       same         one\n"
            "ok       other        x [a, c]\n"
            "problem  other        y [b]\n"
            "         -> do z\n"
            "note     all          three\n"
            "1 problem(s)\n");
  const nlohmann::json read = nlohmann::json::parse(json(report));
  EXPECT_EQ(read.at("problems"), 1);
  EXPECT_EQ(read.at("witnesses").at(1).at("name"), "b");
  EXPECT_EQ(read.at("witnesses").at(1).at("checks").at(1).at("remedy"), "do z");
  EXPECT_EQ(read.at("together").at(0).at("verdict"), "note");
}

TEST(Doctor, OnlyNotesWhatMayBeMeant) {
  Facts facts = healthy();
  facts.defaultNet = {{}, "/opt/hpcx/lib/libnccl-net.so", false, "IBext_v8"};
  facts.algorithm = {"Ring", "environment"};
  facts.cudaQueues = {"1", "environment"};
  facts.nccl[0].version = {2, 28, 9};
  EXPECT_EQ(problems(facts), Names{});
  const std::string said = text(diagnose(facts));
  for (const char* word :
       {"/opt/hpcx/lib/libnccl-net.so", "IBext_v8", "NCCL_ALGO=Ring", "CUDA_DEVICE_MAX_CONNECTIONS=1", "REF_COUNT=1"})
    EXPECT_NE(said.find(word), std::string::npos) << word;
  facts.nccl.clear();
  EXPECT_EQ(problems(facts), Names{});
}

class DoctorFacts : public ::testing::Test {
 protected:
  void SetUp() override {
    root = std::filesystem::temp_directory_path() / ("cgx-doctor-" + std::to_string(getpid()));
    std::filesystem::create_directories(root / "etc");
  }
  void TearDown() override { std::filesystem::remove_all(root); }
  Facts facts() {
    return collect(
        [this](const char* name) -> const char* {
          const auto found = environment.find(name);
          return found == environment.end() ? nullptr : found->second.c_str();
        },
        root.string());
  }
  std::filesystem::path root;
  std::map<std::string, std::string> environment;
};

TEST_F(DoctorFacts, OpenTheLibraryAsNcclDoesAndFindItsDevices) {
  environment = {{"NCCL_NET_PLUGIN", CGX_LIBRARY}};
  const Facts found = facts();
  EXPECT_TRUE(found.ours) << found.openError;
  EXPECT_TRUE(found.openError.empty()) << found.openError;
}

TEST_F(DoctorFacts, SayWhatTheLoaderSaidOfAWrongPath) {
  environment = {{"NCCL_NET_PLUGIN", "/nowhere/libnccl-net-cgx.so"}};
  const Facts found = facts();
  EXPECT_FALSE(found.ours);
  EXPECT_NE(found.openError.find("/nowhere"), std::string::npos) << found.openError;
}

TEST_F(DoctorFacts, TellALibraryThatIsAnother) {
  environment = {{"NCCL_NET_PLUGIN", "libc.so.6"}};
  const Facts found = facts();
  EXPECT_EQ(found.opened, "libc.so.6");
  EXPECT_FALSE(found.ours);
}

TEST_F(DoctorFacts, FindMemoryAndTheLimitOfTheControlGroup) {
  const auto write = [&](const std::string& file, const std::string& content) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << content;
  };
  write("proc/meminfo", "MemTotal: 100 kB\nMemAvailable:    5000 kB\n");
  EXPECT_EQ(facts().memory.available, 5000u * 1024);
  EXPECT_EQ(facts().memory.sharedSize, std::nullopt) << "no /dev/shm";
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/memory.max", "3000000\n");
  write("sys/fs/cgroup/job/memory.current", "2500000\n");
  write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 500000\n");
  write("sys/fs/cgroup/job/step/memory.max", "max\n");
  write("sys/fs/cgroup/job/step/memory.current", "2500000\n");
  EXPECT_EQ(facts().memory.available, 1000000u);
  write("dev/shm/x", "");
  EXPECT_TRUE(facts().memory.sharedSize.has_value());
}

TEST_F(DoctorFacts, TakeSettingsFromNcclsFiles) {
  std::ofstream(root / "etc/nccl.conf") << "CGX_BITS=2\nCGX_MODE=always\n";
  environment = {{"CGX_MODE", "auto"}};
  EXPECT_EQ(facts().settings.bits, 2);
  EXPECT_EQ(facts().settings.mode, Mode::Auto);
  environment = {{"CGX_BITS", "many"}};
  EXPECT_NE(facts().badSettings.find("CGX_BITS"), std::string::npos);
}

TEST_F(DoctorFacts, TellPluginsOfOtherKinds) {
  environment = {{"NCCL_TUNER_PLUGIN", "libc.so.6"}, {"NCCL_ENV_PLUGIN", CGX_LIBRARY}};
  const Facts found = facts();
  EXPECT_FALSE(found.tuner.ours);
  EXPECT_NE(found.tuner.opened.find("/libc.so.6"), std::string::npos);
  EXPECT_TRUE(found.env.ours);
  EXPECT_NE(found.env.calls, "");
}

TEST_F(DoctorFacts, ReadNcclsFilesWhichTheEnvironmentOverrules) {
  std::ofstream(root / "etc/nccl.conf") << "# all jobs\nNCCL_COLLNET_ENABLE=1\nNCCL_ALGO=Ring\n";
  std::ofstream(root / "mine") << "NCCL_ALGO=Tree\n";
  environment = {{"NCCL_CONF_FILE", (root / "mine").string()}};
  Facts found = facts();
  EXPECT_EQ(found.collnet.value, "1");
  EXPECT_NE(found.collnet.origin.find("/etc/nccl.conf"), std::string::npos);
  EXPECT_EQ(found.algorithm.value, "Tree");
  environment["NCCL_COLLNET_ENABLE"] = "0";
  found = facts();
  EXPECT_EQ(found.collnet.origin, "environment");
  EXPECT_EQ(found.collnet.value, "0");
}

}  // namespace
}  // namespace cgx::tool::doctor
