#include "doctor/ranks.h"

#include <algorithm>
#include <utility>

#include "doctor/reach.h"

namespace cgx::tool::doctor {
namespace {

/// What cannot be read comes from another version of this tool, which is worth an error: nothing can be compared.
template <class T>
Result<std::vector<std::optional<T>>> exchange(Rendezvous& rendezvous, const T& mine) {
  Result<std::vector<std::string>> texts = rendezvous.allGather(encode(mine));
  if (!texts.ok()) return std::move(texts).status();
  std::vector<std::optional<T>> all;
  for (std::size_t i = 0; i < texts->size(); ++i) {
    all.emplace_back();
    if (texts.value()[i].empty()) continue;
    T one;
    if (Status read = decode(texts.value()[i], &one); !read.ok())
      return std::move(read).within("rank " + std::to_string(i));
    all.back() = std::move(one);
  }
  return all;
}

}  // namespace

Result<Gathered> takePart(Rendezvous& rendezvous, int rank, Facts facts, const Lookup& lookup, double reachSeconds) {
  Settings settings = facts.settings;
  settings.connectTimeout = reachSeconds;
  Result<Doors> doors = Doors::open(settings);
  Card mine = cardOf(facts, lookup);
  if (doors.ok()) mine.doors = doors->doors();

  Gathered all;
  auto cards = exchange(rendezvous, mine);
  if (!cards.ok()) return std::move(cards).status();
  all.cards = std::move(cards).value();
  all.names = rankNames(all.cards);

  if (facts.nodes == 0) facts.nodes = nodesOf(all.cards);
  Findings found{diagnose(facts), {}};
  std::vector<int> first = firstOfEachNode(all.cards);
  const bool tries = std::erase(first, rank) > 0;
  if (tries && doors.ok()) found.unreached = doors->visit(all.cards, first);
  if (!doors.ok() && !facts.devices.empty())  // without any, that has been said
    found.checks.push_back(problem("listen", doors.status().text(), "free a port, or set another CGX_PORT_RANGE"));

  // Doors stay open until everybody has tried.
  auto findings = exchange(rendezvous, found);
  if (!findings.ok()) return std::move(findings).status();
  all.findings = std::move(findings).value();
  return all;
}

std::vector<std::string> rankNames(const std::vector<std::optional<Card>>& cards) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < cards.size(); ++i)
    names.push_back("rank " + std::to_string(i) + (cards[i] ? " on " + cards[i]->host : ""));
  return names;
}

Report merge(const Gathered& all) {
  Report report;
  for (std::size_t i = 0; i < all.findings.size(); ++i)
    if (all.findings[i]) report.witnesses.push_back({all.names[i], all.findings[i]->checks});
  report.together = compare(all);
  return report;
}

}  // namespace cgx::tool::doctor
