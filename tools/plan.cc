#include "plan.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cgx/codec.h"
#include "perf_options.h"
#include "sizes.h"

namespace cgx::tool {
namespace {

constexpr int kBad = 2;
constexpr std::size_t kMaxRanks = 1024;
constexpr std::size_t kLargest = std::size_t{1} << 36;  // larger ones take hours on slow links, more than NCCL counts

constexpr const char* kFooter = R"(
ring and tree: NCCL's own estimate (restated from its tuning.cc), the better of its protocols, for GPUs without NVLink. cgx: this
plugin's cost model for the type given. choice: what NCCL takes once the tuner has had its say; the tuner is not told the type and
reckons with 2 bytes an element. All in NCCL's microseconds, which leave out what sockets add to small messages. CGX_* variables
count as they would in the job; the communicator is taken to be one that CGX_COMMS means.)";

const char* nameOfAlgorithm(tuner::Algorithm algorithm) {
  static constexpr const char* kNames[] = {"tree",      "ring", "collnet direct", "collnet chain", "nvls",
                                           "nvls tree", "pat"};
  return kNames[static_cast<int>(algorithm)];
}
const char* nameOfProtocol(tuner::Protocol protocol) {
  static constexpr const char* kNames[] = {"LL", "LL128", "Simple"};
  return kNames[static_cast<int>(protocol)];
}

/// NCCL's table for one size, and what becomes of it.
struct Reckoned {
  Reckoned(const Plan& plan, std::size_t bytes) {
    tuner::estimateNccl(plan.group, bytes, 1, plan.linkGBps, true, costs);
    ring = least(tuner::Algorithm::Ring);
    tree = least(tuner::Algorithm::Tree);
    link = tuner::linkGBpsOf(table, plan.group, {.bytes = bytes});
    tuner::steer(plan.settings, plan.group, {.bytes = bytes}, table);
    choice = tuner::cheapest(table).value_or(tuner::Choice{});
  }
  double least(tuner::Algorithm algorithm) const {
    double best = -1;
    for (const float cost : costs[static_cast<int>(algorithm)])
      if (cost >= 0 && (best < 0 || static_cast<double>(cost) < best)) best = static_cast<double>(cost);
    return best;
  }
  float costs[tuner::kAlgorithms][tuner::kProtocols];
  tuner::Table table{&costs[0][0], tuner::kAlgorithms, tuner::kProtocols};
  double ring = 0;
  double tree = 0;
  double link = 0;
  tuner::Choice choice;
};

bool goesToCollnet(const Plan& plan, std::size_t bytes) {
  return tuner::isCollnet(Reckoned(plan, bytes).choice.algorithm);
}

/// By doubling, then by halving the gap: a choice that has gone to collnet stays there as sizes grow.
std::optional<std::size_t> crossoverOf(const Plan& plan) {
  std::size_t above = 1;
  while (!goesToCollnet(plan, above)) {
    above *= 2;
    if (above > kLargest) return std::nullopt;
  }
  std::size_t below = above / 2;
  while (above - below > 1) {
    const std::size_t middle = below + (above - below) / 2;
    (goesToCollnet(plan, middle) ? above : below) = middle;
  }
  return above;
}

Result<Settings> settingsFor(const PlanOptions& options, std::size_t ranks, const Lookup& lookup) {
  Settings settings;
  CGX_TRY(load(settings, lookup));
  if (options.bits != 0) settings.bits = options.bits;
  settings.comms = Comms::All;
  settings.worldRanks = static_cast<int>(ranks);
  return settings;
}

std::string choiceText(const tuner::Choice& choice) {
  const std::string name = nameOfAlgorithm(choice.algorithm);
  return tuner::isCollnet(choice.algorithm) ? name : name + " " + nameOfProtocol(choice.protocol);
}

void print(const Plan& plan, const PlanOptions& options) {
  std::printf("# cgx plan %s: %zu ranks on %zu nodes, links of %.4g Gb/s (NCCL counts %.4g), %d bits, %s\n",
              CGX_VERSION, plan.group.ranks, plan.group.nodes, plan.linkGBps * 8, plan.ncclLinkGBps * 8,
              plan.settings.bits, options.dtype.c_str());
  std::printf("#%12s %14s %14s %14s %7s  %s\n", "bytes", "ring", "tree", "cgx", "gain", "choice");
  std::printf("#%12s %14s %14s %14s\n", "(B)", "(us)", "(us)", "(us)");
  for (const PlanRow& row : plan.rows)
    std::printf("%13zu %14.1f %14.1f %14.1f %7.2f  %s\n", row.bytes, row.ringUs, row.treeUs, row.oursUs,
                std::min(row.ringUs, row.treeUs) / row.oursUs, choiceText(row.choice).c_str());
  if (plan.crossover)
    std::printf("# crossover: collnet from %zu bytes on\n", *plan.crossover);
  else
    std::printf("# crossover: none, NCCL's own algorithms at every size\n");
}

Status writeJson(const std::string& path, const Plan& plan, const std::string& dtype) {
  using Json = nlohmann::ordered_json;
  Json whole;
  whole["ranks"] = plan.group.ranks;
  whole["nodes"] = plan.group.nodes;
  whole["link_GBps"] = plan.linkGBps;
  whole["nccl_link_GBps"] = plan.ncclLinkGBps;
  whole["bits"] = plan.settings.bits;
  whole["dtype"] = dtype;
  whole["crossover_bytes"] = plan.crossover ? Json(*plan.crossover) : Json(nullptr);
  whole["results"] = Json::array();
  for (const PlanRow& row : plan.rows) {
    Json one;
    one["bytes"] = row.bytes;
    one["ring_us"] = row.ringUs;
    one["tree_us"] = row.treeUs;
    one["cgx_us"] = row.oursUs;
    one["algorithm"] = nameOfAlgorithm(row.choice.algorithm);
    one["protocol"] = nameOfProtocol(row.choice.protocol);
    one["collnet"] = tuner::isCollnet(row.choice.algorithm);
    whole["results"].push_back(std::move(one));
  }
  std::ofstream file(path);
  file << whole.dump(2) << "\n";
  file.flush();
  return file ? Status() : Status::system("writing " + path, errno);
}

}  // namespace

void addPlanFlags(CLI::App& command, PlanOptions* options) {
  PlanOptions& o = *options;
  command.footer(kFooter);
  command.add_option("--ranks", o.ranks, "GPUs in the communicator")
      ->check(CLI::Range(std::size_t{2}, kMaxRanks))
      ->capture_default_str();
  command.add_option("--nodes", o.nodes, "Hosts that they are on (default: one GPU a host)")
      ->check(CLI::Range(std::size_t{2}, kMaxRanks));
  command.add_option("--link", o.link, "Speed of a host's network in bits a second: 25G, 2.5G, 1000M")
      ->type_name("SPEED")
      ->capture_default_str();
  command.add_option("--bits", o.bits, "Bits of a code: 1 to 8, or 32 for exact (default: CGX_BITS)")
      ->check(CLI::Range(1, 8) | CLI::IsMember({32}));
  command.add_option("--sizes", o.sizes, "Sizes in bytes: 1K:256M:x2, 1M:8M:+1M or 64K,1M")
      ->type_name("SIZES")
      ->capture_default_str();
  command.add_option("--dtype", o.dtype, "fp32, fp16 or bf16")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}))
      ->capture_default_str();
  command.add_option("--json", o.json, "Also write the plan to this file")->type_name("FILE");
}

Result<double> parseLinkSpeed(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  const std::string unit(stop, end);
  const std::string tail = unit.empty() ? unit : unit.substr(1);
  const double scale = unit.empty() ? 0 : unit[0] == 'G' ? 1 : unit[0] == 'M' ? 1e-3 : 0;
  const double gigabits = value * scale;
  const bool good = error == std::errc() && (tail.empty() || tail == "b/s" || tail == "bps" || tail == "bit");
  if (!good || !(gigabits >= 0.001 && gigabits <= 100'000))
    return Status::invalid("--link: \"" + text + "\" is no speed; accepted: 25G, 2.5G, 1000M (bits a second)");
  return gigabits / 8;
}

Result<Plan> makePlan(const PlanOptions& options, const Lookup& lookup) {
  Plan plan;
  plan.group = {.ranks = options.ranks, .nodes = options.nodes == 0 ? options.ranks : options.nodes};
  if (plan.group.nodes > plan.group.ranks || plan.group.ranks % plan.group.nodes != 0)
    return Status::invalid(std::to_string(plan.group.ranks) + " ranks do not fill " + std::to_string(plan.group.nodes) +
                           " nodes evenly");
  const codec::DType* dtype = dtypeByName(options.dtype);
  if (dtype == nullptr) return Status::invalid("--dtype " + options.dtype + " is not one of fp32, fp16, bf16");
  plan.elementBytes = codec::bytesOf(*dtype);
  Result<double> link = parseLinkSpeed(options.link);
  if (!link.ok()) return link.status();
  plan.linkGBps = link.value();
  Result<Settings> settings = settingsFor(options, plan.group.ranks, lookup);
  if (!settings.ok()) return settings.status();
  plan.settings = std::move(settings).value();
  Result<std::vector<std::size_t>> sizes = parseSizes(options.sizes);
  if (!sizes.ok()) return sizes.status();
  plan.ncclLinkGBps = Reckoned(plan, kLargest).link;
  for (const std::size_t bytes : sizes.value()) {
    const Reckoned reckoned(plan, bytes);
    const double ours = tuner::collnetUs(plan.settings, plan.group, bytes, plan.elementBytes, plan.ncclLinkGBps);
    plan.rows.push_back({bytes, reckoned.ring, reckoned.tree, ours, reckoned.choice});
  }
  plan.crossover = crossoverOf(plan);
  return plan;
}

int plan(const PlanOptions& options, const Lookup& lookup) {
  const Result<Plan> made = makePlan(options, lookup);
  Status status = made.ok() ? Status() : made.status();
  if (made.ok()) {
    print(made.value(), options);
    if (!options.json.empty()) status = writeJson(options.json, made.value(), options.dtype);
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "cgx plan: %s\n", status.text().c_str());
  return kBad;
}

}  // namespace cgx::tool
