// What is wrong only when ranks are looked at side by side. Pure: each difference is a test.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/card.h"

namespace cgx::tool::doctor {

/// By rank; nothing for one that did not take part.
struct Gathered {
  std::vector<std::optional<Card>> cards;
  std::vector<std::optional<Findings>> findings;
  std::vector<std::string> names;  // for messages: "rank 3 on node07", or a host
};

/// How many machines, seen as NCCL counts nodes.
int nodesOf(const std::vector<std::optional<Card>>& cards);
/// The first rank on each of them: these try to reach each other.
std::vector<int> firstOfEachNode(const std::vector<std::optional<Card>>& cards);

/// Hosts, library, NCCL, settings, NCCL's variables, devices, the job's size, and who reaches whom.
std::vector<Check> compare(const Gathered& all);

}  // namespace cgx::tool::doctor
