#include "run_report/run_file.h"

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

namespace cgx::tool {
namespace {

using Json = nlohmann::json;

constexpr std::uintmax_t kLargestFile = 64 << 20;  // ours stay below 1 MiB

using Field = std::pair<const char*, std::uint64_t RunSums::*>;
constexpr Field kSeriesFields[] = {
    {"operations", &RunSums::operations}, {"inputBytes", &RunSums::inputBytes}, {"exactBytes", &RunSums::exactBytes},
    {"wireBytes", &RunSums::wireBytes},   {"encodeNs", &RunSums::encodeNs},     {"reduceNs", &RunSums::reduceNs},
    {"decodeNs", &RunSums::decodeNs},     {"wireNs", &RunSums::wireNs},
};
constexpr Field kOtherFields[] = {
    {"smallOperations", &RunSums::smallOperations},
    {"codedTiles", &RunSums::codedTiles},
    {"zeroTiles", &RunSums::zeroTiles},
    {"rawTiles", &RunSums::rawTiles},
    {"exactTiles", &RunSums::exactTiles},
    {"wholeTiles", &RunSums::wholeTiles},
};

// Came later within the version: 0 where they are missing.
constexpr Field kLaterFields[] = {{"nonFiniteTiles", &RunSums::nonFiniteTiles},
                                  {"sampledTiles", &RunSums::sampledTiles}};
constexpr std::pair<const char*, double RunSums::*> kSquares[] = {{"errorSquares", &RunSums::errorSquares},
                                                                  {"valueSquares", &RunSums::valueSquares}};

/// Reads fields of one object; the first that is not as documented becomes the status.
class Fields {
 public:
  Fields(const Json& object, std::string where, Status* status)
      : object_(object), where_(std::move(where)), status_(status) {
    if (!object_.is_object()) bad("", "is no object");
  }
  std::uint64_t number(const char* name) {
    const Json* value = find(name);
    if (value == nullptr) return 0;
    if (!value->is_number_unsigned()) bad(name, "is no whole number from 0 on");
    return value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
  }
  /// 0 where it is missing.
  double square(const char* name) {
    if (!has(name)) return 0;
    const Json& value = object_[name];
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0) || !std::isfinite(number)) bad(name, "is no number from 0 on");
    return number;
  }
  bool has(const char* name) const { return object_.is_object() && object_.contains(name); }
  std::string text(const char* name) {
    const Json* value = find(name);
    if (value == nullptr) return "";
    if (!value->is_string()) bad(name, "is no text");
    return value->is_string() ? value->get<std::string>() : "";
  }
  /// Calls visit(Fields) for the object.
  template <class Visit>
  void in(const char* name, Visit visit) {
    if (const Json* value = find(name); value != nullptr) visit(Fields(*value, where_ + name + ".", status_));
  }
  /// Calls visit(Fields) for each entry.
  template <class Visit>
  void each(const char* name, Visit visit) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_array()) return bad(name, "is no list");
    for (std::size_t i = 0; i < value->size() && status_->ok(); ++i)
      visit(Fields((*value)[i], where_ + name + "[" + std::to_string(i) + "].", status_));
  }
  void bad(const char* name, const char* what) {
    if (status_->ok()) *status_ = Status::invalid(where_ + name + " " + what);
  }

 private:
  const Json* find(const char* name) {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(name);
    if (it != object_.end()) return &*it;
    bad(name, "is missing");
    return nullptr;
  }

  const Json& object_;
  std::string where_;
  Status* status_;
};

RunSums seriesSums(Fields& from) {
  RunSums sums;
  for (const auto& [name, field] : kSeriesFields) sums.*field = from.number(name);
  for (const auto& [name, field] : kLaterFields)
    if (from.has(name)) sums.*field = from.number(name);
  for (const auto& [name, field] : kSquares) sums.*field = from.square(name);
  return sums;
}

void addCommunicator(RunFile& file, Fields comm) {
  RunSums sums = seriesSums(comm);
  for (const auto& [name, field] : kOtherFields) sums.*field = comm.number(name);
  const std::uint64_t ranks = comm.number("ranks");
  if (ranks == 0) comm.bad("ranks", "is 0");
  RunGroup& group = file.groups[{ranks, comm.number("bits")}];
  ++group.communicators;
  group.sums += sums;
  file.sums += sums;
  comm.each("sizes", [&](Fields size) {
    const std::uint64_t upTo = size.number("upToBytes");
    RunSize one{size.number("operations"), size.number("inputBytes"), size.number("wireBytes"), size.number("ns")};
    // 2 (ranks - 1) / ranks of an all-reduce's input, as docs/statistics.md has it for the whole.
    one.exactBytes = ranks == 0 ? 0 : 2.0 * static_cast<double>(one.inputBytes) * (1 - 1 / static_cast<double>(ranks));
    file.sizes[upTo == 0 ? kAboveAll : upTo] += one;
  });
}

/// Adds what has been counted up to `milliseconds`.
void addSample(RunFile& file, Fields from, std::uint64_t milliseconds) {
  const RunSample sample{milliseconds, seriesSums(from)};
  if (!file.series.empty()) {
    const RunSample& before = file.series.back();
    if (sample.milliseconds < before.milliseconds) from.bad("milliseconds", "is less than before");
    for (const auto& [name, field] : kSeriesFields)
      if (sample.sums.*field < before.sums.*field) from.bad(name, "is less than before");
    if (sample.milliseconds == before.milliseconds) file.series.pop_back();
  }
  file.series.push_back(sample);
}

}  // namespace

RunSums& RunSums::operator+=(const RunSums& other) {
  for (const auto& [name, field] : kSeriesFields) this->*field += other.*field;
  for (const auto& [name, field] : kOtherFields) this->*field += other.*field;
  for (const auto& [name, field] : kLaterFields) this->*field += other.*field;
  for (const auto& [name, field] : kSquares) this->*field += other.*field;
  return *this;
}

double RunSums::nmse() const {
  const bool some = sampledTiles > 0 && valueSquares > 0;
  return some ? errorSquares / valueSquares : std::numeric_limits<double>::quiet_NaN();
}

double RunSums::codecSeconds() const {
  return (static_cast<double>(encodeNs) + static_cast<double>(reduceNs) + static_cast<double>(decodeNs)) / 1e9;
}

RunSize& RunSize::operator+=(const RunSize& other) {
  operations += other.operations;
  inputBytes += other.inputBytes;
  wireBytes += other.wireBytes;
  ns += other.ns;
  exactBytes += other.exactBytes;
  return *this;
}

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 256)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

Result<RunFile> parseRunFile(const std::string& path, std::string_view text) {
  const std::string where = printable(path) + ": ";
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    return Status::invalid(where + "no JSON from byte " + std::to_string(error.byte) +
                           " on (CGX_STATS_FORMAT=prometheus cannot be read here)");
  } catch (const Json::exception& error) {  // a number beyond every type
    return Status::invalid(where + printable(error.what()));
  }
  Status status;
  RunFile file;
  file.path = path;
  Fields top(json, where, &status);
  if (top.text("schema") != "cgx-statistics") top.bad("schema", "is not cgx-statistics");
  if (top.number("version") != 1) top.bad("version", "is not 1, the only one that this program reads");
  file.host = top.text("host");
  file.pid = top.number("pid");
  file.rank = top.number("rank");
  file.unixSeconds = top.number("unixSeconds");
  file.milliseconds = top.number("milliseconds");
  file.unlisted = top.number("unlisted");
  top.each("communicators", [&](Fields comm) { addCommunicator(file, std::move(comm)); });
  top.each("series", [&](Fields sample) {
    const std::uint64_t milliseconds = sample.number("milliseconds");
    addSample(file, std::move(sample), milliseconds);
  });
  // The series may have passed the last moment over.
  top.in("sums", [&](Fields sums) { addSample(file, std::move(sums), file.milliseconds); });
  if (!status.ok()) return status;
  return file;
}

Result<RunFile> readRunFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return Status::invalid(printable(path) + ": " + (error ? error.message() : "no regular file"));
  if (std::filesystem::file_size(path, error) > kLargestFile)
    return Status::invalid(printable(path) + ": larger than a statistics file can be");
  std::ifstream in(path, std::ios::binary);
  if (!in) return Status::system("open " + printable(path), errno);
  return parseRunFile(path, std::string(std::istreambuf_iterator<char>(in), {}));
}

}  // namespace cgx::tool
