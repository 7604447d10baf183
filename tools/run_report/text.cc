// The summary for terminals.
#include <algorithm>
#include <cstdarg>
#include <cstdio>

#include "run_report/run.h"

namespace cgx::tool {
namespace {

[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...) {
  char line[400];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(line, sizeof line, format, values);
  va_end(values);
  return line;
}

double of(std::uint64_t value) { return static_cast<double>(value); }

using Count = unsigned long long;

std::string heading(const WholeRun& run) {
  const RunSums& all = run.all;
  std::string out =
      printed("processes   %zu, hosts %zu, %.1f s\n", run.files.size(), run.hosts, of(run.milliseconds) / 1e3);
  out += printed("operations  %llu, of which %llu travelled exact because they are small\n", Count{all.operations},
                 Count{all.smallOperations});
  out += printed("wire        %.6g GB instead of %.6g GB in exact mode: ratio %s\n", of(all.wireBytes) / 1e9,
                 of(all.exactBytes) / 1e9, ratioText(of(all.exactBytes), of(all.wireBytes)).c_str());
  out +=
      printed("time        encode %.3f s, reduce %.3f s, decode %.3f s, wire %.3f s (over all threads and messages)\n",
              of(all.encodeNs) / 1e9, of(all.reduceNs) / 1e9, of(all.decodeNs) / 1e9, of(all.wireNs) / 1e9);
  out += printed(
      "tiles       %llu coded, %llu zero, %llu raw in exact operations, %llu raw as they cannot be coded (%llu with "
      "Inf or NaN), %llu sent whole\n",
      Count{all.codedTiles}, Count{all.zeroTiles}, Count{all.rawTiles - unfitTiles(all)}, Count{unfitTiles(all)},
      Count{all.nonFiniteTiles}, Count{all.wholeTiles});
  out += printed("error       NMSE %s of what ranks contribute, by %llu sampled tiles\n", nmseText(all).c_str(),
                 Count{all.sampledTiles});
  if (run.unlisted > 0)
    out += printed("left out    %llu communicators that closed and are no longer listed\n", Count{run.unlisted});
  return out;
}

std::string sizeTable(const WholeRun& run) {
  std::string out = printed("\nall-reduces\n%16s %12s %14s %14s %12s\n", "up to bytes", "operations", "bytes in",
                            "wire bytes", "mean us");
  for (const auto& [upTo, size] : run.sizes) {
    const std::string name = upTo == kAboveAll ? "above" : std::to_string(upTo);
    out += printed("%16s %12llu %14llu %14llu %12.1f\n", name.c_str(), Count{size.operations}, Count{size.inputBytes},
                   Count{size.wireBytes}, size.operations == 0 ? 0 : of(size.ns) / of(size.operations) / 1e3);
  }
  return out;
}

std::string rankTable(const WholeRun& run) {
  std::string out = printed("\n%6s %-24s %12s %14s %8s %11s %11s %9s\n", "rank", "host", "operations", "wire bytes",
                            "ratio", "codec s", "wire s", "NMSE");
  for (const RunFile& file : run.files) {
    const RunSums& s = file.sums;
    out += printed("%6llu %-24s %12llu %14llu %8s %11.3f %11.3f %9s\n", Count{file.rank}, printable(file.host).c_str(),
                   Count{s.operations}, Count{s.wireBytes}, ratioText(of(s.exactBytes), of(s.wireBytes)).c_str(),
                   s.codecSeconds(), of(s.wireNs) / 1e9, nmseText(s).c_str());
  }
  const RunFile& slowest = run.files[run.slowest];
  return out + printed("\nslowest     rank %llu on %s: most time in the codec\n", Count{slowest.rank},
                       printable(slowest.host).c_str());
}

}  // namespace

std::string runText(const WholeRun& run) { return heading(run) + sizeTable(run) + rankTable(run); }

}  // namespace cgx::tool
