#include "run_report/timeline.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace cgx::tool {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// What a rank counted in a span.
struct Span {
  double operations = 0;
  double exactBytes = 0;
  double wireBytes = 0;
  double inputBytes = 0;
  double encode = 0;  // seconds
  double reduce = 0;
  double decode = 0;
  double wire = 0;
  double sampledTiles = 0;
  double errorSquares = 0;
  double valueSquares = 0;

  Span& operator+=(const Span& other) {
    operations += other.operations;
    exactBytes += other.exactBytes;
    wireBytes += other.wireBytes;
    inputBytes += other.inputBytes;
    encode += other.encode;
    reduce += other.reduce;
    decode += other.decode;
    wire += other.wire;
    sampledTiles += other.sampledTiles;
    errorSquares += other.errorSquares;
    valueSquares += other.valueSquares;
    return *this;
  }
};

/// Adds `share` of what was counted between two samples.
void add(Span& span, const RunSums& from, const RunSums& to, double share) {
  const auto part = [share](std::uint64_t before, std::uint64_t after) {
    return share * static_cast<double>(after - before);
  };
  span.operations += part(from.operations, to.operations);
  span.exactBytes += part(from.exactBytes, to.exactBytes);
  span.wireBytes += part(from.wireBytes, to.wireBytes);
  span.inputBytes += part(from.inputBytes, to.inputBytes);
  span.encode += part(from.encodeNs, to.encodeNs) / 1e9;
  span.reduce += part(from.reduceNs, to.reduceNs) / 1e9;
  span.decode += part(from.decodeNs, to.decodeNs) / 1e9;
  span.wire += part(from.wireNs, to.wireNs) / 1e9;
  if (to.sampledTiles <= from.sampledTiles) return;
  span.sampledTiles += part(from.sampledTiles, to.sampledTiles);
  // Sums of fractions: their order may change, so a last digit may go back.
  span.errorSquares += share * std::max(0.0, to.errorSquares - from.errorSquares);
  span.valueSquares += share * std::max(0.0, to.valueSquares - from.valueSquares);
}

/// Adds what the rank counted in [from, to) milliseconds.
void add(Span& span, const RunFile& file, double from, double to) {
  RunSample before;
  for (const RunSample& sample : file.series) {
    const double begin = static_cast<double>(before.milliseconds);
    const double end = static_cast<double>(sample.milliseconds);
    const double both = std::min(end, to) - std::max(begin, from);
    // What stands at the very start took no time.
    const double share = end > begin ? std::max(0.0, both) / (end - begin) : (from <= end && end < to ? 1 : 0);
    if (share > 0) add(span, before.sums, sample.sums, share);
    before = sample;
  }
}

double ratioOf(const Span& span) { return span.wireBytes > 0 ? span.exactBytes / span.wireBytes : kNone; }

void addRatios(Timeline& line, Values ratios) {
  std::erase_if(ratios, [](double ratio) { return std::isnan(ratio); });
  std::sort(ratios.begin(), ratios.end());
  const bool none = ratios.empty();
  line.lowest.push_back(none ? kNone : ratios.front());
  line.median.push_back(none ? kNone : ratios[ratios.size() / 2]);
  line.highest.push_back(none ? kNone : ratios.back());
}

}  // namespace

Timeline timelineOf(const WholeRun& run, std::size_t most) {
  std::size_t samples = 1;
  for (const RunFile& file : run.files) samples = std::max(samples, file.series.size());
  const std::size_t spans = std::min(samples, most);
  Timeline line;
  line.seconds = std::max(1.0, static_cast<double>(run.milliseconds)) / 1e3;
  const double width = line.seconds / static_cast<double>(spans);
  for (std::size_t k = 0; k < spans; ++k) {
    const double from = width * static_cast<double>(k);
    Values ratios;
    Span sum;
    for (std::size_t i = 0; i < run.files.size(); ++i) {
      Span span;
      add(span, run.files[i], from * 1e3, (from + width) * 1e3);
      ratios.push_back(ratioOf(span));
      if (i == run.slowest) line.slowest.push_back(ratios.back());
      sum += span;
    }
    addRatios(line, std::move(ratios));
    line.middles.push_back(from + width / 2);
    line.nmse.push_back(sum.sampledTiles > 0 && sum.valueSquares > 0 ? sum.errorSquares / sum.valueSquares : kNone);
    const double each = 1 / (width * static_cast<double>(run.files.size()));
    line.encode.push_back(sum.encode * each);
    line.reduce.push_back(sum.reduce * each);
    line.decode.push_back(sum.decode * each);
    line.wire.push_back(sum.wire * each);
    line.operations.push_back(sum.operations * each);
    line.inputBytes.push_back(sum.inputBytes * each);
    line.wireBytes.push_back(sum.wireBytes * each);
  }
  return line;
}

}  // namespace cgx::tool
