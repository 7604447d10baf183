// From costs to a choice: rewrites NCCL's table, within what NCCL bears (measured on 2.28.9: a cost in a place that it
// does not offer crashes it, costs above an hour leave it without an algorithm).
#include <algorithm>
#include <limits>

#include "cgx/tuner.h"

namespace cgx::tuner {
namespace {

constexpr float kMost = 3.5e9F;      // microseconds; NCCL ignores 3.6e9 and more
constexpr double kGain = 0.9;        // the model must promise this much before NCCL's choice is overruled
constexpr double kBlindGBps = 1.2;   // 10 Gb/s
constexpr std::size_t kUnknown = 2;  // bytes of an element of unknown type: the type that gains least

constexpr Protocol kEveryProtocol[] = {Protocol::Ll, Protocol::Ll128, Protocol::Simple};

/// f(algorithm, protocol) for each entry that NCCL offers.
template <class F>
void forEachOffered(const Table& table, F f) {
  for (int a = 0; a < table.algorithms(); ++a) {
    for (const Protocol p : kEveryProtocol) {
      if (table.offers(static_cast<Algorithm>(a), p)) f(static_cast<Algorithm>(a), p);
    }
  }
}

template <class Wanted>
std::optional<Choice> least(const Table& table, Wanted wanted) {
  std::optional<Choice> best;
  forEachOffered(table, [&](Algorithm a, Protocol p) {
    const float us = table.at(a, p);
    if (wanted(a, p) && us < (best ? best->us : std::numeric_limits<float>::max())) best = Choice{a, p, us};
  });
  return best;
}

/// Makes an entry lose against `own`; leaves one that does already.
void lose(float& cost, float own) noexcept {
  if (cost > own || own >= kMost) return;
  cost = std::min(own * 1.25F + 1, kMost);
}

bool worthIt(const Settings& settings, const Group& group, const Call& call, double us, float own) noexcept {
  if (call.func != Func::AllReduce || settings.mode == Mode::Off || call.bytes <= settings.minBytes) return false;
  if (standingOf(settings, group) != Standing::Named) return false;
  if (settings.mode == Mode::Always) return true;
  return settings.bits <= 8 && us < kGain * static_cast<double>(own);
}

}  // namespace

bool isCollnet(Algorithm algorithm) noexcept {
  return algorithm == Algorithm::CollnetDirect || algorithm == Algorithm::CollnetChain || algorithm == Algorithm::Nvls;
}

std::optional<Choice> cheapest(const Table& table) noexcept {
  if (!table.known()) return std::nullopt;
  return least(table, [](Algorithm, Protocol) { return true; });
}

void steer(const Settings& settings, const Group& group, const Call& call, const Table& table) noexcept {
  const int func = static_cast<int>(call.func);
  if (!table.known() || group.nodes < 2 || group.ranks < group.nodes || func < 0 ||
      func > static_cast<int>(Func::AllReduce))
    return;
  auto own = least(table, [](Algorithm a, Protocol p) { return !isCollnet(a) && p != Protocol::Ll128; });
  if (own) {
    forEachOffered(table, [&](Algorithm a, Protocol p) {
      if (p == Protocol::Ll128 && !isCollnet(a)) lose(table.at(a, p), own->us);
    });
  } else {
    own = least(table, [](Algorithm a, Protocol) { return !isCollnet(a); });
  }
  const auto ours = least(table, [](Algorithm a, Protocol) { return isCollnet(a); });
  if (!own || !ours) return;  // nothing to choose between

  const double us = collnetUs(settings, group, call.bytes, kUnknown, linkGBpsOf(table, group, call));
  const bool wins = worthIt(settings, group, call, us, own->us);
  forEachOffered(table, [&](Algorithm a, Protocol p) {
    if (isCollnet(a)) lose(table.at(a, p), own->us);
  });
  // Of several ways into collnet the one that NCCL finds cheapest: they differ only in what happens inside a node.
  const float most = std::min(own->us * static_cast<float>(kGain), kMost);
  if (wins) table.at(ours->algorithm, ours->protocol) = static_cast<float>(std::min(us, static_cast<double>(most)));
}

std::optional<Choice> chooseBlind(const Settings& settings, const Group& group, const Call& call,
                                  bool collnetOffered) noexcept {
  if (!collnetOffered || group.nodes < 2 || group.ranks < group.nodes) return std::nullopt;
  float costs[kAlgorithms][kProtocols];
  const Table table(&costs[0][0], kAlgorithms, kProtocols);
  if (call.func == Func::AllReduce) {
    estimateNccl(group, call.bytes, call.pipeOps, kBlindGBps, true, costs);
    steer(settings, group, call, table);
    return cheapest(table);
  }
  if (call.func != Func::AllGather && call.func != Func::ReduceScatter) return std::nullopt;
  // Each is half of a ring's all-reduce, so the same protocol is the faster one.
  estimateNccl(group, call.bytes, call.pipeOps, kBlindGBps, false, costs);
  return least(table, [](Algorithm a, Protocol) { return a == Algorithm::Ring; });
}

}  // namespace cgx::tuner
