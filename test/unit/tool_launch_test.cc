// What `cgx run` sets, version by version, against a table written by hand; who wins; quoting against a real shell.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "tools/launch.h"
#include "tools/text_files.h"

namespace cgx::tool {
namespace {

using Variables = std::map<std::string, std::string>;

struct Job {
  Variables environment;
  LaunchFacts facts;

  explicit Job(std::vector<NcclVersion> versions, Variables variables = {}) : environment(std::move(variables)) {
    for (const NcclVersion version : versions) facts.found.push_back({"/x/libnccl.so.2", version, "somewhere"});
    facts.library = "/opt/cgx/libnccl-net-cgx.so";
    facts.host = "host:boot";
  }
  LaunchPlan plan() {
    facts.lookup = [this](const char* name) -> const char* {
      const auto it = environment.find(name);
      return it == environment.end() ? nullptr : it->second.c_str();
    };
    return planLaunch(facts);
  }
};

std::string textOf(const LaunchPlan& plan) {
  std::string text;
  for (const auto& [name, value] : plan.set) text += name + "=" + value + " ";
  return text;
}

const std::string kPath = "NCCL_NET_PLUGIN=/opt/cgx/libnccl-net-cgx.so ";
const std::string kShort = "NCCL_NET_PLUGIN=cgx LD_LIBRARY_PATH=/opt/cgx ";
const std::string kCollnet = "NCCL_COLLNET_ENABLE=1 ";
const std::string kRefCount = "NCCL_NET_PLUGIN_REF_COUNT=1 ";

TEST(Launch, EachVersionGetsWhatItNeeds) {
  const std::pair<NcclVersion, std::string> rows[] = {
      {{2, 18, 3}, kShort + kCollnet},
      {{2, 20, 5}, kShort + kCollnet},
      {{2, 21, 5}, kPath + kCollnet},
      {{2, 26, 6}, kPath + kCollnet},
      {{2, 27, 3}, kShort + kCollnet},
      {{2, 27, 5}, kPath + kCollnet},
      {{2, 27, 7}, kPath + kCollnet},
      {{2, 28, 2}, kPath + kCollnet},
      {{2, 28, 3}, kPath + kCollnet + kRefCount},
      {{2, 28, 9}, kPath + kCollnet + kRefCount},
      {{2, 29, 7}, kPath + kCollnet + kRefCount},
      {{2, 30, 7}, kPath + kCollnet},
  };
  for (const auto& [version, wanted] : rows) {
    const LaunchPlan plan = Job({version}).plan();
    EXPECT_EQ(textOf(plan), wanted) << version.text();
    EXPECT_TRUE(plan.warnings.empty()) << version.text();
  }
}

TEST(Launch, SeveralVersionsOrNoneGetWhatSuitsAll) {
  EXPECT_EQ(textOf(Job({{2, 30, 7}, {2, 28, 9}}).plan()), kPath + kCollnet + kRefCount);
  EXPECT_EQ(textOf(Job({{2, 27, 7}, {2, 20, 5}}).plan()), kShort + kCollnet);
  EXPECT_EQ(textOf(Job({}).plan()), kShort + kCollnet + kRefCount);
  EXPECT_EQ(textOf(Job({NcclVersion{}}).plan()), kShort + kCollnet + kRefCount) << "a library that tells no version";
  EXPECT_EQ(Job({{2, 27, 7}, {2, 20, 5}}).plan().about.size(), 2U);
}

TEST(Launch, TheLoadersPathIsKept) {
  EXPECT_EQ(textOf(Job({{2, 20, 5}}, {{"LD_LIBRARY_PATH", "/a:/b"}}).plan()),
            "NCCL_NET_PLUGIN=cgx LD_LIBRARY_PATH=/opt/cgx:/a:/b " + kCollnet);
  EXPECT_EQ(textOf(Job({{2, 20, 5}}, {{"LD_LIBRARY_PATH", ""}}).plan()), kShort + kCollnet)
      << "an empty entry would be the working folder";
}

TEST(Launch, WhatTheUserHasSetStaysAndIsNamedWhereItKeepsUsOut) {
  const LaunchPlan off = Job({{2, 28, 9}}, {{"NCCL_COLLNET_ENABLE", "0"}}).plan();
  EXPECT_EQ(textOf(off), kPath + kRefCount);
  ASSERT_EQ(off.warnings.size(), 1U);
  EXPECT_NE(off.warnings[0].find("NCCL_COLLNET_ENABLE is set to '0'"), std::string::npos) << off.warnings[0];

  const LaunchPlan on = Job({{2, 28, 9}}, {{"NCCL_COLLNET_ENABLE", "2"}, {"NCCL_NET_PLUGIN_REF_COUNT", "1"}}).plan();
  EXPECT_EQ(textOf(on), kPath);
  EXPECT_TRUE(on.warnings.empty()) << "any number above 0 is on since 2.27";

  for (const char* own : {"cgx", "libnccl-net-cgx.so", "other,cgx"}) {
    const LaunchPlan plan = Job({{2, 27, 7}}, {{"NCCL_NET_PLUGIN", own}}).plan();
    EXPECT_EQ(textOf(plan), kCollnet) << own;
    EXPECT_TRUE(plan.warnings.empty());
  }
  for (const char* other : {"aws-ofi", "none", "/opt/hpcx/libnccl-net.so"}) {
    const LaunchPlan plan = Job({{2, 27, 7}}, {{"NCCL_NET_PLUGIN", other}}).plan();
    EXPECT_EQ(textOf(plan), "");
    ASSERT_EQ(plan.warnings.size(), 1U);
    EXPECT_NE(plan.warnings[0].find(other), std::string::npos);
  }
  EXPECT_EQ(textOf(Job({{2, 27, 7}}, {{"NCCL_NET_PLUGIN", ""}}).plan()), kPath + kCollnet);
}

TEST(Launch, AUsersNameThatTheVersionCannotFindIsNamed) {
  const auto warnings = [](NcclVersion version, const char* name) {
    return Job({version}, {{"NCCL_NET_PLUGIN", name}}).plan().warnings;
  };
  EXPECT_TRUE(warnings({2, 20, 5}, "cgx").empty());
  ASSERT_EQ(warnings({2, 20, 5}, "libnccl-net-cgx.so").size(), 1U);
  ASSERT_EQ(warnings({2, 27, 3}, "/opt/cgx/libnccl-net-cgx.so").size(), 1U);
  EXPECT_NE(warnings({2, 27, 3}, "/opt/cgx/libnccl-net-cgx.so")[0].find("2.27.3"), std::string::npos);
  EXPECT_TRUE(warnings({2, 27, 3}, "libnccl-net-cgx.so").empty());
  EXPECT_TRUE(warnings({2, 27, 5}, "/opt/cgx/libnccl-net-cgx.so").empty());
  ASSERT_EQ(warnings({2, 26, 6}, "cgx,other").size(), 1U) << "lists came with 2.27";
  EXPECT_TRUE(warnings({2, 27, 3}, "cgx,/opt/other.so").empty());
}

TEST(Launch, IntraGivesEachProcessAnIdThatOnlyItsPlaceDecides) {
  const auto idOf = [](const char* rank, Intra intra) {
    Job job({{2, 27, 7}}, {{"OMPI_COMM_WORLD_LOCAL_RANK", rank}});
    job.facts.settings.intra = intra;
    return textOf(job.plan());
  };
  EXPECT_EQ(idOf("3", Intra::Auto), kPath + kCollnet);
  EXPECT_EQ(idOf("3", Intra::On), kPath + kCollnet + "NCCL_HOSTID=cgx:host:boot:3 ");
  EXPECT_EQ(idOf("3", Intra::On), idOf("3", Intra::On));
  EXPECT_NE(idOf("3", Intra::On), idOf("4", Intra::On));
}

TEST(Launch, QuotedIsOneWordOfAShell) {
  for (const std::string value : {"", "plain", "with space", "it's", "''", "$(id)`id`\\", "a\nb", "\"*?~", "-n"}) {
    std::FILE* shell = ::popen(("printf %s_ " + shellQuoted(value)).c_str(), "r");
    ASSERT_NE(shell, nullptr);
    std::string got;
    for (int c = std::fgetc(shell); c != EOF; c = std::fgetc(shell)) got += static_cast<char>(c);
    EXPECT_EQ(::pclose(shell), 0);
    EXPECT_EQ(got, value + "_");
  }
}

}  // namespace
}  // namespace cgx::tool
