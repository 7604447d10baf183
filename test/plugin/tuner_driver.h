// Asks a tuner table of any version as NCCL does, and takes NCCL's choice from the answer: the least cost, first come
// first served, nothing of an hour or more.
#pragma once

#include <array>
#include <optional>
#include <utility>

#include "plugin/tuner_api.h"
#include "test/plugin/library.h"

namespace cgx::test {

template <class Tuner>
struct TunerVersion;
#define CGX_TUNER_VERSION(v)                                       \
  template <>                                                      \
  struct TunerVersion<ncclTuner_v##v##_t> {                        \
    static constexpr int kNumber = v;                              \
    static constexpr const char* kSymbol = "ncclTunerPlugin_v" #v; \
  }
CGX_TUNER_VERSION(2);
CGX_TUNER_VERSION(3);
CGX_TUNER_VERSION(4);
CGX_TUNER_VERSION(5);
CGX_TUNER_VERSION(6);
#undef CGX_TUNER_VERSION

using TunerVersions = ::testing::Types<ncclTuner_v2_t, ncclTuner_v3_t, ncclTuner_v4_t, ncclTuner_v5_t, ncclTuner_v6_t>;

constexpr int kTree = 0;
constexpr int kRing = 1;
constexpr int kDirect = 2;
constexpr int kChain = 3;
constexpr int kNvls = 4;
constexpr int kLl = 0;
constexpr int kLl128 = 1;
constexpr int kSimple = 2;

using Costs = std::array<std::array<float, 3>, 7>;
using Pick = std::pair<int, int>;  // algorithm, protocol

inline Costs nothingOffered() {
  Costs costs;
  for (auto& row : costs) row.fill(-1);
  return costs;
}

/// What NCCL reckons for one GPU a node and a link: latency and bandwidth as NCCL 2.28.9 was seen to have them. The
/// chain looks best at every size, as it did there.
inline Costs ncclCosts(std::size_t bytes, double linkGBps, int nodes) {
  const double moving = static_cast<double>(bytes) / (1000 * linkGBps);
  const double steps = 2.0 * (nodes - 1);
  const double ring = moving * steps / nodes;
  Costs costs = nothingOffered();
  costs[kRing][kLl] = static_cast<float>(6.6 + steps * 5 + 2 * ring);
  costs[kRing][kSimple] = static_cast<float>(1.4 * (8.4 + steps * 14) + ring);
  costs[kTree][kLl] = static_cast<float>(16.8 + 8 * moving);
  costs[kTree][kSimple] = static_cast<float>(36 + 2.5 * moving);
  costs[kChain][kSimple] = static_cast<float>(14 + moving);
  return costs;
}

inline std::optional<Pick> ncclsChoice(const Costs& costs) {
  std::optional<Pick> best;
  float least = 3600000000.0F;
  for (int a = 0; a < 7; ++a) {
    for (int p = 0; p < 3; ++p) {
      const float cost = costs[static_cast<std::size_t>(a)][static_cast<std::size_t>(p)];
      if (cost >= 0 && cost < least) {
        least = cost;
        best = {a, p};
      }
    }
  }
  return best;
}

template <class Tuner>
class TunerDriver {
 public:
  static constexpr int kVersion = TunerVersion<Tuner>::kNumber;

  explicit TunerDriver(const Library& library) : table(library.symbol<const Tuner>(TunerVersion<Tuner>::kSymbol)) {}

  ncclResult_t init(std::size_t ranks, std::size_t nodes, ncclDebugLogger_t log = &Captured::log) {
    if constexpr (kVersion >= 5) {
      ncclNvlDomainInfo_v5_t domains{static_cast<int>(nodes), 1, 1};
      ncclTunerConstants_v5_t constants{};
      return table->init(&context, 7, ranks, nodes, log, &domains, &constants);
    } else {
      return table->init(ranks, nodes, log, &context);
    }
  }
  ncclResult_t end(void* which) {
    if constexpr (kVersion >= 5)
      return table->finalize(which);
    else
      return table->destroy(which);
  }
  /// Rewrites `costs`; for v2 as NCCL's adapter does: the choice gets cost 0.
  ncclResult_t ask(ncclFunc_t func, std::size_t bytes, Costs& costs, int pipeOps = 1, int* channels = nullptr) {
    int untouched = 0;
    int* const count = channels != nullptr ? channels : &untouched;
    auto* raw = reinterpret_cast<float**>(costs.data());
    if constexpr (kVersion >= 4) {
      return table->getCollInfo(context, func, bytes, pipeOps, raw, 7, 3, 0, count);
    } else if constexpr (kVersion == 3) {
      return table->getCollInfo(context, func, bytes, pipeOps, raw, 7, 3, count);
    } else {
      int algorithm = -1;
      int protocol = -1;
      const int collnet = costs[kChain][kSimple] >= 0 || costs[kDirect][kSimple] >= 0 ? 1 : 0;
      const ncclResult_t result =
          table->getCollInfo(context, func, bytes, collnet, 0, pipeOps, &algorithm, &protocol, count);
      if (algorithm < 0 || protocol < 0) return result;
      float& cost = costs[static_cast<std::size_t>(algorithm)][static_cast<std::size_t>(protocol)];
      if (cost >= 0) cost = 0;
      return result;
    }
  }
  std::optional<Pick> choice(ncclFunc_t func, std::size_t bytes, Costs costs, int pipeOps = 1) {
    EXPECT_EQ(ask(func, bytes, costs, pipeOps), ncclSuccess);
    return ncclsChoice(costs);
  }

  const Tuner* table;
  void* context = nullptr;
};

/// Variables for as long as it lives. nullptr: unset.
class Environment {
 public:
  using Values = std::vector<std::pair<const char*, const char*>>;
  explicit Environment(const Values& values) {
    for (const auto& [name, value] : values) {
      const char* old = std::getenv(name);
      before_.emplace_back(name, old == nullptr ? std::optional<std::string>() : old);
      value == nullptr ? unsetenv(name) : setenv(name, value, 1);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) value ? setenv(name, value->c_str(), 1) : unsetenv(name);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

/// Set so that nothing of the machine's own launcher is seen.
inline Environment::Values job(const char* worldRanks, Environment::Values more = {}) {
  Environment::Values all{{"NCCL_NET_PLUGIN", CGX_LIBRARY},
                          {"WORLD_SIZE", worldRanks},
                          {"OMPI_COMM_WORLD_SIZE", nullptr},
                          {"PMI_SIZE", nullptr},
                          {"SLURM_STEP_NUM_TASKS", nullptr},
                          {"SLURM_STEP_ID", nullptr},
                          {"NCCL_ALGO", nullptr},
                          {"NCCL_PROTO", nullptr},
                          {"NCCL_COLLNET_ENABLE", "1"}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace cgx::test
