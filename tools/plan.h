// `cgx plan`: what all-reduces will take on a cluster that is not here, by the tuner's own cost model. Measures
// nothing.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cgx/settings.h"
#include "cgx/status.h"
#include "cgx/tuner.h"

namespace cgx::tool {

struct PlanOptions {
  std::size_t ranks = 8;
  std::size_t nodes = 0;  // 0: as many as ranks
  std::string link = "10G";
  int bits = 0;  // 0: CGX_BITS
  std::string sizes = "1K:1G:x4";
  std::string dtype = "fp32";
  std::string json;
};
void addPlanFlags(CLI::App& command, PlanOptions* options);

/// One all-reduce, in NCCL's microseconds.
struct PlanRow {
  std::size_t bytes = 0;
  double ringUs = 0;  // the better protocol of each
  double treeUs = 0;
  double oursUs = 0;
  tuner::Choice choice;  // NCCL's, once the tuner has had its say
};
struct Plan {
  tuner::Group group;
  double linkGBps = 0;      // as asked
  double ncclLinkGBps = 0;  // as NCCL counts it: the next slower of the speeds that it knows
  std::size_t elementBytes = 4;
  Settings settings;
  std::vector<PlanRow> rows;
  /// The smallest size that goes to collnet; nullopt: none up to 64 GiB does.
  std::optional<std::size_t> crossover;
};

/// "25G", "2.5G" or "1000M" (bits a second, decimal; "b/s" and "bps" may follow) in GB/s.
Result<double> parseLinkSpeed(const std::string& text);
Result<Plan> makePlan(const PlanOptions& options, const Lookup& lookup);
/// 0; 2: the options make no plan, or the JSON file cannot be written.
int plan(const PlanOptions& options, const Lookup& lookup);

}  // namespace cgx::tool
