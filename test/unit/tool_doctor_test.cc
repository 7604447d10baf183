// Each broken set-up is named, with its remedy; a healthy one has no problem.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "doctor/checks.h"

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
  return facts;
}
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

TEST(Doctor, NamesAPathThatAnOldNcclDoesNotUnderstand) {
  Facts facts = healthy();
  facts.nccl[0].version = {2, 20, 5};
  EXPECT_EQ(problems(facts), Names{"named"});
  facts.plugin.value = "cgx";
  EXPECT_EQ(problems(facts), Names{});
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
    facts.envPlugin = one.envPlugin;
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
        .envPlugin;
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

TEST(Doctor, OnlyNotesWhatMayBeMeant) {
  Facts facts = healthy();
  facts.foreignDefault = true;
  facts.algorithm = {"Ring", "environment"};
  facts.cudaQueues = {"1", "environment"};
  facts.nccl[0].version = {2, 28, 9};
  EXPECT_EQ(problems(facts), Names{});
  const std::string said = text(diagnose(facts));
  for (const char* word : {"libnccl-net.so", "NCCL_ALGO=Ring", "CUDA_DEVICE_MAX_CONNECTIONS=1", "REF_COUNT=1"})
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
