#include "format.h"

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

namespace cgx::statistics {
namespace {

using collective::Counters;
using collective::SizeCounters;

// Host names come from the kernel, where anything is allowed.
std::string escaped(std::string_view text) {
  constexpr const char* kHex = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += std::string("\\u00") + kHex[byte >> 4] + kHex[byte & 15];
    }
  }
  return out;
}

using Field = std::pair<const char*, std::uint64_t>;

std::string fields(std::initializer_list<Field> all) {
  std::string out;
  for (const auto& [name, value] : all)
    out += (out.empty() ? "\"" : ", \"") + std::string(name) + "\": " + std::to_string(value);
  return out;
}

/// The shortest text that reads back as the same number, whatever the locale. `value` is finite.
std::string decimal(double value) {
  std::array<char, 40> text{};
  const std::to_chars_result end = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

std::string errorFields(std::uint64_t tiles, double errorSquares, double valueSquares) {
  return fields({{"sampledTiles", tiles}}) + ", \"errorSquares\": " + decimal(errorSquares) +
         ", \"valueSquares\": " + decimal(valueSquares);
}

std::string sumFields(const Sums& s) {
  return fields({{"operations", s.operations},
                 {"inputBytes", s.inputBytes},
                 {"exactBytes", s.exactBytes},
                 {"wireBytes", s.wireBytes},
                 {"encodeNs", s.encodeNs},
                 {"reduceNs", s.reduceNs},
                 {"decodeNs", s.decodeNs},
                 {"wireNs", s.wireNs}}) +
         ", " + errorFields(s.sampledTiles, s.errorSquares, s.valueSquares);
}

std::string sizesJson(const Counters& c) {
  std::string out;
  for (std::size_t k = 0; k < c.sizes.size(); ++k) {
    const SizeCounters& size = c.sizes[k];
    if (size.operations == 0) continue;
    out += (out.empty() ? "\n      {" : ",\n      {") +
           fields({{"upToBytes", k + 1 == c.sizes.size() ? 0 : std::uint64_t{1024} << k},
                   {"operations", size.operations},
                   {"inputBytes", size.inputBytes},
                   {"wireBytes", size.wireBytes},
                   {"ns", size.nanoseconds}}) +
           "}";
  }
  return out;
}

std::string recordJson(const Record& r) {
  const Counters& c = r.counters;
  return "    {\"id\": " + std::to_string(r.id) + ", \"rank\": " + std::to_string(r.rank) +
         ", \"ranks\": " + std::to_string(r.ranks) + ", \"bits\": " + std::to_string(r.bits) +
         ", \"open\": " + (r.open ? "true" : "false") + ",\n     " +
         fields({{"operations", c.operations},
                 {"allReduces", c.allReduces.operations},
                 {"allGathers", c.allGathers.operations},
                 {"reduceScatters", c.reduceScatters.operations},
                 {"smallOperations", c.smallOperations},
                 {"inputBytes", c.inputBytes},
                 {"exactBytes", exactBytesOf(r)},
                 {"wireBytes", c.wireBytes},
                 {"messages", c.messages}}) +
         ",\n     " +
         fields({{"codedTiles", c.codedTiles},
                 {"zeroTiles", c.zeroTiles},
                 {"rawTiles", c.rawTiles},
                 {"exactTiles", c.exactTiles},
                 {"nonFiniteTiles", c.nonFiniteTiles},
                 {"wholeTiles", c.wholeTiles}}) +
         ",\n     " + errorFields(c.sampledTiles, c.errorSquares, c.valueSquares) + ",\n     " +
         fields({{"encodeNs", c.encodeNs}, {"reduceNs", c.reduceNs}, {"decodeNs", c.decodeNs}, {"wireNs", c.wireNs}}) +
         ",\n     \"sizes\": [" + sizesJson(c) + "]}";
}

/// Nanoseconds as seconds, whatever the locale.
std::string seconds(std::uint64_t ns) {
  std::string rest = std::to_string(ns % 1'000'000'000);
  return std::to_string(ns / 1'000'000'000) + "." + std::string(9 - rest.size(), '0') + rest;
}

/// Two decimals.
std::string ratio(std::uint64_t of, std::uint64_t to) {
  if (to == 0) return "-";
  const auto hundredths = static_cast<std::uint64_t>(static_cast<double>(of) / static_cast<double>(to) * 100 + 0.5);
  return std::to_string(hundredths / 100) + (hundredths % 100 < 10 ? ".0" : ".") + std::to_string(hundredths % 100);
}

/// Three digits, enough to compare; "-" without a sample.
std::string nmse(double errorSquares, double valueSquares) {
  if (!(valueSquares > 0)) return "-";
  std::array<char, 40> text{};
  const std::to_chars_result end = std::to_chars(text.data(), text.data() + text.size(), errorSquares / valueSquares,
                                                 std::chars_format::scientific, 2);
  return {text.data(), end.ptr};
}

/// Metrics with one line a communicator; a family's lines must stand together.
class Families {
 public:
  explicit Families(const Snapshot& snapshot) : snapshot_(snapshot) {}

  void begin(const char* name, const char* help) {
    name_ = name;
    text_ += "# HELP " + name_ + " " + help + "\n# TYPE " + name_ + " counter\n";
  }
  /// `value` of each communicator.
  template <class Value>
  void lines(const std::string& label, Value value) {
    for (const Record& record : snapshot_.records) {
      text_ += name_ + "{host=\"" + prometheusText(snapshot_.host) + "\",rank=\"" + std::to_string(snapshot_.rank) +
               "\",comm=\"" + std::to_string(record.id) + "\"" + (label.empty() ? "" : "," + label) + "} " +
               value(record) + "\n";
    }
  }
  void number(const std::string& label, std::uint64_t Counters::*field) {
    lines(label, [field](const Record& r) { return std::to_string(r.counters.*field); });
  }
  void decimals(double Counters::*field) {
    lines("", [field](const Record& r) { return decimal(r.counters.*field); });
  }
  void time(const char* stage, std::uint64_t Counters::*field) {
    lines(std::string("stage=\"") + stage + "\"", [field](const Record& r) { return seconds(r.counters.*field); });
  }
  std::string take() { return std::move(text_); }

 private:
  // Only these three are escaped in a label.
  static std::string prometheusText(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c == '"' || c == '\\') out += '\\';
      out += c == '\n' ? std::string("\\n") : std::string(1, c);
    }
    return out;
  }

  const Snapshot& snapshot_;
  std::string name_;
  std::string text_;
};

}  // namespace

std::uint64_t exactBytesOf(const Record& record) noexcept {
  const auto ranks = static_cast<std::uint64_t>(record.ranks);
  const Counters& c = record.counters;
  // Divided first: the product of bytes and ranks may not fit.
  const auto share = [ranks](std::uint64_t bytes, std::uint64_t times) {
    return times * (ranks - 1) * (bytes / ranks) + times * (ranks - 1) * (bytes % ranks) / ranks;
  };
  return share(c.allReduces.inputBytes, 2) + share(c.allGathers.inputBytes + c.reduceScatters.inputBytes, 1);
}

void add(Sums& sums, const Record& record) noexcept {
  const Counters& c = record.counters;
  sums.operations += c.operations;
  sums.inputBytes += c.inputBytes;
  sums.exactBytes += exactBytesOf(record);
  sums.wireBytes += c.wireBytes;
  sums.encodeNs += c.encodeNs;
  sums.reduceNs += c.reduceNs;
  sums.decodeNs += c.decodeNs;
  sums.wireNs += c.wireNs;
  sums.sampledTiles += c.sampledTiles;
  sums.errorSquares += c.errorSquares;
  sums.valueSquares += c.valueSquares;
}

std::string toJson(const Snapshot& s) {
  std::string out =
      "{\n  \"schema\": \"cgx-statistics\",\n  \"version\": " + std::to_string(kSchemaVersion) + ",\n  \"cgx\": \"" +
      CGX_VERSION + "\",\n  \"host\": \"" + escaped(s.host) + "\",\n  \"pid\": " + std::to_string(s.pid) +
      ",\n  \"rank\": " + std::to_string(s.rank) + ",\n  \"unixSeconds\": " + std::to_string(s.unixSeconds) +
      ",\n  \"milliseconds\": " + std::to_string(s.milliseconds) + ",\n  \"sums\": {" + sumFields(s.sums) +
      "},\n  \"unlisted\": " + std::to_string(s.unlisted) + ",\n  \"communicators\": [";
  for (const Record& record : s.records) out += (&record == s.records.data() ? "\n" : ",\n") + recordJson(record);
  out += "],\n  \"series\": [";
  for (const Sample& sample : s.series) {
    out += (&sample == s.series.data() ? "\n    {" : ",\n    {") + fields({{"milliseconds", sample.milliseconds}}) +
           ", " + sumFields(sample.sums) + "}";
  }
  return out + "]\n}\n";
}

std::string toPrometheus(const Snapshot& snapshot) {
  Families f(snapshot);
  f.begin("cgx_operations_total", "Collective operations.");
  f.lines("kind=\"all_reduce\"", [](const Record& r) { return std::to_string(r.counters.allReduces.operations); });
  f.lines("kind=\"all_gather\"", [](const Record& r) { return std::to_string(r.counters.allGathers.operations); });
  f.lines("kind=\"reduce_scatter\"",
          [](const Record& r) { return std::to_string(r.counters.reduceScatters.operations); });
  f.begin("cgx_small_operations_total", "All-reduces that travelled exact because their content is small.");
  f.number("", &Counters::smallOperations);
  f.begin("cgx_input_bytes_total", "User data in collective operations.");
  f.number("", &Counters::inputBytes);
  f.begin("cgx_exact_bytes_total", "What the same operations had sent without compression.");
  f.lines("", [](const Record& r) { return std::to_string(exactBytesOf(r)); });
  f.begin("cgx_wire_bytes_total", "Bytes handed to the transport, message headers included.");
  f.number("", &Counters::wireBytes);
  f.begin("cgx_tiles_total", "Tiles of 512 elements that this rank contributed.");
  f.number("form=\"coded\"", &Counters::codedTiles);
  f.number("form=\"zero\"", &Counters::zeroTiles);
  f.number("form=\"raw\"", &Counters::rawTiles);
  f.number("form=\"whole\"", &Counters::wholeTiles);
  f.begin("cgx_exact_tiles_total", "Raw tiles of operations that travel exact.");
  f.number("", &Counters::exactTiles);
  f.begin("cgx_nonfinite_tiles_total", "Tiles of compressed operations with an Inf or a NaN.");
  f.number("", &Counters::nonFiniteTiles);
  f.begin("cgx_sampled_tiles_total", "Coded tiles that were compared with the exact values.");
  f.number("", &Counters::sampledTiles);
  f.begin("cgx_error_squares_total", "Sum of squared errors in sampled tiles.");
  f.decimals(&Counters::errorSquares);
  f.begin("cgx_value_squares_total", "Sum of squared exact values in sampled tiles; error / value is the NMSE.");
  f.decimals(&Counters::valueSquares);
  f.begin("cgx_seconds_total", "Time spent, added up over threads and messages.");
  f.time("encode", &Counters::encodeNs);
  f.time("reduce", &Counters::reduceNs);
  f.time("decode", &Counters::decodeNs);
  f.time("wire", &Counters::wireNs);
  return f.take();
}

std::string unused(const Record& r) {
  return "rank " + std::to_string(r.rank) + " of " + std::to_string(r.ranks) +
         ": NCCL never used collnet on this communicator: its all-reduces were too small or the link too fast for a "
         "gain "
         "(`cgx plan` shows from which size on; CGX_MODE=always overrules), or it is not one that CGX_COMMS means";
}

std::string summary(const Record& r) {
  const Counters& c = r.counters;
  const auto n = [](std::uint64_t value) { return std::to_string(value); };
  const auto ms = [](std::uint64_t ns) { return std::to_string(ns / 1'000'000) + " ms"; };
  const std::uint64_t exact = exactBytesOf(r);
  return "rank " + std::to_string(r.rank) + " of " + std::to_string(r.ranks) + ": " + n(c.operations) +
         " operations, " + n(c.inputBytes) + " bytes in, " + n(c.wireBytes) + " bytes on the wire, exact " + n(exact) +
         " (ratio " + ratio(exact, c.wireBytes) + "); " + n(c.smallOperations) +
         " exact because small; tiles: " + n(c.codedTiles) + " coded, " + n(c.zeroTiles) + " zero, " + n(c.exactTiles) +
         " exact by choice or size, " + n(c.rawTiles - c.exactTiles) + " raw (" + n(c.nonFiniteTiles) +
         " with Inf or NaN), " + n(c.wholeTiles) + " whole; NMSE " + nmse(c.errorSquares, c.valueSquares) + " (" +
         n(c.sampledTiles) + " tiles sampled); encode " + ms(c.encodeNs) + ", reduce " + ms(c.reduceNs) + ", decode " +
         ms(c.decodeNs) + ", wire " + ms(c.wireNs);
}

}  // namespace cgx::statistics
