// What NCCL must be told, version by version, against a table written by hand from NCCL's sources and from what was
// measured; who wins when the user has a value; names that mean us.
#include "cgx/activation.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace cgx::activation {
namespace {

namespace fs = std::filesystem;

struct Job {
  std::map<std::string, std::string> environment{{"NCCL_NET_PLUGIN", "cgx"}};
  Facts facts{.nccl = {2, 28, 9},
              .lookup = nullptr,
              .libraryPath = "/opt/libnccl-net-cgx.so",
              .host = "host:boot",
              .box = nullptr};
  int boxAsked = 0;

  Decision decide() {
    facts.lookup = [this](const char* name) -> const char* {
      const auto it = environment.find(name);
      return it == environment.end() ? nullptr : it->second.c_str();
    };
    return activation::decide(facts);
  }
  void box(Box value) {
    facts.box = [this, value] {
      ++boxAsked;
      return value;
    };
  }
};

std::string textOf(const Decision& decision) {
  std::string text;
  for (const Wanted& one : decision.wanted) text += std::string(one.name) + "=" + one.value + " ";
  return text;
}

TEST(Activation, EachVersionIsToldWhatItNeedsAndByWhomItCanBeTold) {
  struct Row {
    NcclVersion nccl;
    Way way;
    bool fromInit;  // CollNet
    const char* wanted;
  };
  const char* const collnet = "NCCL_COLLNET_ENABLE=1 ";
  const char* const both = "NCCL_COLLNET_ENABLE=1 NCCL_NET_PLUGIN_REF_COUNT=1 ";
  const Row rows[] = {
      {{2, 18, 1}, Way::FromInit, true, collnet},   {{2, 21, 5}, Way::FromInit, true, collnet},
      {{2, 26, 6}, Way::FromInit, true, collnet},   {{2, 27, 3}, Way::ByHand, false, collnet},
      {{2, 27, 7}, Way::ByHand, false, collnet},    {{2, 28, 3}, Way::ByHand, false, both},
      {{2, 28, 7}, Way::EnvPlugin, false, both},    {{2, 28, 9}, Way::EnvPlugin, false, both},
      {{2, 29, 7}, Way::EnvPlugin, false, both},    {{2, 30, 3}, Way::EnvPlugin, false, collnet},
      {{2, 30, 7}, Way::EnvPlugin, false, collnet}, {{}, Way::Unknown, false, both},
  };
  for (const Row& row : rows) {
    Job job;
    job.facts.nccl = row.nccl;
    const Decision decision = job.decide();
    EXPECT_TRUE(decision.named);
    EXPECT_EQ(decision.way, row.way) << row.nccl.text();
    EXPECT_EQ(textOf(decision), row.wanted) << row.nccl.text();
    EXPECT_EQ(inTimeFromInit("NCCL_COLLNET_ENABLE", row.nccl), row.fromInit) << row.nccl.text();
    EXPECT_FALSE(inTimeFromInit("NCCL_NET_PLUGIN_REF_COUNT", row.nccl));
    EXPECT_TRUE(inTimeFromInit("NCCL_HOSTID", row.nccl));
    for (const Wanted& one : decision.wanted) EXPECT_TRUE(mayDecide(one.name)) << one.name;
    EXPECT_NE(remedy(row.nccl, "/x/lib.so").find("NCCL_COLLNET_ENABLE=1"), std::string::npos);
    EXPECT_EQ(remedy(row.nccl, "/x/lib.so").find("NCCL_ENV_PLUGIN=/x/lib.so") != std::string::npos,
              row.way == Way::EnvPlugin);
  }
  EXPECT_FALSE(mayDecide("NCCL_DEBUG"));
}

TEST(Activation, NothingIsWantedOfAJobThatDoesNotNameUs) {
  for (const char* other : {"", "none", "ofi", "libnccl-net.so", "/opt/other.so"}) {
    Job job;
    job.environment = {{"NCCL_NET_PLUGIN", other}, {"CGX_INTRA", "on"}, {"LOCAL_RANK", "1"}};
    job.facts.intra = Intra::On;
    job.facts.gdr = Gdr::On;
    const Decision decision = job.decide();
    EXPECT_FALSE(decision.named) << other;
    EXPECT_TRUE(decision.wanted.empty() && decision.warnings.empty()) << other;
  }
  Job tuner;
  tuner.environment = {{"NCCL_TUNER_PLUGIN", "libnccl-tuner-cgx.so"}};
  EXPECT_TRUE(tuner.decide().named);
}

TEST(Activation, WhatTheUserHasSetWinsEvenWhenItIsEmpty) {
  Job job;
  for (const char* value : {"0", "1", "", "yes"}) {
    job.environment["NCCL_COLLNET_ENABLE"] = value;
    const Decision decision = job.decide();
    const Wanted* collnet = decision.find("NCCL_COLLNET_ENABLE");
    ASSERT_NE(collnet, nullptr);
    EXPECT_EQ(collnet->users, std::optional<std::string>(value));
    EXPECT_EQ(collnet->effective(), value);
    EXPECT_EQ(collnet->asWanted(), std::string(value) == "1");
  }
  EXPECT_EQ(job.decide().find("NCCL_NET_PLUGIN_REF_COUNT")->effective(), "1");
  EXPECT_EQ(job.decide().find("NCCL_DEBUG"), nullptr);
}

TEST(Activation, NcclsWaysToReadTheSwitchAreKnown) {
  EXPECT_TRUE(collnetOn("1", {2, 21, 5}));
  EXPECT_FALSE(collnetOn("2", {2, 21, 5}));
  EXPECT_FALSE(collnetOn("true", {2, 21, 5}));
  EXPECT_TRUE(collnetOn("1", {2, 28, 9}));
  EXPECT_TRUE(collnetOn("0x1", {2, 28, 9}));
  for (const char* off : {"", "0", "true", "-1"}) EXPECT_FALSE(collnetOn(off, {2, 28, 9})) << off;
}

TEST(Activation, ProcessesOfAHostBecomeNodesWhereTheirGpusDoNotReachOneAnother) {
  Job job;
  job.facts.intra = Intra::On;
  job.environment["LOCAL_RANK"] = "3";
  const auto id = [&] {
    const Decision decision = job.decide();
    const Wanted* wanted = decision.find("NCCL_HOSTID");
    return wanted == nullptr ? std::string("none") : wanted->value;
  };
  EXPECT_EQ(id(), "cgx:host:boot:3") << "no GPU to ask about";
  job.box({.gpus = 8});
  EXPECT_EQ(id(), "cgx:host:boot:3");
  EXPECT_EQ(id(), "cgx:host:boot:3") << "stable for the job";
  job.environment["LOCAL_RANK"] = "4";
  EXPECT_EQ(id(), "cgx:host:boot:4");
  job.box({.gpus = 1, .nvlink = true});
  EXPECT_EQ(id(), "cgx:host:boot:4") << "one GPU has nobody to reach";
  for (const Box& box : {Box{.gpus = 8, .nvlink = true}, Box{.gpus = 2, .p2p = true}, Box{.gpus = 2, .known = false}}) {
    job.box(box);
    EXPECT_EQ(id(), "none");
    EXPECT_EQ(job.decide().warnings.size(), 1U);
  }
  for (const Intra other : {Intra::Auto, Intra::Off}) {
    job.boxAsked = 0;
    job.facts.intra = other;
    EXPECT_EQ(id(), "none");
    EXPECT_TRUE(job.decide().warnings.empty());
    EXPECT_EQ(job.boxAsked, 0) << "asking costs time";
  }
}

TEST(Activation, AProcessThatNoLauncherNumberedStaysAsItIsWithOneWarning) {
  Job job;
  job.facts.intra = Intra::On;
  for (const char* rank : {"", "x", "-1", "1x", "99999999999999"}) {
    job.environment["LOCAL_RANK"] = rank;
    const Decision decision = job.decide();
    EXPECT_EQ(decision.find("NCCL_HOSTID"), nullptr) << rank;
    ASSERT_EQ(decision.warnings.size(), 1U);
    EXPECT_NE(decision.warnings[0].find("CGX_INTRA=on has no effect"), std::string::npos);
  }
  job.environment["NCCL_HOSTID"] = "mine";
  EXPECT_TRUE(job.decide().warnings.empty()) << "the user numbers them";
}

TEST(Activation, EveryLaunchersNumberIsUnderstood) {
  for (const char* name : {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK",
                           "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "PALS_LOCAL_RANKID", "FLUX_TASK_LOCAL_ID"}) {
    const Lookup lookup = [&](const char* asked) { return std::string(asked) == name ? "5" : nullptr; };
    EXPECT_EQ(localRank(lookup), std::optional<int>(5)) << name;
  }
}

TEST(Activation, AnIdThatAParentProcessWasGivenIsNotTheUsers) {
  Job job;
  job.facts.intra = Intra::On;
  job.environment["LOCAL_RANK"] = "1";
  job.environment["NCCL_HOSTID"] = "cgx:host:boot:0";
  EXPECT_EQ(job.decide().find("NCCL_HOSTID")->effective(), "cgx:host:boot:1");
  job.environment["NCCL_HOSTID"] = "mine";
  EXPECT_EQ(job.decide().find("NCCL_HOSTID")->effective(), "mine");
  job.environment["NCCL_HOSTID"] = "";
  EXPECT_EQ(job.decide().find("NCCL_HOSTID")->effective(), "") << "NCCL takes an empty id as it is";
}

TEST(Activation, GpuMemoryIsAskedForOnlyWhereItCanBeTaken) {
  Job job;
  EXPECT_EQ(job.decide().find("NCCL_NET_GDR_LEVEL"), nullptr);
  EXPECT_TRUE(job.decide().warnings.empty());
  job.facts.gdr = Gdr::On;
  EXPECT_EQ(job.decide().find("NCCL_NET_GDR_LEVEL"), nullptr);
  ASSERT_EQ(job.decide().warnings.size(), 1U);
  EXPECT_NE(job.decide().warnings[0].find("CGX_GDR=on has no effect"), std::string::npos);
  job.facts.devicePointers = true;
  EXPECT_EQ(job.decide().find("NCCL_NET_GDR_LEVEL")->value, "SYS");
  job.facts.gdr = Gdr::Off;
  EXPECT_EQ(job.decide().find("NCCL_NET_GDR_LEVEL"), nullptr);
}

TEST(Activation, NamesOfThisLibraryAreRecognised) {
  std::string folder = fs::temp_directory_path() / "cgx-names-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string library = folder + "/renamed.so";
  std::ofstream(library) << "x";
  fs::create_symlink("renamed.so", folder + "/libnccl-net.so");
  std::ofstream(folder + "/other.so") << "x";
  for (const std::string& name :
       {std::string("cgx"), std::string("libnccl-net-cgx.so"), std::string("libnccl-tuner-cgx.so"),
        std::string("ofi,cgx"), std::string("cgx,ofi"), std::string("/anywhere/libnccl-net-cgx.so"), library,
        folder + "/libnccl-net.so", "a," + library + ",b"})
    EXPECT_TRUE(namesUs(name.c_str(), library)) << name;
  for (const std::string& name : {std::string(), std::string(","), std::string("cgxx"), std::string("libnccl-net.so"),
                                  std::string("CGX"), std::string("x/cgx"), folder + "/other.so", folder + "/none.so"})
    EXPECT_FALSE(namesUs(name.c_str(), library)) << name;
  EXPECT_FALSE(namesUs(nullptr, library));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace cgx::activation
