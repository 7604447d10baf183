// The page: numbers first, then plots, then the tables behind them.
#include <algorithm>
#include <cstdio>
#include <ctime>

#include "run_report/chart.h"
#include "run_report/page.h"
#include "run_report/run.h"

namespace cgx::tool {
namespace page {

std::string countText(std::uint64_t value) {
  std::string out = std::to_string(value);
  for (std::size_t at = out.size(); at > 3; at -= 3) out.insert(at - 3, ",");
  return out;
}

std::string sizeName(std::uint64_t upTo) {
  if (upTo == kAboveAll) return "above";
  constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P", "E"};
  std::size_t unit = 0;
  while (upTo >= 1024 && upTo % 1024 == 0) {
    upTo /= 1024;
    ++unit;
  }
  return std::to_string(upTo) + kUnits[unit];
}

}  // namespace page

namespace {

using chart::escaped;
using page::countText;

double of(std::uint64_t value) { return static_cast<double>(value); }

std::string shareText(std::uint64_t part, double whole) {
  if (whole == 0) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.2f %%", of(part) / whole * 100);
  return text;
}

/// 2026-12-01 05:10 UTC; "" where the number is no date of ours.
std::string dateText(std::uint64_t unixSeconds) {
  constexpr std::uint64_t kYear9999 = 253'402'300'799;
  if (unixSeconds == 0 || unixSeconds > kYear9999) return "";
  const auto seconds = static_cast<std::time_t>(unixSeconds);
  std::tm parts{};
  char text[64];
  if (::gmtime_r(&seconds, &parts) == nullptr || std::strftime(text, sizeof text, "%Y-%m-%d %H:%M UTC", &parts) == 0)
    return "";
  return text;
}

std::string tile(const std::string& value, const std::string& what) {
  return "<div><b>" + escaped(value) + "</b><span>" + escaped(what) + "</span></div>\n";
}

std::string counted(std::size_t n, const char* one, const char* many) {
  return countText(n) + " " + (n == 1 ? one : many);
}

std::string heading(const WholeRun& run) {
  std::uint64_t latest = 0;
  for (const RunFile& file : run.files) latest = std::max(latest, file.unixSeconds);
  const std::string date = dateText(latest);
  return "<h1>CGX: what a run sent</h1>\n<p class=\"soft\">" + counted(run.files.size(), "process", "processes") +
         " on " + counted(run.hosts, "host", "hosts") + (date.empty() ? "" : ", last written " + date) + "</p>\n";
}

std::string numbers(const WholeRun& run) {
  const RunSums& all = run.all;
  const RunFile& slowest = run.files[run.slowest];
  std::string out = "<div class=\"numbers\">\n";
  out += tile(ratioText(of(all.exactBytes), of(all.wireBytes)), "ratio: exact mode / this run");
  out += tile(chart::bytesText(of(all.wireBytes)),
              "on the wire instead of " + chart::bytesText(of(all.exactBytes)) + ", all ranks");
  out += tile(countText(all.operations),
              "collective calls, " + countText(all.smallOperations) + " all-reduces exact because small");
  out += tile(chart::secondsText(of(run.milliseconds) / 1e3), "since the first communicator");
  out += tile("rank " + std::to_string(slowest.rank), "slowest: " + chart::secondsText(slowest.sums.codecSeconds()) +
                                                          " in the codec, on " + printable(slowest.host));
  if (all.sampledTiles > 0)
    out += tile(nmseText(all), "NMSE of one quantisation, by " + countText(all.sampledTiles) + " sampled tiles");
  out += tile(countText(unfitTiles(all)), "tiles raw as the codes cannot hold them");
  out += "</div>\n";
  if (run.unlisted > 0)
    out += "<p class=\"warn\">Left out: " + countText(run.unlisted) +
           " communicators that closed and are no longer listed in the files.</p>\n";
  return out;
}

struct Cell {
  std::string text;
  const char* style = nullptr;
};

std::string row(const char* element, const std::vector<Cell>& cells, const char* style = nullptr) {
  std::string out = style == nullptr ? "<tr>" : std::string("<tr class=\"") + style + "\">";
  for (const Cell& cell : cells)
    out += std::string("<") + element + (cell.style == nullptr ? "" : std::string(" class=\"") + cell.style + "\"") +
           ">" + escaped(cell.text) + "</" + element + ">";
  return out + "</tr>\n";
}

std::string table(const std::string& rows) { return "<div class=\"card\"><table>\n" + rows + "</table></div>\n"; }

std::string sizeTable(const WholeRun& run) {
  std::string rows = row("th", {{"at most", "name"}, {"calls"}, {"in"}, {"on the wire"}, {"ratio"}, {"mean time"}});
  for (const auto& [upTo, size] : run.sizes) {
    const double mean = size.operations == 0 ? 0 : of(size.ns) / of(size.operations) / 1e9;
    rows += row("td", {{page::sizeName(upTo), "name"},
                       {countText(size.operations)},
                       {chart::bytesText(of(size.inputBytes))},
                       {chart::bytesText(of(size.wireBytes))},
                       {ratioText(size.exactBytes, of(size.wireBytes))},
                       {chart::secondsText(mean)}});
  }
  return table(rows);
}

std::string tileTable(const RunSums& all) {
  const std::uint64_t unfit = unfitTiles(all);
  const double sum = of(all.codedTiles) + of(all.zeroTiles) + of(all.rawTiles) + of(all.wholeTiles);
  std::string rows = row("th", {{"tiles", "name"}, {"number"}, {"share"}, {"why", "name"}});
  const auto line = [&](const char* name, std::uint64_t value, const char* why, const char* style = nullptr) {
    rows += row("td", {{name, "name"}, {countText(value)}, {shareText(value, sum)}, {why, "why"}}, style);
  };
  line("coded", all.codedTiles, "512 elements each, sent as codes");
  line("zero", all.zeroTiles, "every element is 0: a byte is enough");
  line("exact", all.rawTiles - unfit, "in operations that travel exact: at most CGX_MIN_BYTES, or CGX_BITS=32");
  const std::uint64_t nonFinite = std::min(all.nonFiniteTiles, unfit);
  line("not finite", nonFinite, "raw: an Inf or a NaN in the tile; look at the loss scale",
       nonFinite > 0 ? "marked" : nullptr);
  line("too wide", unfit - nonFinite, "raw: magnitudes too small, or too far apart within a tile, for the codes");
  line("whole", all.wholeTiles, "would do as codes, in messages where codes were not smaller");
  return table(rows);
}

std::string groupTable(const WholeRun& run) {
  constexpr std::size_t kMost = 50;
  std::string rows =
      row("th", {{"ranks", "name"}, {"bits"}, {"communicators"}, {"calls"}, {"on the wire"}, {"ratio"}, {"NMSE"}});
  std::size_t left = kMost;
  for (const auto& [shape, group] : run.groups) {
    if (left-- == 0) break;
    rows += row("td", {{std::to_string(shape.first), "name"},
                       {shape.second == 32 ? "exact" : std::to_string(shape.second)},
                       {countText(group.communicators)},
                       {countText(group.sums.operations)},
                       {chart::bytesText(of(group.sums.wireBytes))},
                       {ratioText(of(group.sums.exactBytes), of(group.sums.wireBytes))},
                       {nmseText(group.sums)}});
  }
  return table(rows);
}

std::string rankTable(const WholeRun& run) {
  std::string rows = row("th", {{"rank", "name"},
                                {"host", "name"},
                                {"calls"},
                                {"on the wire"},
                                {"ratio"},
                                {"encode"},
                                {"reduce"},
                                {"decode"},
                                {"wire"},
                                {"raw tiles"},
                                {"NMSE"}});
  for (std::size_t i = 0; i < run.files.size(); ++i) {
    const RunFile& file = run.files[i];
    const RunSums& s = file.sums;
    const auto time = [](std::uint64_t ns) { return chart::secondsText(of(ns) / 1e9); };
    rows += row("td",
                {{std::to_string(file.rank), "name"},
                 {printable(file.host), "name"},
                 {countText(s.operations)},
                 {chart::bytesText(of(s.wireBytes))},
                 {ratioText(of(s.exactBytes), of(s.wireBytes))},
                 {time(s.encodeNs)},
                 {time(s.reduceNs)},
                 {time(s.decodeNs)},
                 {time(s.wireNs)},
                 {countText(unfitTiles(s))},
                 {nmseText(s)}},
                i == run.slowest ? "marked" : nullptr);
  }
  return table(rows);
}

std::string section(const char* title, const std::string& inside) {
  return std::string("<section>\n<h2>") + title + "</h2>\n" + inside + "</section>\n";
}

}  // namespace

std::string runHtml(const WholeRun& run) {
  return std::string(
             "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" ") +
         "content=\"width=device-width, initial-scale=1\"/>\n<title>CGX run report</title>\n<style>" + page::kStyle +
         "</style>\n</head>\n<body>\n" + heading(run) + numbers(run) + section("Over the run", page::timePlots(run)) +
         section("All-reduces by size", page::sizePlots(run) + sizeTable(run)) +
         section("By rank", page::rankPlots(run) + rankTable(run)) +
         section("Tiles: what was sent as codes, and what was not", tileTable(run.all)) +
         section("Communicators", groupTable(run)) +
         "<p class=\"soft\">Time adds up over threads and messages, so it may exceed the time that passed. Each rank's "
         "time begins with its first communicator. The row in bold is the rank with most time in the codec.</p>\n"
         "</body>\n</html>\n";
}

}  // namespace cgx::tool
