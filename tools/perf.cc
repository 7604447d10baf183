#include "perf.h"

#include <unistd.h>

#include <cstdio>

#include "local_ranks.h"
#include "perf_rank.h"
#include "placement.h"
#include "plugin_library.h"

namespace cgx::tool {
namespace {

constexpr int kDefaultRanks = 4;
constexpr int kCannotRun = 2;

int refuse(const std::string& text) {
  std::fprintf(stderr, "cgx perf: %s\n", text.c_str());
  return kCannotRun;
}

/// What would fail in every rank alike is told once, here.
Status rehearse(const PerfOptions& options, int ranks) {
  Result<PluginLibrary> library = PluginLibrary::open(options.plugin);
  if (!library.ok()) return library.status();
  if (library->net() == nullptr || library->collNet() == nullptr)
    return Status::invalid(library->path() +
                           " does not export both ncclNetPlugin_v12 and ncclCollNetPlugin_v12, which cgx perf drives");
  const Result<std::vector<Row>> rows = rowsOf(options, ranks);
  return rows.ok() ? Status() : rows.status();
}

}  // namespace

int perf(const PerfOptions& options, const std::vector<std::string>& arguments, const Lookup& lookup) {
  // Our own launcher passes both kinds of flags to its ranks.
  if (options.rank >= 0 || options.nranks > 0) {
    Result<Placement> placement = placementFromFlags(options.rank, options.nranks, options.root, options.rootFd);
    return placement.ok() ? runRank(options, placement.value()) : refuse(placement.status().text());
  }
  if (options.ranks == 0) {
    Result<std::optional<Placement>> launched = placementFromLauncher(lookup, options.root, ::getppid());
    if (!launched.ok()) return refuse(launched.status().text());
    if (launched.value()) return runRank(options, *launched.value());
    if (!options.root.empty()) return refuse("--root needs --rank and --nranks, or a launcher that tells them");
  }
  const int ranks = options.ranks > 0 ? options.ranks : kDefaultRanks;
  if (Status status = rehearse(options, ranks); !status.ok()) return refuse(status.text());
  return runLocalRanks(arguments, ranks);
}

}  // namespace cgx::tool
