// Which rank am I: what torchrun, mpirun and srun put into the environment.
#include <gtest/gtest.h>

#include <map>

#include "tools/placement.h"

namespace cgx::tool {
namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<Placement>> placed(const Variables& variables, const std::string& root = "") {
  const Lookup lookup = [&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
  return placementFromLauncher(lookup, root, 77);
}

Placement mustPlace(const Variables& variables, const std::string& root = "") {
  Result<std::optional<Placement>> result = placed(variables, root);
  EXPECT_TRUE(result.ok()) << result.status().text();
  EXPECT_TRUE(result.ok() && result.value().has_value());
  return result.ok() && result.value() ? *result.value() : Placement{};
}

TEST(ToolPlacement, IsNothingWithoutALauncher) {
  Result<std::optional<Placement>> result = placed({{"RANK", "1"}});
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(result.value().has_value());
}

TEST(ToolPlacement, FollowsTorchrunAndAvoidsThePortOfItsAgent) {
  Variables variables{{"RANK", "3"},         {"WORLD_SIZE", "8"},  {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"},
                      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}};
  const Placement plain = mustPlace(variables);
  EXPECT_EQ(plain.origin, "torchrun");
  EXPECT_EQ(plain.rank, 3);
  EXPECT_EQ(plain.ranks, 8);
  EXPECT_EQ(plain.host, "node0");
  EXPECT_EQ(plain.port, 29500);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_EQ(mustPlace(variables).port, 29501);
  EXPECT_EQ(mustPlace(variables, "other:5").port, 5);
}

TEST(ToolPlacement, FollowsOpenMpiOnOneHostWithAPortOfItsOwn) {
  Variables variables{
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const Placement first = mustPlace(variables);
  variables["OMPI_COMM_WORLD_RANK"] = "0";
  const Placement second = mustPlace(variables);
  EXPECT_EQ(first.host, "127.0.0.1");
  EXPECT_EQ(first.port, second.port);
  EXPECT_GT(first.port, 1023);
  EXPECT_LT(first.port, 32768);
}

TEST(ToolPlacement, AsksForTheRootWhenMpiSpansHosts) {
  const Variables variables{
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const Result<std::optional<Placement>> result = placed(variables);
  EXPECT_NE(result.status().text().find("add --root"), std::string::npos) << result.status().text();
  EXPECT_EQ(mustPlace(variables, "[fd00::1]:7").host, "fd00::1");
}

TEST(ToolPlacement, FollowsHydra) {
  const Placement placement = mustPlace({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MPI_LOCALNRANKS", "3"}});
  EXPECT_EQ(placement.rank, 2);
  EXPECT_EQ(placement.ranks, 3);
  EXPECT_EQ(placement.host, "127.0.0.1");
}

TEST(ToolPlacement, FollowsSlurmToTheFirstNodeOfTheStep) {
  Variables variables{{"SLURM_PROCID", "5"},
                      {"SLURM_NTASKS", "6"},
                      {"SLURM_STEP_NODELIST", "gpu[07-09,12],x1"},
                      {"SLURM_JOB_ID", "12"},
                      {"SLURM_STEP_ID", "3"}};
  const Placement placement = mustPlace(variables);
  EXPECT_EQ(placement.host, "gpu07");
  variables["SLURM_STEP_ID"] = "4";
  EXPECT_NE(mustPlace(variables).port, placement.port);
  variables.erase("SLURM_STEP_NODELIST");
  variables["SLURM_LAUNCH_NODE_IPADDR"] = "10.0.0.9";
  EXPECT_EQ(mustPlace(variables).host, "10.0.0.9");
}

TEST(ToolPlacement, NamesAVariableThatIsNoNumberAndARankThatCannotBe) {
  EXPECT_NE(placed({{"PMI_RANK", "x"}, {"PMI_SIZE", "3"}}).status().text().find("PMI_RANK=\"x\""), std::string::npos);
  EXPECT_NE(placed({{"PMI_RANK", "3"}, {"PMI_SIZE", "3"}}, "a:1").status().text().find("rank 3 of 3"),
            std::string::npos);
}

TEST(ToolPlacement, TakesTheFirstHostOfASlurmList) {
  EXPECT_EQ(firstHost("node1"), "node1");
  EXPECT_EQ(firstHost("node1,node2"), "node1");
  EXPECT_EQ(firstHost("n[3,5]"), "n3");
  EXPECT_EQ(firstHost("a,b[1-2]"), "a");
  EXPECT_EQ(firstHost("n[01-04]"), "n01");
  EXPECT_EQ(firstHost(""), "");
}

TEST(ToolPlacement, ReadsRootAddresses) {
  std::string host;
  int port = 0;
  EXPECT_TRUE(parseRoot("h:80", &host, &port).ok());
  EXPECT_EQ(host, "h");
  EXPECT_EQ(port, 80);
  for (const char* bad : {"", "h", "h:", ":80", "h:0", "h:65536", "h:8x"})
    EXPECT_FALSE(parseRoot(bad, &host, &port).ok()) << bad;
}

}  // namespace
}  // namespace cgx::tool
