// NCCL's own estimate of an all-reduce, restated from src/graph/tuning.cc of NCCL 2.30.7 (constants, formulas) and
// src/graph/search.cc (speeds), for GPUs of compute capability 8 that share no NVLink; and the way back from a cost to
// the link's speed. Measured against NCCL 2.28.9: 2 nodes, 1 KiB to 16 MiB, within 3 %.
#include <algorithm>
#include <cstdint>

#include "cgx/tuner.h"

namespace cgx::tuner {
namespace {

// By protocol: LL, LL128, Simple. Microseconds.
constexpr double kTreeBase[] = {6.8, 14.0, 8.4};
constexpr double kRingBase[] = {6.6, 14.0, 8.4};
constexpr double kTreePci[] = {1.0, 1.9, 4.0};
constexpr double kRingPci[] = {1.0, 2.5, 5.7};
constexpr double kTreeNet[] = {5.0, 8.5, 14.0};
constexpr double kRingNet[] = {2.7, 4.0, 14.0};
constexpr double kChainPci = 2.8;
constexpr double kChainNet = 30.0;
constexpr double kNetOverhead[] = {1.0, 1.0, 3.0};
constexpr double kPlateau = 1.4;  // of a ring with Simple between nodes
// Bandwidths as shares of the ring's with Simple.
constexpr double kRingLl = 0.5;
constexpr double kTree = 0.92;
constexpr double kTreeOneGpu = 0.85;  // of plain trees, which one GPU a node gives
constexpr double kTreeLl = 1 / 3.8;
// A tree's share of its bandwidth by size: powers of two from 64 B on, LL and Simple. Beyond: 1.
constexpr double kTreeBySize[2][24] = {
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}};
// NCCL searches for rings of these speeds only, in GB/s; below the last it assumes 0.1.
constexpr double kSpeeds[] = {48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12};
constexpr double kSlowest = 0.1;
constexpr int kGroupedInOneLaunch = 32;  // algorithms other than the ring pay their latency once for so many

int log2Floor(std::size_t x) noexcept {
  int log = -1;
  for (; x != 0; x >>= 1) ++log;
  return log;
}

double roundSpeed(double linkGBps) noexcept {
  for (const double speed : kSpeeds) {
    if (speed <= linkGBps * 1.0001) return speed;
  }
  return kSlowest;
}

double perNode(const Group& group) noexcept {
  return static_cast<double>(group.ranks) / static_cast<double>(group.nodes);
}

double ringLatency(const Group& group, int protocol) noexcept {
  const double steps = 2 * static_cast<double>(group.ranks - 1);
  const double netSteps = 2 * static_cast<double>(group.nodes - 1);
  const double net = group.ranks == group.nodes ? kTreeNet[protocol] : kRingNet[protocol];
  const double inside = std::max(kRingPci[protocol], kNetOverhead[protocol]);
  const double latency = kRingBase[protocol] + (steps - netSteps) * inside + netSteps * net;
  return protocol == static_cast<int>(Protocol::Simple) ? latency * kPlateau : latency;
}

double treeLatency(const Group& group, int protocol) noexcept {
  const double inside = static_cast<double>(group.ranks / group.nodes - 1) * kTreePci[protocol];
  return kTreeBase[protocol] + 2 * (inside + log2Floor(group.nodes) * kTreeNet[protocol]);
}

double treeShare(std::size_t bytes, bool simple) noexcept {
  const int log = log2Floor(bytes >> 6);
  return log >= 0 && log < 23 ? kTreeBySize[simple ? 1 : 0][log] : 1;
}

/// Bytes of an all-reduce for each byte that a ring sends over a link.
double ringRatio(const Group& group) noexcept {
  return static_cast<double>(group.ranks) / (2 * static_cast<double>(group.ranks - 1));
}

}  // namespace

void estimateNccl(const Group& group, std::size_t bytes, int pipeOps, double linkGBps, bool collnet,
                  float (&costs)[kAlgorithms][kProtocols]) noexcept {
  for (auto& row : costs) std::fill(std::begin(row), std::end(row), -1.0F);
  if (group.nodes < 2 || group.ranks < group.nodes) return;
  const double speed = roundSpeed(linkGBps);
  const double size = static_cast<double>(bytes) * 1e-3;  // over GB/s: microseconds
  const double ops = std::max(1, pipeOps);
  const double launches = std::max(1, (pipeOps + kGroupedInOneLaunch - 1) / kGroupedInOneLaunch);
  const bool oneGpu = group.ranks == group.nodes;
  // Between two nodes, and for the chain, NCCL counts both directions of a link.
  const double treeSpeed = speed * (group.nodes == 2 ? 2 : 1) * kTree * (oneGpu ? kTreeOneGpu : 1) / 2;
  const Table table(&costs[0][0], kAlgorithms, kProtocols);
  for (const Protocol p : {Protocol::Ll, Protocol::Simple}) {
    const int i = static_cast<int>(p);
    const bool simple = p == Protocol::Simple;
    const double ring = speed * (simple ? 1 : kRingLl) * ringRatio(group);
    const double tree = treeSpeed * (simple ? 1 : kTreeLl) * treeShare(bytes, simple);
    table.at(Algorithm::Ring, p) = static_cast<float>(ringLatency(group, i) * ops + size / ring);
    table.at(Algorithm::Tree, p) = static_cast<float>(treeLatency(group, i) * launches + size / tree);
  }
  if (!collnet || perNode(group) > 8) return;
  const double chain = oneGpu ? kTreeNet[static_cast<int>(Protocol::Simple)]
                              : kChainNet + 2 * static_cast<double>(group.ranks / group.nodes - 1) * kChainPci;
  table.at(Algorithm::CollnetChain, Protocol::Simple) = static_cast<float>(chain * launches + size / speed);
}

double linkGBpsOf(const Table& table, const Group& group, const Call& call) noexcept {
  if (group.ranks < 2 || group.nodes < 2 || group.ranks < group.nodes) return 0;
  const double size = static_cast<double>(call.bytes) * 1e-3;
  const double ops = std::max(1, call.pipeOps);
  // Simple first: it is what large messages take. A cost is latency + size / speed; a part of it is left as speed even
  // where the latency of this NCCL, or of these NICs, is smaller than the one restated here.
  constexpr double kLeast = 0.02;
  for (const Protocol p : {Protocol::Simple, Protocol::Ll}) {
    if (!table.offers(Algorithm::Ring, p)) continue;
    const double cost = static_cast<double>(table.at(Algorithm::Ring, p));
    const double moving = std::max(cost - ringLatency(group, static_cast<int>(p)) * ops, cost * kLeast);
    if (moving <= 0) continue;
    return size / moving / ringRatio(group) / (p == Protocol::Simple ? 1 : kRingLl);
  }
  return 0;
}

}  // namespace cgx::tuner
