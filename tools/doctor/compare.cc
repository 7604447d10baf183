#include "doctor/compare.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "cgx/collective.h"

namespace cgx::tool::doctor {
namespace {

constexpr std::size_t kMostNames = 8;

using Tell = std::function<std::string(const Card&)>;

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMostNames ? out + " and " + std::to_string(names.size() - kMostNames) + " more" : out;
}

std::map<std::string, std::vector<std::string>> byValue(const Gathered& all, const Tell& tell) {
  std::map<std::string, std::vector<std::string>> names;
  for (std::size_t i = 0; i < all.cards.size(); ++i)
    if (all.cards[i]) names[tell(*all.cards[i])].push_back(all.names[i]);
  return names;
}

/// "CGX_BITS: 4 (rank 0 on a), 8 (rank 1 on b)"; empty when all say the same.
std::string difference(const Gathered& all, const std::string& what, const Tell& tell) {
  const auto names = byValue(all, tell);
  if (names.size() < 2) return {};
  std::string out;
  for (const auto& [value, who] : names)
    out += (out.empty() ? what + ": " : ", ") + (value.empty() ? "none" : value) + " (" + listed(who) + ")";
  return out;
}

void append(std::string* text, const std::string& more) {
  if (!more.empty()) *text += (text->empty() ? "" : "; ") + more;
}

std::string valueIn(const std::map<std::string, std::string>& values, const std::string& name) {
  const auto found = values.find(name);
  return found == values.end() ? "" : found->second;
}

std::string settingDifference(const Gathered& all, const std::string& name) {
  return difference(all, name, [&](const Card& card) { return valueIn(card.settings, name); });
}

Check compareHosts(const Gathered& all) {
  std::map<std::string, std::size_t> ranks;
  std::vector<std::string> order;
  std::size_t count = 0;
  for (const auto& card : all.cards) {
    if (!card) continue;
    ++count;
    if (ranks[card->identity]++ == 0) order.push_back(card->host);
  }
  return ok("together",
            std::to_string(count) + " took part, on " + std::to_string(order.size()) + " host(s): " + listed(order));
}

Check compareLibraries(const Gathered& all) {
  const std::string text = difference(all, "plugin", [](const Card& card) {
    return card.library.empty() ? "" : card.build.empty() ? card.library : "build " + card.build;
  });
  if (text.empty()) return ok("same library", "the same file everywhere");
  return problem("same library", text, "install the same libnccl-net-cgx.so on all hosts");
}

Check compareNccl(const Gathered& all) {
  const std::string text = difference(all, "NCCL", [](const Card& card) { return card.nccl; });
  if (text.empty()) return ok("same NCCL", "the same version everywhere");
  return problem("same NCCL", text, "use one version: NCCL refuses mixed ones, and activation differs between them");
}

/// What decides how an operation is cut, or whether it is compressed at all: the plugin's connect refuses differences.
std::string refused(const Gathered& all) {
  const int nodes = std::max(2, nodesOf(all.cards));
  std::string text;
  const std::string blocks = difference(all, "block length", [&](const Card& card) {
    Settings settings;
    settings.staging = card.staging;
    settings.blockElements = card.blockElements;
    return std::to_string(collective::stagingBytes(settings, nodes));
  });
  if (!blocks.empty()) {
    append(&text, settingDifference(all, "CGX_STAGING"));
    append(&text, settingDifference(all, "CGX_BLOCK_ELEMENTS"));
  }
  for (const char* name : {"CGX_ONE_PHASE_BYTES", "CGX_MODE", "CGX_COMMS"}) append(&text, settingDifference(all, name));
  const auto first =
      std::find_if(all.cards.begin(), all.cards.end(), [](const auto& card) { return card.has_value(); });
  if (first != all.cards.end() && valueIn((*first)->settings, "CGX_MODE") == "auto")
    for (const char* name : {"CGX_BITS", "CGX_MIN_BYTES"}) append(&text, settingDifference(all, name));
  return text;
}

Check compareSettings(const Gathered& all) {
  const std::string name = "same settings";
  if (const std::string text = refused(all); !text.empty())
    return problem(name, text + ": no communicator will be compressed", "set them alike on all ranks");
  std::string sums;
  for (const char* setting : {"CGX_BITS", "CGX_ROUNDING", "CGX_MIN_BYTES"})
    append(&sums, settingDifference(all, setting));
  if (!sums.empty())
    return problem(name, sums + ": every rank gets the same sums, but this is hardly meant",
                   "set them alike on all ranks");
  std::set<std::string> names;
  for (const auto& card : all.cards)
    if (card)
      for (const auto& [setting, value] : card->settings) names.insert(setting);
  std::string others;
  for (const std::string& setting : names) append(&others, settingDifference(all, setting));
  if (!others.empty()) return note(name, others + "; harmless where it is meant");
  return ok(name, "the same everywhere");
}

Check compareLimits(const Gathered& all) {
  const int nodes = nodesOf(all.cards);
  for (std::size_t i = 0; i < all.cards.size(); ++i)
    if (all.cards[i] && nodes > all.cards[i]->maxRanks)
      return problem("nodes",
                     std::to_string(nodes) + " nodes are more than CGX_MAX_RANKS = " +
                         std::to_string(all.cards[i]->maxRanks) + " (" + all.names[i] + ")",
                     "raise CGX_MAX_RANKS on all ranks");
  if (nodes < 2) return note("nodes", "all on one host, where NCCL uses no network; nothing would be compressed");
  return ok("nodes", std::to_string(nodes) + ", within CGX_MAX_RANKS");
}

Check compareVariables(const Gathered& all) {
  // These say where things are on a host, so they may differ.
  const std::set<std::string> local{"NCCL_SOCKET_IFNAME", "NCCL_NET_PLUGIN", "NCCL_ENV_PLUGIN", "NCCL_TUNER_PLUGIN",
                                    "CUDA_DEVICE_MAX_CONNECTIONS"};
  std::set<std::string> names;
  for (const auto& card : all.cards)
    if (card)
      for (const auto& [variable, value] : card->variables) names.insert(variable);
  std::string text;
  std::string noted;
  for (const std::string& variable : names)
    append(local.contains(variable) ? &noted : &text,
           difference(all, variable, [&](const Card& card) { return valueIn(card.variables, variable); }));
  if (!text.empty())
    return problem("same NCCL_*", text, "set them alike: ranks that choose differently wait for each other for ever");
  if (!noted.empty()) return note("same NCCL_*", noted + "; harmless where it is meant");
  return ok("same NCCL_*", "the same everywhere");
}

Check compareDevices(const Gathered& all) {
  const std::string text =
      difference(all, "usable interfaces", [](const Card& card) { return std::to_string(card.devices); });
  if (text.empty()) return ok("same devices", "as many interfaces everywhere");
  return problem("same devices", text + ": NCCL gives up where ranks have different numbers of them",
                 "name the interfaces in NCCL_SOCKET_IFNAME so that each host has as many");
}

Check compareWorld(const Gathered& all) {
  const std::string name = "job's size";
  const std::string text = difference(all, "ranks by the launcher (0: none tells)",
                                      [](const Card& card) { return std::to_string(card.worldRanks); });
  const std::string comms = settingDifference(all, "CGX_COMMS");
  const auto first =
      std::find_if(all.cards.begin(), all.cards.end(), [](const auto& card) { return card.has_value(); });
  if (first == all.cards.end() || !comms.empty() || valueIn((*first)->settings, "CGX_COMMS") != "world")
    return ok(name, "not asked, as CGX_COMMS is not world");
  if (!text.empty()) return problem(name, text, "start all ranks with one launcher, or set CGX_COMMS=all");
  if ((*first)->worldRanks == 0)
    return note(name, "no launcher tells it here; where none does in the job either, CGX_COMMS=all is needed");
  return ok(name, std::to_string((*first)->worldRanks) + " ranks");
}

Check compareReach(const Gathered& all) {
  const std::string name = "reach";
  std::vector<std::string> pairs;
  for (std::size_t i = 0; i < all.findings.size(); ++i) {
    if (!all.findings[i]) continue;
    for (const Unreached& one : all.findings[i]->unreached) {
      const auto to = static_cast<std::size_t>(one.rank);
      if (one.rank >= 0 && to < all.names.size())
        pairs.push_back("from " + all.names[i] + " to " + all.names[to] + " (" + one.device + "): " + one.why);
    }
  }
  const auto nodes = firstOfEachNode(all.cards);
  if (nodes.size() < 2) return note(name, "nobody to reach on another host");
  std::vector<std::string> doorless;
  for (const int rank : nodes)
    if (all.cards[static_cast<std::size_t>(rank)]->doors.empty())
      doorless.push_back(all.names[static_cast<std::size_t>(rank)]);
  if (pairs.empty() && !doorless.empty()) return note(name, "could not be tried with " + listed(doorless));
  if (pairs.empty()) return ok(name, "each host reaches each other on the plugin's interfaces");
  std::string range;
  for (const auto& card : all.cards)
    if (card && range.empty()) range = valueIn(card->settings, "CGX_PORT_RANGE");
  const bool any = range.find('-') == std::string::npos;
  std::string text = std::to_string(pairs.size()) + " way(s) closed: " + pairs.front();
  for (std::size_t i = 1; i < std::min(pairs.size(), kMostNames); ++i) text += "; " + pairs[i];
  return problem(name, text,
                 std::string("let TCP ") + (any ? "connections to any port" : "ports " + range) +
                     " in from these hosts (firewall, security group, network policy)" +
                     (any ? ", or keep the plugin's to a range with CGX_PORT_RANGE=29600-29999" : "") +
                     "; or name the interface that leads there in NCCL_SOCKET_IFNAME");
}

}  // namespace

std::vector<int> firstOfEachNode(const std::vector<std::optional<Card>>& cards) {
  std::set<std::string> seen;
  std::vector<int> ranks;
  for (std::size_t i = 0; i < cards.size(); ++i)
    if (cards[i] && seen.insert(cards[i]->identity).second) ranks.push_back(static_cast<int>(i));
  return ranks;
}

int nodesOf(const std::vector<std::optional<Card>>& cards) { return static_cast<int>(firstOfEachNode(cards).size()); }

std::vector<Check> compare(const Gathered& all) {
  std::vector<Check> checks;
  if (nodesOf(all.cards) == 0) return checks;  // nobody to compare
  for (const auto check : {compareHosts, compareLibraries, compareNccl, compareSettings, compareLimits,
                           compareVariables, compareDevices, compareWorld, compareReach})
    checks.push_back(check(all));
  return checks;
}

}  // namespace cgx::tool::doctor
