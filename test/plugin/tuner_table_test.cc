// What the tuner may do to NCCL's table, whatever is in it; that its answers depend on nothing local; what it says.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "test/plugin/guarded.h"
#include "test/plugin/tuner_driver.h"

namespace cgx::test {
namespace {

using Tuner = TunerDriver<ncclTuner_v6_t>;
constexpr std::size_t kLarge = 64 << 20;
constexpr float kHour = 3600000000.0F;

ncclResult_t askRaw(const Tuner& tuner, ncclFunc_t func, std::size_t bytes, float* costs, int algorithms, int protocols,
                    int pipeOps = 1) {
  int channels = 0;
  const ncclResult_t result = tuner.table->getCollInfo(
      tuner.context, func, bytes, pipeOps, reinterpret_cast<float**>(costs), algorithms, protocols, 0, &channels);
  EXPECT_EQ(channels, 0);
  return result;
}

TEST(TunerTable, NothingIsTouchedOutsideTablesOfAnyShape) {
  Environment environment(job("4", {{"CGX_MODE", "always"}}));
  const Library library(CGX_LIBRARY);
  Tuner tuner(library);
  ASSERT_EQ(tuner.init(4, 4), ncclSuccess);
  const std::pair<int, int> shapes[] = {{6, 3}, {7, 3}, {8, 4}, {8, 3}, {7, 2}, {1, 1}, {5, 3}};
  for (const auto& [algorithms, protocols] : shapes) {
    const auto cells = static_cast<std::size_t>(algorithms * protocols);
    const Guarded memory(cells * sizeof(float));
    float* costs = memory.as<float>();
    for (std::size_t i = 0; i < cells; ++i) costs[i] = static_cast<float>(100 + i);
    const std::vector<float> before(costs, costs + cells);
    for (int func = 0; func < 5; ++func) {
      for (const int pipeOps : {0, 1, 1 << 30})
        EXPECT_EQ(askRaw(tuner, static_cast<ncclFunc_t>(func), kLarge, costs, algorithms, protocols, pipeOps),
                  ncclSuccess);
    }
    const bool known = protocols == 3 && (algorithms == 6 || algorithms == 7);
    EXPECT_EQ(std::memcmp(costs, before.data(), cells * sizeof(float)) != 0, known) << algorithms << " x " << protocols;
  }
  EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
}

TEST(TunerTable, CommunicatorsOfOneNodeAndFunctionsWithoutCollnetAreLeftAlone) {
  Environment environment(job("4", {{"CGX_MODE", "always"}, {"CGX_COMMS", "all"}}));
  const Library library(CGX_LIBRARY);
  for (const auto& [ranks, nodes] : std::vector<std::pair<std::size_t, std::size_t>>{{4, 1}, {1, 1}, {0, 0}, {2, 4}}) {
    Tuner tuner(library);
    ASSERT_EQ(tuner.init(ranks, nodes), ncclSuccess);
    Costs costs = ncclCosts(kLarge, 0.12, 4);
    costs[kRing][kLl128] = 1;
    const Costs before = costs;
    EXPECT_EQ(tuner.ask(ncclFuncAllReduce, kLarge, costs), ncclSuccess);
    EXPECT_EQ(costs, before) << ranks << " ranks, " << nodes << " nodes";
    EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
  }
  Tuner tuner(library);
  ASSERT_EQ(tuner.init(4, 4), ncclSuccess);
  Costs costs = ncclCosts(kLarge, 0.12, 4);
  const Costs before = costs;
  for (const int func : {-1, 5, 8, 1000})
    EXPECT_EQ(tuner.ask(static_cast<ncclFunc_t>(func), kLarge, costs), ncclSuccess);
  EXPECT_EQ(costs, before);
  EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
}

// Seeded. Holes stay, what is written is a cost that NCCL takes, and something is left to choose.
TEST(TunerTable, RandomTablesKeepTheirHolesAndACost) {
  std::mt19937 random(7);
  const auto below = [&](unsigned n) { return random() % n; };
  for (const char* mode : {"auto", "always", "off"}) {
    for (const char* world : {"8", "16"}) {
      Environment environment(job(world, {{"CGX_MODE", mode}}));
      const Library library(CGX_LIBRARY);
      Tuner tuner(library);
      ASSERT_EQ(tuner.init(8, 2 + below(7)), ncclSuccess);
      for (int round = 0; round < 2000; ++round) {
        Costs costs = nothingOffered();
        for (auto& row : costs) {
          for (float& cost : row)
            if (below(3) != 0)
              cost = std::ldexp(1.0F + static_cast<float>(below(1000)) * 0.001F, static_cast<int>(below(31)));
        }
        if (below(20) == 0) costs[below(7)][below(3)] = 0;
        const Costs before = costs;
        const std::size_t bytes = std::size_t{1} << below(41);
        ASSERT_EQ(tuner.ask(static_cast<ncclFunc_t>(below(5)), bytes, costs, 1 + static_cast<int>(below(64))),
                  ncclSuccess);
        for (std::size_t a = 0; a < 7; ++a) {
          for (std::size_t p = 0; p < 3; ++p) {
            if (before[a][p] < 0) {
              ASSERT_EQ(std::bit_cast<std::uint32_t>(costs[a][p]), std::bit_cast<std::uint32_t>(before[a][p]));
            }
            if (costs[a][p] == before[a][p]) continue;
            ASSERT_TRUE(std::isfinite(costs[a][p]) && costs[a][p] >= 0 && costs[a][p] < kHour) << costs[a][p];
          }
        }
        ASSERT_EQ(ncclsChoice(before).has_value(), ncclsChoice(costs).has_value());
      }
      EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
    }
  }
}

TEST(TunerTable, Ll128LosesBetweenNodesWhereThereIsAnotherChoice) {
  Environment environment(job("4"));
  const Library library(CGX_LIBRARY);
  Tuner tuner(library);
  ASSERT_EQ(tuner.init(4, 4), ncclSuccess);
  for (const ncclFunc_t func :
       {ncclFuncBroadcast, ncclFuncReduce, ncclFuncAllGather, ncclFuncReduceScatter, ncclFuncAllReduce}) {
    Costs costs = nothingOffered();
    costs[kRing][kLl128] = 10;
    costs[kTree][kLl128] = 11;
    EXPECT_EQ(tuner.choice(func, 1 << 20, costs), Pick(kRing, kLl128)) << "forced by NCCL_PROTO";
    costs[kRing][kSimple] = 30;
    EXPECT_EQ(tuner.choice(func, 1 << 20, costs), Pick(kRing, kSimple));
    costs[kRing][kLl] = 20;
    EXPECT_EQ(tuner.choice(func, 1 << 20, costs), Pick(kRing, kLl));
  }
  EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
}

// A chain that the user forced is all that NCCL offers, and stays its choice whatever the communicator.
TEST(TunerTable, AForcedAlgorithmIsNotFought) {
  Environment environment(job("64"));
  const Library library(CGX_LIBRARY);
  Tuner tuner(library);
  ASSERT_EQ(tuner.init(4, 4), ncclSuccess);
  for (const int algorithm : {kChain, kDirect, kTree}) {
    Costs costs = nothingOffered();
    costs[static_cast<std::size_t>(algorithm)][kSimple] = 500;
    EXPECT_EQ(tuner.choice(ncclFuncAllReduce, kLarge, costs), Pick(algorithm, kSimple));
  }
  EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
}

TEST(TunerTable, OfSeveralWaysIntoCollnetNcclsCheapestIsTaken) {
  Environment environment(job("16"));
  const Library library(CGX_LIBRARY);
  Tuner tuner(library);
  ASSERT_EQ(tuner.init(16, 2), ncclSuccess);
  Costs costs = ncclCosts(kLarge, 0.12, 2);
  costs[kDirect][kSimple] = costs[kChain][kSimple] / 2;
  EXPECT_EQ(tuner.choice(ncclFuncAllReduce, kLarge, costs), Pick(kDirect, kSimple));
  costs[kNvls][kSimple] = costs[kChain][kSimple] / 3;
  EXPECT_EQ(tuner.choice(ncclFuncAllReduce, kLarge, costs), Pick(kNvls, kSimple));
  costs[kChain][kSimple] = costs[kChain][kSimple] / 4;
  EXPECT_EQ(tuner.choice(ncclFuncAllReduce, kLarge, costs), Pick(kChain, kSimple));
  EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
}

TEST(TunerTable, OnAFastLinkNcclsOwnAlgorithmsStay) {
  Environment environment(job("2"));
  const Library library(CGX_LIBRARY);
  Tuner tuner(library);
  ASSERT_EQ(tuner.init(2, 2), ncclSuccess);
  for (int log = 10; log <= 34; ++log) {
    const std::size_t bytes = std::size_t{1} << log;
    Costs costs = ncclCosts(bytes, 48, 2);
    Costs without = costs;
    without[kChain][kSimple] = -1;
    EXPECT_EQ(tuner.choice(ncclFuncAllReduce, bytes, costs), ncclsChoice(without)) << bytes;
  }
  EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
}

TEST(TunerTable, OnlyTheChainsChunksChange) {
  Environment environment(job("4"));
  const Library library(CGX_LIBRARY);
  Tuner tuner(library);
  ASSERT_EQ(tuner.init(4, 4), ncclSuccess);
  const auto chunk = [&](ncclFunc_t func, std::size_t bytes, int algorithm, int channels, std::size_t start) {
    std::size_t size = start;
    EXPECT_EQ(tuner.table->getChunkSize(tuner.context, func, bytes, algorithm, kSimple, channels, &size), ncclSuccess);
    return size;
  };
  for (std::size_t bytes = 1; bytes < std::size_t{1} << 41; bytes *= 4) {
    for (const int channels : {0, 1, 2, 8, 64}) {
      for (const std::size_t start : {std::size_t{0}, std::size_t{32} << 10, std::size_t{256} << 10}) {
        const std::size_t chain = chunk(ncclFuncAllReduce, bytes, kChain, channels, start);
        EXPECT_TRUE(channels == 0 ? chain == start : chain >= 32 << 10 && chain <= 512 << 10) << chain;
        EXPECT_EQ(chunk(ncclFuncAllReduce, bytes, kRing, channels, start), start);
        EXPECT_EQ(chunk(ncclFuncAllGather, bytes, kDirect, channels, start), start);
      }
    }
  }
  EXPECT_EQ(tuner.table->getChunkSize(tuner.context, ncclFuncAllReduce, kLarge, kChain, kSimple, 1, nullptr),
            ncclSuccess);
  EXPECT_EQ(tuner.table->getChunkSize(nullptr, ncclFuncAllReduce, kLarge, kChain, kSimple, 1, nullptr), ncclSuccess);
  EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
}

// ---- what it depends on

/// 10,000 queries of every kind as one number.
std::uint64_t answersAsNumber() {
  const Library library(CGX_LIBRARY);
  Tuner tuner(library);
  if (tuner.init(8, 4, nullptr) != ncclSuccess) return 0;
  std::mt19937_64 random(11);
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  for (int i = 0; i < 10'000; ++i) {
    const std::size_t bytes = (std::size_t{1} << random() % 34) + random() % 4096;
    Costs costs = ncclCosts(bytes, 0.1 * static_cast<double>(1 + random() % 300), 4);
    tuner.ask(static_cast<ncclFunc_t>(random() % 5), bytes, costs, 1 + static_cast<int>(random() % 8));
    for (const auto& row : costs) {
      for (const float cost : row) add(std::bit_cast<std::uint32_t>(cost));
    }
    std::size_t chunk = 32768;
    tuner.table->getChunkSize(tuner.context, ncclFuncAllReduce, bytes, kChain, kSimple,
                              1 + static_cast<int>(random() % 8), &chunk);
    add(chunk);
  }
  tuner.end(tuner.context);
  return hash;
}

/// The number that a process of its own finds after `prepare`; 0: it could not.
template <class Prepare>
std::uint64_t answersIn(Prepare prepare) {
  int ends[2];
  if (pipe(ends) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    const std::uint64_t answer = prepare() ? answersAsNumber() : 0;
    _exit(write(ends[1], &answer, sizeof answer) == sizeof answer ? 0 : 1);
  }
  close(ends[1]);
  std::uint64_t answer = 0;
  if (read(ends[0], &answer, sizeof answer) != sizeof answer) answer = 0;
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return answer;
}

TEST(TunerPurity, AnswersAreTheSameWithOtherCpusFoldersHostNamesAndVariables) {
  Environment environment(job("8"));
  const std::uint64_t expected = answersIn([] { return true; });
  ASSERT_NE(expected, 0U);
  for (int cpu = 0; cpu < 2; ++cpu) {
    EXPECT_EQ(answersIn([&] {
                cpu_set_t cpus;
                CPU_ZERO(&cpus);
                CPU_SET(cpu, &cpus);
                return sched_setaffinity(0, sizeof cpus, &cpus) == 0 || cpu > 0;
              }),
              expected)
        << "on CPU " << cpu;
  }
  EXPECT_EQ(answersIn([] { return chdir("/") == 0; }), expected);
  EXPECT_EQ(answersIn([] {
              for (const char* name : {"HOSTNAME", "LOCAL_RANK", "RANK", "OMP_NUM_THREADS", "LANG", "LC_ALL"})
                setenv(name, "7", 1);
              setenv("LOCAL_WORLD_SIZE", "3", 1);
              setenv("CGX_THREADS", "5", 1);
              setenv("CGX_LINK_SPEED", "400000", 1);
              setenv("CGX_SIMD", "scalar", 1);
              return true;
            }),
            expected);
  if (geteuid() != 0) GTEST_SKIP() << "another host name needs root";
  EXPECT_EQ(answersIn([] { return unshare(CLONE_NEWUTS) == 0 && sethostname("elsewhere", 9) == 0; }), expected);
}

TEST(TunerPurity, AnswersDoDependOnTheSettingsThatRanksMustShare) {
  const auto with = [](Environment::Values more) {
    Environment environment(job("8", std::move(more)));
    return answersIn([] { return true; });
  };
  const std::uint64_t plain = with({});
  EXPECT_NE(plain, with({{"CGX_MODE", "always"}}));
  EXPECT_NE(plain, with({{"CGX_BITS", "8"}}));
  EXPECT_NE(plain, with({{"CGX_MIN_BYTES", "16M"}}));
  EXPECT_NE(plain, with({{"WORLD_SIZE", "16"}}));
}

// ---- what it says

int countOf(const std::vector<std::string>& lines, const std::string& part) {
  int count = 0;
  for (const std::string& line : lines) count += line.find(part) != std::string::npos ? 1 : 0;
  return count;
}

TEST(TunerWords, AnUnknownJobIsWarnedOfOnceWithTheRemedy) {
  Environment environment(job(nullptr));
  const Library library(CGX_LIBRARY);
  Captured::clear();
  Tuner first(library);
  Tuner second(library);
  ASSERT_EQ(first.init(4, 4), ncclSuccess);
  ASSERT_EQ(second.init(8, 4), ncclSuccess);
  EXPECT_EQ(countOf(Captured::take(NCCL_LOG_WARN), "CGX_COMMS=all"), 1);
  // Careful until it is known: exact.
  const auto pick = first.choice(ncclFuncAllReduce, kLarge, ncclCosts(kLarge, 0.12, 4));
  ASSERT_TRUE(pick);
  EXPECT_NE(pick->first, kChain);
  EXPECT_EQ(first.end(first.context), ncclSuccess);
  EXPECT_EQ(second.end(second.context), ncclSuccess);
}

TEST(TunerWords, NoWarningWhereNothingWouldBeCompressedAnyhow) {
  for (const auto& values : {job(nullptr, {{"CGX_MODE", "off"}}), job(nullptr, {{"CGX_BITS", "32"}}),
                             job(nullptr, {{"CGX_COMMS", "all"}}), job("4")}) {
    Environment environment(values);
    const Library library(CGX_LIBRARY);
    Captured::clear();
    Tuner tuner(library);
    ASSERT_EQ(tuner.init(4, 4), ncclSuccess);
    EXPECT_EQ(countOf(Captured::take(NCCL_LOG_WARN), "CGX_COMMS"), 0);
    EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
  }
}

TEST(TunerWords, EachCommunicatorBetweenNodesHasOneLine) {
  const std::pair<Environment::Values, const char*> cases[] = {
      {job("4"), "where the cost model sees a gain"},
      {job("8"), "not the whole job"},
      {job("4", {{"CGX_MODE", "always"}}), "CGX_MODE=always"},
      {job("4", {{"CGX_MODE", "off"}}), "CGX_MODE=off"},
  };
  for (const auto& [values, words] : cases) {
    Environment environment(values);
    const Library library(CGX_LIBRARY);
    Captured::clear();
    Tuner tuner(library);
    Tuner local(library);
    ASSERT_EQ(tuner.init(4, 4), ncclSuccess);
    ASSERT_EQ(local.init(4, 1), ncclSuccess);
    auto lines = Captured::take(NCCL_LOG_INFO);
    std::erase_if(lines, [](const std::string& line) { return line.find("tuner:") == std::string::npos; });
    EXPECT_EQ(lines.size(), 1U);
    EXPECT_EQ(countOf(lines, words), 1) << words;
    EXPECT_EQ(tuner.end(tuner.context), ncclSuccess);
    EXPECT_EQ(local.end(local.context), ncclSuccess);
  }
}

}  // namespace
}  // namespace cgx::test
