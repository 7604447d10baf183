#include "run_report/run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <tuple>

namespace cgx::tool {

Result<WholeRun> gatherRun(std::vector<RunFile> files) {
  if (files.empty()) return Status::invalid("no statistics files");
  const auto process = [](const RunFile& f) { return std::tie(f.host, f.pid); };
  std::sort(files.begin(), files.end(), [](const RunFile& a, const RunFile& b) {
    return std::tie(a.rank, a.host, a.pid) < std::tie(b.rank, b.host, b.pid);
  });
  std::set<std::pair<std::string, std::uint64_t>> seen;
  for (const RunFile& file : files) {
    if (seen.emplace(file.host, file.pid).second) continue;
    const auto first =
        std::find_if(files.begin(), files.end(), [&](const RunFile& other) { return process(other) == process(file); });
    return Status::invalid(printable(first->path) + " and " + printable(file.path) + " are of the same process");
  }
  WholeRun run;
  std::set<std::string> hosts;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const RunFile& file = files[i];
    run.all += file.sums;
    for (const auto& [upTo, size] : file.sizes) run.sizes[upTo] += size;
    for (const auto& [shape, group] : file.groups) {
      run.groups[shape].communicators += group.communicators;
      run.groups[shape].sums += group.sums;
    }
    if (file.sums.codecSeconds() > files[run.slowest].sums.codecSeconds()) run.slowest = i;
    hosts.insert(file.host);
    run.milliseconds = std::max(run.milliseconds, file.milliseconds);
    run.unlisted += file.unlisted;
  }
  run.hosts = hosts.size();
  run.files = std::move(files);
  return run;
}

std::uint64_t unfitTiles(const RunSums& sums) { return sums.rawTiles - std::min(sums.exactTiles, sums.rawTiles); }

std::string ratioText(double exactBytes, double wireBytes) {
  if (wireBytes == 0) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.2f", exactBytes / wireBytes);
  return text;
}

std::string nmseText(const RunSums& sums) {
  const double nmse = sums.nmse();
  if (std::isnan(nmse)) return "-";
  char text[64];
  std::snprintf(text, sizeof text, "%.2e", nmse);
  return text;
}

}  // namespace cgx::tool
