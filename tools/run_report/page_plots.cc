// Which plots the page has.
#include <algorithm>
#include <cmath>
#include <limits>

#include "run_report/chart.h"
#include "run_report/page.h"
#include "run_report/timeline.h"

namespace cgx::tool::page {
namespace {

using chart::Axis;
using chart::Curve;
using chart::escaped;
using chart::Plot;

constexpr std::size_t kSpans = 96;  // more would not be seen
constexpr std::size_t kBars = 32;

double of(std::uint64_t value) { return static_cast<double>(value); }

double highestOf(const std::vector<Curve>& curves) {
  double highest = 0;
  for (const Curve& curve : curves)
    for (const double value : curve.values)
      if (value > highest) highest = value;
  return highest;
}

std::string keys(const std::vector<std::pair<std::string, std::string>>& all) {  // class, name
  std::string out = "<div class=\"keys\">";
  for (const auto& [style, name] : all) out += "<span><i class=\"" + style + "\"></i>" + escaped(name) + "</span>";
  return out + "</div>\n";
}

std::string keys(const std::vector<Curve>& curves) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Curve& curve : curves) all.emplace_back(curve.style, curve.name);
  return keys(all);
}

std::string figure(const std::string& title, const std::string& what, const std::string& inside) {
  return "<figure><figcaption>" + escaped(title) + "<span>" + escaped(what) + "</span></figcaption>\n" + inside +
         "</figure>\n";
}

std::string ratioPlot(const WholeRun& run, const Timeline& line) {
  Plot plot{.title = "Ratio over the run",
            .x = chart::clockAxis(line.seconds),
            .y = {},
            .at = line.middles,
            .low = line.lowest,
            .high = line.highest,
            .curves = {{"middle rank", "c1", line.median}}};
  const std::string slowest = "slowest rank, " + std::to_string(run.files[run.slowest].rank);
  std::vector<std::pair<std::string, std::string>> all{{"c1", "middle rank"}};
  if (run.files.size() > 1) {
    plot.curves.push_back({slowest, "c3", line.slowest});
    all.emplace_back("c3", slowest);
    all.emplace_back("band", "all ranks");
  }
  plot.y = chart::axisTo(highestOf({{"", "", line.highest}}), chart::plainText);
  return figure(plot.title, "bytes in exact mode / bytes on the wire", keys(all) + chart::lines(plot));
}

std::string meanPlot(const char* title, const char* what, const Timeline& line, chart::Format format,
                     std::vector<Curve> curves) {
  const Axis y = chart::axisTo(highestOf(curves), format);
  const Plot plot{.title = title,
                  .x = chart::clockAxis(line.seconds),
                  .y = y,
                  .format = format,
                  .at = line.middles,
                  .low = {},
                  .high = {},
                  .curves = std::move(curves)};
  return figure(title, what, keys(plot.curves) + chart::lines(plot));
}

}  // namespace

std::string timePlots(const WholeRun& run) {
  const Timeline line = timelineOf(run, kSpans);
  if (line.middles.size() < 2) {
    return "<p class=\"soft\">The files hold one moment only, so there is nothing to draw over time. With "
           "CGX_STATS_INTERVAL=10 a job adds one every ten seconds.</p>\n";
  }
  std::string error;
  if (run.all.sampledTiles > 0)
    error = meanPlot("Error", "NMSE of one quantisation, by samples of all ranks' contributions", line,
                     chart::plainText, {{"NMSE", "c3", line.nmse}});
  return "<div class=\"plots\">\n" + ratioPlot(run, line) +
         meanPlot("Time in the codec", "seconds of worker time a second, mean of all ranks", line, chart::plainText,
                  {{"encode", "c1", line.encode}, {"reduce", "c2", line.reduce}, {"decode", "c3", line.decode}}) +
         meanPlot("Time on the wire", "seconds in which messages were under way, a second, mean of all ranks", line,
                  chart::plainText, {{"messages under way", "c4", line.wire}}) +
         meanPlot("Throughput", "bytes a second, mean of all ranks", line, chart::bytesText,
                  {{"in", "c1", line.inputBytes}, {"on the wire", "c4", line.wireBytes}}) +
         meanPlot("Calls", "collective calls a second, mean of all ranks", line, chart::plainText,
                  {{"calls", "c1", line.operations}}) +
         error + "</div>\n";
}

std::string sizePlots(const WholeRun& run) {
  if (run.sizes.empty()) return "";
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::string> names;
  Curve ratio{"ratio", "c1", {}};
  Curve time{"mean time", "c3", {}};
  Plot plot{.title = "Ratio by size", .x = {}, .y = {}, .at = {}, .low = {}, .high = {}, .curves = {}};
  double shortest = std::numeric_limits<double>::infinity();
  double longest = 0;
  for (const auto& [upTo, size] : run.sizes) {
    plot.at.push_back(of(names.size()));
    names.push_back(sizeName(upTo));
    ratio.values.push_back(size.wireBytes == 0 ? kNone : size.exactBytes / of(size.wireBytes));
    const double mean = size.operations == 0 ? 0 : of(size.ns) / of(size.operations) / 1e9;
    time.values.push_back(mean > 0 ? mean : kNone);
    if (mean > 0) shortest = std::min(shortest, mean);
    longest = std::max(longest, mean);
  }
  plot.x = chart::namesAxis(names);
  plot.y = chart::axisTo(highestOf({ratio}), chart::plainText);
  plot.curves = {ratio};
  const std::string first = figure(
      plot.title, "all-reduces of at most so many bytes; small ones travel exact to all ranks at once, hence below 1",
      chart::columns(plot));
  plot.title = "Time by size";
  plot.format = chart::secondsText;
  plot.y = chart::decadesOf(shortest, longest, chart::secondsText);
  plot.curves = {time};
  return "<div class=\"plots\">\n" + first +
         figure(plot.title, "mean from call to end; each rule is a power of ten", chart::lines(plot)) + "</div>\n";
}

std::string rankPlots(const WholeRun& run) {
  std::vector<const RunFile*> files;
  for (const RunFile& file : run.files) files.push_back(&file);
  std::string note;
  if (files.size() > kBars) {
    std::stable_sort(files.begin(), files.end(), [](const RunFile* a, const RunFile* b) {
      return a->sums.codecSeconds() > b->sums.codecSeconds();
    });
    note =
        "; the " + std::to_string(kBars) + " ranks of " + std::to_string(files.size()) + " with most time in the codec";
    files.resize(kBars);
    std::stable_sort(files.begin(), files.end(), [](const RunFile* a, const RunFile* b) { return a->rank < b->rank; });
  }
  std::vector<chart::Bar> codec;
  std::vector<chart::Bar> wire;
  for (const RunFile* file : files) {
    const RunSums& s = file->sums;
    const std::string name = "rank " + std::to_string(file->rank);
    codec.push_back({name, {of(s.encodeNs) / 1e9, of(s.reduceNs) / 1e9, of(s.decodeNs) / 1e9}});
    wire.push_back({name, {of(s.wireNs) / 1e9}});
  }
  const std::vector<Curve> stages{{"encode", "c1", {}}, {"reduce", "c2", {}}, {"decode", "c3", {}}};
  const std::vector<Curve> sent{{"messages under way", "c4", {}}};
  return "<div class=\"plots\">\n" +
         figure("Codec", "worker time, added up over threads" + note,
                keys(stages) + chart::bars("Codec time by rank", codec, stages, chart::secondsText)) +
         figure("Wire", "from handing a message to the transport until it has been sent, added up over messages" + note,
                keys(sent) + chart::bars("Wire time by rank", wire, sent, chart::secondsText)) +
         "</div>\n";
}

}  // namespace cgx::tool::page
