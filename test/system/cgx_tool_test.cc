// The tool as a user meets it: programs started, their exit status and what they print. Mostly against fake_collnet,
// which misbehaves on request; the last tests use the real plugin.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/program.h"
#include "tools/rendezvous.h"

namespace cgx::tool {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::Variables;
using test::Words;

const fs::path kCgx = CGX_TOOL;
const fs::path kFake = CGX_FAKE_COLLNET;
const fs::path kSample = CGX_SAMPLE_GRADIENTS;

/// The tool with these arguments.
struct Program : test::Program {
  Program(const Words& arguments, const Variables& variables) : test::Program(whole(arguments), variables) {}
  static Words whole(const Words& arguments) {
    Words all{kCgx.string()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return all;
  }
};

Outcome run(const Words& arguments, const Variables& variables = {}) { return Program(arguments, variables).wait(); }

Words perf(Words more, const fs::path& plugin = kFake) {
  Words words{"perf", "--iters", "2", "--warmup", "1"};
  if (!plugin.empty()) words.insert(words.end(), {"--plugin", plugin.string()});
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

bool says(const Outcome& outcome, const std::string& what) { return outcome.text.find(what) != std::string::npos; }

int freePort() {
  int port = 0;
  Result<int> fd = listenAt("127.0.0.1", &port);
  EXPECT_TRUE(fd.ok());
  ::close(fd.value());
  return port;
}

TEST(CgxPerf, PrintsARowForEachSizeAndWritesThemAsJson) {
  const fs::path json = fs::temp_directory_path() / ("cgx-tool-" + std::to_string(::getpid()) + ".json");
  const Outcome outcome = run(perf({"--ranks", "3", "--sizes", "1K,64K", "--bits", "4", "--json", json.string()}));
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  const nlohmann::json whole = nlohmann::json::parse(std::ifstream(json));
  fs::remove(json);
  ASSERT_EQ(whole.at("results").size(), 2U);
  const nlohmann::json& row = whole.at("results").at(1);
  const std::vector<std::string> keys{"bytes",   "count",      "dtype",      "bits",
                                      "time_us", "algbw_GBps", "busbw_GBps", "wire_bytes_per_rank",
                                      "ratio",   "nmse",       "identical",  "ranks"};
  EXPECT_EQ(row.size(), keys.size());
  for (const std::string& key : keys) EXPECT_TRUE(row.contains(key)) << key;
  EXPECT_EQ(row.at("bytes"), 65536);
  EXPECT_EQ(row.at("count"), 16384);
  EXPECT_EQ(row.at("dtype"), "fp32");
  EXPECT_EQ(row.at("bits"), 4);
  EXPECT_EQ(row.at("ranks"), 3);
  EXPECT_EQ(row.at("identical"), true);
  // The fake says so: a quarter, and 64 bytes more on the busiest rank, against everything and 64 more in exact mode.
  EXPECT_EQ(row.at("wire_bytes_per_rank"), 65536 / 4 + 64);
  EXPECT_DOUBLE_EQ(row.at("ratio"), (65536.0 + 64) / (65536 / 4 + 64));
  EXPECT_NEAR(row.at("algbw_GBps").get<double>(), 65536 / row.at("time_us").get<double>() * 1e-3, 1e-9);
  EXPECT_NEAR(row.at("busbw_GBps").get<double>(), row.at("algbw_GBps").get<double>() * 4 / 3, 1e-9);
  EXPECT_LT(row.at("nmse").get<double>(), 1e-12);
}

TEST(CgxPerf, RunsTheSampleGradientsInEachType) {
  for (const char* dtype : {"fp32", "fp16", "bf16"}) {
    const Outcome outcome = run(perf({"--ranks", "4", "--gradients", kSample.string(), "--dtype", dtype}));
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_TRUE(says(outcome, "transformer/step0400")) << outcome.text;
    EXPECT_TRUE(says(outcome, dtype)) << outcome.text;
  }
}

TEST(CgxPerf, FailsWithOneWhenRanksDiffer) {
  const Outcome outcome = run(perf({"--ranks", "3", "--sizes", "4K"}), {{"FAKE_COLLNET", "differ"}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(says(outcome, " NO")) << outcome.text;
}

TEST(CgxPerf, FailsWithOneWhenAnElementIsWrongOnAllRanks) {
  const Outcome outcome = run(perf({"--ranks", "3", "--sizes", "4K"}), {{"FAKE_COLLNET", "wrong"}});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(says(outcome, "element 17 is")) << outcome.text;
}

struct Defect {
  const char* name;
  const char* message;
};
class CgxPerfDefect : public testing::TestWithParam<Defect> {};

TEST_P(CgxPerfDefect, EndsSoonAndNamesTheCause) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run(perf({"--ranks", "3", "--sizes", "4K:64K"}), {{"FAKE_COLLNET", GetParam().name}});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(says(outcome, GetParam().message)) << outcome.text;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

INSTANTIATE_TEST_SUITE_P(All, CgxPerfDefect,
                         testing::Values(Defect{"die", "rank 2 was killed by signal 6"},
                                         Defect{"vanish", "rank 2 has gone"},
                                         Defect{"error", "rank 1: the plugin's iallreduce returned remote error"},
                                         Defect{"short", "test reported 4092 bytes for an operation of 4096"},
                                         Defect{"refuse", "connect returned system error"}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(CgxPerf, TellsWhatItCannotRunOnce) {
  struct Case {
    Words words;
    const char* message;
  };
  const std::vector<Case> cases{
      {perf({"--ranks", "3", "--gradients", kSample.string()}), "holds gradients of 4 ranks, but there are 3"},
      {perf({"--gradients", "/nonexistent"}), "no such directory"},
      {perf({"--sizes", "1Q"}), "\"1Q\" is not a size"},
      {perf({"--sizes", "1K"}, "/nonexistent/plugin.so"), "/nonexistent/plugin.so: no such file"},
      {perf({"--sizes", "1K"}, kCgx), "cannot be loaded"},
      {perf({"--rank", "1", "--nranks", "2"}), "--rank, --nranks and --root go together"},
      {perf({"--rank", "2", "--nranks", "2", "--root", "127.0.0.1:1"}), "does not exist"},
      {perf({"--root", "127.0.0.1:1"}), "--root needs"},
      {perf({"--bits", "9"}), "--bits"},
      {perf({"--dtype", "fp64"}), "--dtype"},
      {{"perf", "--exact", "--bits", "4"}, "--exact"},
      {{}, "subcommand"},
  };
  for (const Case& one : cases) {
    const Outcome outcome = run(one.words);
    EXPECT_EQ(outcome.status, 2) << outcome.text;
    const std::size_t at = outcome.text.find(one.message);
    EXPECT_NE(at, std::string::npos) << one.message << "\n" << outcome.text;
    EXPECT_EQ(outcome.text.find(one.message, at + 1), std::string::npos) << outcome.text;
  }
}

TEST(CgxPerf, RefusesABadSettingByName) {
  const Outcome outcome = run(perf({"--ranks", "2", "--sizes", "1K"}), {{"CGX_BITS", "many"}});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(says(outcome, "CGX_BITS=\"many\"")) << outcome.text;
}

/// Ranks started one by one, as a user or a launcher does.
std::vector<Outcome> runEach(int ranks, const std::function<Words(int)>& words,
                             const std::function<Variables(int)>& variables) {
  std::vector<Program> programs;
  for (int rank = 0; rank < ranks; ++rank) programs.emplace_back(words(rank), variables(rank));
  std::vector<Outcome> outcomes;
  for (Program& program : programs) outcomes.push_back(program.wait());
  return outcomes;
}

void expectOneTable(const std::vector<Outcome>& outcomes, const std::string& origin) {
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(says(outcomes.front(), "yes")) << outcomes.front().text;
  EXPECT_TRUE(says(outcomes.front(), "(" + origin + ")")) << outcomes.front().text;
  for (std::size_t rank = 1; rank < outcomes.size(); ++rank) EXPECT_EQ(outcomes[rank].text, "");
}

const auto kSize = [](int) { return perf({"--sizes", "4K"}); };

TEST(CgxPerfLaunch, RunsRanksThatAreStartedByHand) {
  const std::string root = "127.0.0.1:" + std::to_string(freePort());
  expectOneTable(runEach(
                     3,
                     [&](int rank) {
                       return perf({"--sizes", "4K", "--rank", std::to_string(rank), "--nranks", "3", "--root", root});
                     },
                     [](int) { return Variables(); }),
                 "flags");
}

TEST(CgxPerfLaunch, RunsUnderTorchrun) {
  const std::string port = std::to_string(freePort());
  expectOneTable(runEach(3, kSize,
                         [&](int rank) {
                           return Variables{{"RANK", std::to_string(rank)},
                                            {"WORLD_SIZE", "3"},
                                            {"MASTER_ADDR", "localhost"},
                                            {"MASTER_PORT", port}};
                         }),
                 "torchrun");
}

TEST(CgxPerfLaunch, RunsUnderOpenMpi) {
  expectOneTable(runEach(2, kSize,
                         [&](int rank) {
                           return Variables{{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                            {"OMPI_COMM_WORLD_SIZE", "2"},
                                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
                         }),
                 "mpirun");
}

TEST(CgxPerfLaunch, RunsUnderSrun) {
  expectOneTable(runEach(2, kSize,
                         [&](int rank) {
                           return Variables{{"SLURM_PROCID", std::to_string(rank)},
                                            {"SLURM_NTASKS", "2"},
                                            {"SLURM_STEP_NODELIST", "localhost"},
                                            {"SLURM_JOB_ID", std::to_string(::getpid())},
                                            {"SLURM_STEP_ID", "0"}};
                         }),
                 "srun");
}

TEST(CgxPerfLaunch, NamesTheRankCountThatDiffers) {
  const std::string root = "127.0.0.1:" + std::to_string(freePort());
  const std::vector<Outcome> outcomes = runEach(
      2,
      [&](int rank) {
        return perf(
            {"--sizes", "4K", "--rank", std::to_string(rank), "--nranks", rank == 0 ? "2" : "3", "--root", root});
      },
      [](int) { return Variables(); });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.status, 2);
    EXPECT_TRUE(says(outcome, "rank 1 was started for 3 ranks, rank 0 for 2")) << outcome.text;
  }
}

TEST(CgxPerfLaunch, NamesAPortInUseAndRanksThatDoNotCome) {
  int port = 0;
  Result<int> taken = listenAt("127.0.0.1", &port);
  ASSERT_TRUE(taken.ok());
  const auto words = [&](int at) {
    return perf({"--sizes", "4K", "--rank", "0", "--nranks", "2", "--timeout", "0.3", "--root",
                 "127.0.0.1:" + std::to_string(at)});
  };
  const Outcome inUse = run(words(port));
  EXPECT_EQ(inUse.status, 2);
  EXPECT_TRUE(says(inUse, "port " + std::to_string(port) + " cannot be used")) << inUse.text;
  ::close(taken.value());
  const Outcome alone = run(words(freePort()));
  EXPECT_EQ(alone.status, 2);
  EXPECT_TRUE(says(alone, "rank 1 did not come")) << alone.text;
}

TEST(CgxPerfLaunch, NamesARankThatIsKilled) {
  const std::string root = "127.0.0.1:" + std::to_string(freePort());
  const auto words = [&](int rank) {
    return Words{"perf",   "--plugin",           kFake.string(), "--sizes", "1M",     "--iters", "1000000",
                 "--rank", std::to_string(rank), "--nranks",     "3",       "--root", root};
  };
  std::vector<Program> programs;
  for (int rank = 0; rank < 3; ++rank) programs.emplace_back(words(rank), Variables());
  ::usleep(500000);
  ::kill(programs[2].pid(), SIGKILL);
  EXPECT_EQ(programs[2].wait().status, -SIGKILL);
  const Outcome first = programs[0].wait();
  EXPECT_EQ(first.status, 2);
  EXPECT_TRUE(says(first, "rank 2 has gone")) << first.text;
  EXPECT_EQ(programs[1].wait().status, 2);
}

TEST(CgxInfo, ShowsVersionsInterfacesCodecStagingAndSettings) {
  const Outcome outcome = run({"info", "--plugin", kFake.string()}, {{"CGX_BITS", "3"}, {"CGX_BITZ", "4"}});
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  for (const char* what : {CGX_VERSION, "net ABI      v12\n", "collnet ABI  v12\n", "fake0",
                           "scalar; chosen: ", "64 ranks ", "CGX_BITZ is no setting"})
    EXPECT_TRUE(says(outcome, what)) << what << "\n" << outcome.text;
  std::istringstream lines(outcome.text);
  std::string line;
  std::string bits;
  while (std::getline(lines, line))
    if (line.starts_with("CGX_BITS ")) bits = line;
  EXPECT_NE(bits.find(" 3 "), std::string::npos) << bits;
  EXPECT_TRUE(bits.ends_with("CGX_BITS")) << bits;
}

TEST(CgxInfo, FailsWithAReasonWithoutAPluginOrWithABadSetting) {
  const Outcome missing = run({"info", "--plugin", "/nonexistent.so"});
  EXPECT_EQ(missing.status, 2);
  EXPECT_TRUE(says(missing, "no such file")) << missing.text;
  const Outcome bad = run({"info", "--plugin", kFake.string()}, {{"CGX_BITS", "9"}});
  EXPECT_EQ(bad.status, 2);
  EXPECT_TRUE(says(bad, "CGX_BITS=\"9\"")) << bad.text;
}

TEST(CgxInfo, ShowsThePluginsWarningsUnderItsOwnName) {
  const Outcome outcome = run({"info"}, {{"CGX_BITS", "9"}});
  EXPECT_TRUE(says(outcome, "cgx info: plugin: NET/CGX")) << outcome.text;
  EXPECT_FALSE(says(outcome, "cgx perf")) << outcome.text;
}

TEST(CgxInfo, PrintsTheSettingsOfTheReadme) {
  const Outcome outcome = run({"info", "--markdown-settings"}, {{"CGX_BITS", "3"}});
  EXPECT_EQ(outcome.status, 0);
  std::stringstream readme;
  readme << std::ifstream(CGX_README).rdbuf();
  EXPECT_NE(readme.str().find(outcome.text), std::string::npos);
}

// ---- with the real plugin, which lies next to the tool

TEST(CgxPerfReal, CompressesTheSampleSevenfoldWithinTheBound) {
  const fs::path json = fs::temp_directory_path() / ("cgx-tool-real-" + std::to_string(::getpid()) + ".json");
  for (const char* rounding : {"nearest", "stochastic"}) {
    const Outcome outcome = run(perf({"--ranks", "4", "--gradients", kSample.string(), "--bits", "4", "--rounding",
                                      rounding, "--json", json.string()},
                                     {}));
    ASSERT_EQ(outcome.status, 0) << outcome.text;
    const nlohmann::json row = nlohmann::json::parse(std::ifstream(json)).at("results").at(0);
    fs::remove(json);
    EXPECT_GE(row.at("ratio").get<double>(), 7);
    EXPECT_TRUE(row.at("identical").get<bool>());
    EXPECT_LT(row.at("nmse").get<double>(), 0.04);
  }
}

TEST(CgxPerfReal, RunsEachTypeWidthAndRankCountIncludingTheTail) {
  for (const char* ranks : {"1", "2", "3", "5"})
    for (const char* dtype : {"fp32", "fp16", "bf16"})
      for (const char* bits : {"1", "2", "8", "32"}) {
        const Outcome outcome =
            run(perf({"--ranks", ranks, "--sizes", "4,36K,100001", "--dtype", dtype, "--bits", bits}, {}));
        EXPECT_EQ(outcome.status, 0) << ranks << " ranks, " << dtype << ", " << bits << " bits\n" << outcome.text;
      }
}

TEST(CgxPerfReal, RunsTheFullGradientSets) {
  const char* named = std::getenv("CGX_GRADIENTS");
  const fs::path full = named != nullptr ? fs::path(named) : fs::path(CGX_SOURCE_DIR) / "../shared/gradients";
  if (!fs::is_directory(full))
    GTEST_SKIP() << "no full gradient sets: CGX_GRADIENTS is not set and there is no " << full;
  for (const char* set : {"transformer", "convnet", "embedding"}) {
    const Outcome outcome = run(perf({"--ranks", "4", "--gradients", (full / set).string()}, {}));
    EXPECT_EQ(outcome.status, 0) << outcome.text;
  }
  const Outcome overflow =
      run(perf({"--ranks", "2", "--gradients", (full / "amp_overflow").string()}, {}));  // Inf and NaN
  EXPECT_EQ(overflow.status, 0) << overflow.text;
}

}  // namespace
}  // namespace cgx::tool
